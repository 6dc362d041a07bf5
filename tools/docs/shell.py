"""Runs the commands of a page in one shell, as a reader does who copies them, and compares what they print.

A command that serves until it is stopped (`efo run`, `efo fake`, `efo tail`, `efo pipeline`) is started in the
background, as in a second terminal. The next command waits until it is ready. At the end it is stopped, and must end
well.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.error import URLError
from urllib.request import urlopen

from tools.docs.examples import Command

TIMEOUT: Final = 300.0
"""Seconds after which a command hangs, and a service is not ready. Spark takes minutes on a busy machine."""
_POLL: Final = 0.1


class FailedCommandError(Exception):
    """A command did not do what its page says."""


@dataclass(frozen=True)
class _Service:
    """A command that does not end by itself. `ready`: whether it serves, from its output and the environment."""

    command: str
    unless: str
    ready: Callable[[str, Mapping[str, str]], bool]
    stop: signal.Signals = signal.SIGTERM


def _is_ready(_output: str, environment: Mapping[str, str]) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{environment['EFO_SERVICE__PORT']}/readyz", timeout=5) as response:
            return bool(response.status == 200)  # noqa: PLR2004 - OK
    except (URLError, OSError):
        return False


_SERVICES: Final = (
    _Service(r"efo run\b", "", _is_ready),
    _Service(r"efo fake\b", "", lambda output, _: "Press Ctrl-C" in output or '"environment"' in output),
    _Service(r"efo tail\b", r"--until|--limit", lambda output, _: "\n" in output, signal.SIGINT),
    _Service(r"efo pipeline\b", r"--available-now", lambda output, _: "batch" in output),
)


class Shell:
    """A bash in `directory`. `environment`: of its commands. `replace`: texts of the page, and what they are here."""

    def __init__(self, directory: Path, environment: Mapping[str, str], replace: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self._replace = replace
        self._count = 0
        self._services: list[tuple[str, _Service, Path]] = []

    def __enter__(self) -> Self:
        """Start the shell."""
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            cwd=self._directory,
            env=dict(self._environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._send("set -m")  # a background job of a shell without job control ignores Ctrl-C
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop the services in the reverse order. Raises FailedCommandError if one does not end well."""
        try:
            if kind is None:
                self._stop()
        finally:
            for job, _, _ in self._services:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(job), signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._bash.pid, signal.SIGKILL)
            self._bash.communicate()

    def run(self, command: Command) -> None:
        """Run a command. Raises FailedCommandError with its output, if it fails, hangs, or prints something else."""
        text = self._here(command.text)
        self._count += 1
        file = self._directory / f".output-{self._count}"
        service = next((one for one in _SERVICES if re.match(one.command, text)), None)
        if service and not (service.unless and re.search(service.unless, text)):
            job = self._ask(f"{{ exec {text}\n}} > {file} 2>&1 < /dev/null &\necho $!", command, file)
            self._services.append((job, service, file))
            self._wait_until_ready(command, service, file)
        else:
            status = self._ask(f"{{ {text}\n}} > {file} 2>&1 < /dev/null\necho $?", command, file)
            if status != "0":
                raise FailedCommandError(f"{command.place}: {text!r} exits with {status}:\n{_text(file)}")
        if command.output and not matches(self._here(command.output), _text(file)):
            raise FailedCommandError(f"{command.place}: {text!r} prints\n{_text(file)}\ninstead of\n{command.output}")

    def write(self, name: str, text: str) -> None:
        """Write a file of the page."""
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._here(text), encoding="utf-8")

    def _here(self, text: str) -> str:
        for old, new in self._replace.items():
            text = text.replace(old, new)
        return text

    def _send(self, text: str) -> None:
        assert self._bash.stdin is not None  # noqa: S101 - it is a pipe
        self._bash.stdin.write(f"{text}\n".encode())
        self._bash.stdin.flush()

    def _ask(self, text: str, command: Command, file: Path) -> str:
        """Run a text, and return the line that it prints to the shell's own output."""
        assert self._bash.stdout is not None  # noqa: S101 - it is a pipe
        self._send(text)
        if not select.select([self._bash.stdout], [], [], TIMEOUT)[0]:
            raise FailedCommandError(f"{command.place}: {command.text!r} does not end:\n{_text(file)}")
        return self._bash.stdout.readline().decode().strip()

    def _wait_until_ready(self, command: Command, service: _Service, file: Path) -> None:
        deadline = time.monotonic() + TIMEOUT
        job = self._services[-1][0]
        while not service.ready(_text(file), self._environment):
            if time.monotonic() > deadline or self._ask(f"kill -0 {job} 2>/dev/null; echo $?", command, file) != "0":
                raise FailedCommandError(f"{command.place}: {command.text!r} is not ready:\n{_text(file)}")
            time.sleep(_POLL)

    def _stop(self) -> None:
        while self._services:
            job, service, file = self._services[-1]
            end = Command("the end of the page", service.command)
            status = self._ask(f"kill -{service.stop.value} {job}; wait {job} 2>/dev/null; echo $?", end, file)
            self._services.pop()
            if status not in {"0", "130"}:  # 130: interrupted
                raise FailedCommandError(f"{service.command} ends with {status} when it is stopped:\n{_text(file)}")


def matches(shown: str, printed: str) -> bool:
    """Return whether an output contains what the page shows. "..." is any text; any white space is one space."""
    pattern = r".*?".join(re.escape(" ".join(part.split())) for part in shown.split("..."))
    return re.search(pattern.replace(r"\ .*?", r".*?").replace(r".*?\ ", r".*?"), " ".join(printed.split())) is not None


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
