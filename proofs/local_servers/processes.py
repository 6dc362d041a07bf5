"""The common part of the real servers: a free port, a directory, and a process that is probed until it is ready."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_TIMEOUT_SECONDS = 120.0
"""How long a server may take to become ready. Usually one or two seconds; a busy machine needs more."""


class NotReadyError(Exception):
    """The server did not start. The message includes the end of its output."""


@contextmanager
def directory(user: str | None = None) -> Iterator[Path]:
    """Create a temporary directory that `user` owns; remove it at the end."""
    path = Path(tempfile.mkdtemp(prefix="efo-server-"))
    try:
        if user is not None:
            os.chown(path, pwd.getpwnam(user).pw_uid, -1)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Server:
    """A server's process.

    `log`: file for its output. `probe`: raises while the server is not ready. `user`: runs the process; None for the
    current user.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, probe: Callable[[], object], user: str | None = None
    ) -> None:
        self._command = command
        self._log = log
        self._probe = probe
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it is ready. Raises NotReadyError."""
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, user=self._user
            )
        try:
            self._wait(process)
        except BaseException:
            self.kill()
            raise

    def stop(self, number: int, seconds: float = 30.0) -> None:
        """Send a signal to the server, and kill it if it has not ended after `seconds`."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kill the server, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            try:
                self._probe()
            except Exception as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
                    raise NotReadyError(f"{self._command[0]}: {error}\n{tail}") from error
                time.sleep(0.05)
            else:
                return
