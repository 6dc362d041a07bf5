"""Runs a command of efo and counts its trio tasks: `python -m proofs.soak.service FILE run --config efo.toml`."""

from __future__ import annotations

import mmap
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import trio

from efo_service.cli import main
from proofs.soak.samples import TASK_COUNT


class TaskCounter(trio.abc.Instrument):
    """Keeps the number of tasks of trio.run in the memory of a file, so that reading it costs the process nothing."""

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory
        self._tasks = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - the signature is trio's
        """Count a task."""
        self._add(1)

    def task_exited(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - the signature is trio's
        """Count it no more."""
        self._add(-1)

    def _add(self, number: int) -> None:
        self._tasks += number
        TASK_COUNT.pack_into(self._memory, 0, self._tasks)


def run() -> None:
    """Run efo's command line with the counter in each trio.run."""
    path = Path(sys.argv.pop(1))
    path.write_bytes(bytes(TASK_COUNT.size))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), TASK_COUNT.size) as memory:
        counted = partial(trio.run, instruments=[TaskCounter(memory)])
        with patch.object(trio, "run", counted):
            main()


if __name__ == "__main__":
    run()
