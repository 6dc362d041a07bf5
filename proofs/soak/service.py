"""Runs a command of efo and counts its tasks: `python -m proofs.soak.service FILE run --config efo.toml`."""

from __future__ import annotations

import gc
import mmap
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final
from unittest.mock import patch

import trio

from efo_service.cli import main
from proofs.soak.samples import COUNTS

_COUNT_SECONDS: Final = 10.0


class Counter(trio.abc.Instrument):
    """Keeps the numbers of tasks and blocks in the memory of a file, so that reading them costs the process nothing."""

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory
        self._tasks = 0
        self._due = 0.0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - the signature is trio's
        """Count a task."""
        self._add(1)

    def task_exited(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - the signature is trio's
        """Count it no more."""
        self._add(-1)

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 - the signature is trio's
        """Count the blocks, from time to time, after a garbage collection: those that it frees are no leak.

        The service itself collects so rarely that what waits for a collection would hide one.
        """
        if (now := time.monotonic()) >= self._due:
            self._due = now + _COUNT_SECONDS
            gc.collect()
            self._write(sys.getallocatedblocks())

    def _add(self, number: int) -> None:
        self._tasks += number
        self._write(COUNTS.unpack_from(self._memory)[1])

    def _write(self, blocks: int) -> None:
        COUNTS.pack_into(self._memory, 0, self._tasks, blocks)


def run() -> None:
    """Run efo's command line with the counter in each trio.run."""
    path = Path(sys.argv.pop(1))
    path.write_bytes(bytes(COUNTS.size))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), COUNTS.size) as memory:
        counted = partial(trio.run, instruments=[Counter(memory)])
        with patch.object(trio, "run", counted):
            main()


if __name__ == "__main__":
    run()
