"""The demo's child processes: the service and the pipeline, started with the commands that a user runs."""

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
"""Prefixes of environment variables that could direct a child to a real stream, sink or collector."""


class ChildFailedError(EfoError):
    """A child process of the demo failed. The message shows the end of its log."""

    error_type = "child_failed"


class DemoProcess:
    """One command of efo, in its own process group. Its output goes to `log`.

    `environment` is added to the caller's environment, without the variables that configure efo, AWS or telemetry.
    """

    def __init__(self, name: str, arguments: list[str], directory: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._arguments = efo_command(*arguments)
        self._directory = directory
        self._environment = {
            # In upper case, since the names of settings are case-insensitive.
            **{name: value for name, value in os.environ.items() if not name.upper().startswith(_NOT_INHERITED)},
            **environment,
        }
        self._process: trio.Process | None = None

    async def start(self) -> None:
        """Start the command, or restart it after a kill."""
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
        """Raise ChildFailedError if the process is not running."""
        if self._running.poll() is not None:
            raise ChildFailedError(f"efo {self.name} ended with {self._running.returncode}:\n{self._tail()}")

    async def kill(self) -> None:
        """Kill the process group (SIGKILL), as a crash would, and wait until the process has ended."""
        os.killpg(self._running.pid, signal.SIGKILL)
        await self._running.wait()

    async def stop(self, seconds: float) -> None:
        """Send SIGTERM, and wait for the drain. Raises ChildFailedError if it fails or takes longer than `seconds`."""
        self.check()
        self._running.send_signal(signal.SIGTERM)
        with trio.move_on_after(seconds):
            await self._running.wait()
        if self._running.returncode != 0:
            code = self._running.returncode
            problem = f"still runs {seconds:g} s after SIGTERM" if code is None else f"drained with exit code {code}"
            raise ChildFailedError(f"efo {self.name} {problem}:\n{self._tail()}")

    async def end(self) -> None:
        """Kill the process if it is running."""
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
async def ended(*children: DemoProcess) -> AsyncIterator[None]:
    """End all children when the context is left, even after an error."""
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            for child in children:
                await child.end()
