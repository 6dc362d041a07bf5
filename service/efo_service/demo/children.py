"""The demo's child processes: the service and the pipeline, run by the very commands that a user types."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from efo.errors import EfoError
from efo_service.workers.process import efo_command

_LOG_LINES: Final = 15
_NOT_INHERITED: Final = ("EFO_", "AWS_", "OTEL_")
"""How variables begin that would lead a child elsewhere: to a real stream, sink or collector of the shell's owner."""


class ChildFailedError(EfoError):
    """A child process of the demo ended when it should not have. The message shows the end of its log."""

    error_type = "child_failed"


class Child:
    """One command of efo, running in a process group of its own; its output goes to `log`.

    `environment` is added to the caller's, of which nothing is left that configures efo, AWS or telemetry.
    """

    def __init__(self, name: str, arguments: list[str], directory: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._arguments = efo_command(*arguments)
        self._directory = directory
        self._environment = {
            # In capitals, as settings are found whichever way their names are written.
            **{name: value for name, value in os.environ.items() if not name.upper().startswith(_NOT_INHERITED)},
            **environment,
        }
        self._process: trio.Process | None = None

    async def start(self) -> None:
        """Start the command, or start it again after a kill."""
        with self.log.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                self._arguments,
                cwd=self._directory,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise ChildFailedError if it is not running."""
        if self._running.poll() is not None:
            raise ChildFailedError(f"efo {self.name} ended with {self._running.returncode}:\n{self._tail()}")

    async def kill(self) -> None:
        """Kill it as a crash does (SIGKILL), with all that it has started, and wait until it is gone."""
        os.killpg(self._running.pid, signal.SIGKILL)
        await self._running.wait()

    async def stop(self, seconds: float) -> None:
        """Ask it to drain (SIGTERM) and wait. Raises ChildFailedError if it fails, or takes longer."""
        self.check()
        self._running.send_signal(signal.SIGTERM)
        with trio.move_on_after(seconds):
            await self._running.wait()
        if self._running.returncode != 0:
            code = self._running.returncode
            how = f"has not ended {seconds:g} s after SIGTERM" if code is None else f"drained with exit code {code}"
            raise ChildFailedError(f"efo {self.name} {how}:\n{self._tail()}")

    async def end(self) -> None:
        """Make sure that it is gone, whatever happened."""
        if self._process is not None and self._process.poll() is None:
            await self.kill()

    @property
    def _running(self) -> trio.Process:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


@asynccontextmanager
async def ended(*children: Child) -> AsyncIterator[None]:
    """Leave no process behind, whatever happens."""
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            for child in children:
                await child.end()
