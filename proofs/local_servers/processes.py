"""What the real servers have in common: a free port, a directory, a process that is ready or says why not."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 120.0
"""Seconds after which a server that is not ready has failed. It takes one or two; a busy machine takes more."""


class NotReadyError(Exception):
    """The server did not start. The message has the end of its output."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody has right now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def directory(user: str | None = None) -> Iterator[Path]:
    """Make a directory that `user` owns; remove it in the end."""
    path = Path(tempfile.mkdtemp(prefix="efo-server-"))
    try:
        if user is not None:
            os.chown(path, pwd.getpwnam(user).pw_uid, -1)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Server:
    """A server's process. `probe`: raises as long as it is not ready."""

    def __init__(
        self, command: Sequence[str], *, log: Path, probe: Callable[[], object], user: str | None = None
    ) -> None:
        self._command = command
        self._log = log
        self._probe = probe
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers. Raises NotReadyError."""
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
        """End it by a signal; kill it if that takes too long."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
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
