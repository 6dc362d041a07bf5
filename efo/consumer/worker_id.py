"""The default worker id: unique among the processes of a host, and the same again after a restart.

Each running consumer holds a lock on a slot, a small file with a random token; the worker id is the host's name and the
token. A second consumer on the host finds the slot locked and takes the next one. A consumer that is restarted finds
its slot unlocked, since the kernel releases the lock of a process that ends, so that it has the same id and gets its
leases back at once. The token tells hosts and containers apart that have the same name but not the same files.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

MAX_SLOTS: Final = 1000
_TOKEN_LENGTH: Final = 8


@contextmanager
def worker_slot(application: str, stream: str, directory: Path | None = None) -> Iterator[str]:
    """Hold a slot of this application and stream, and yield its worker id.

    `directory`: where the slots' files are; None: a directory of this user below the system's temporary directory. If
    no file can be written, the worker id is unique but differs after a restart.
    """
    host = socket.gethostname()
    descriptor = _lock_slot(application, stream, _default_directory() if directory is None else directory)
    if descriptor is None:
        yield f"{host}-{secrets.token_hex(_TOKEN_LENGTH // 2)}"
        return
    try:
        yield f"{host}-{_token(descriptor)}"
    finally:
        os.close(descriptor)


def _default_directory() -> Path:
    return Path(tempfile.gettempdir()) / f"efo-{os.getuid()}"


def _lock_slot(application: str, stream: str, directory: Path) -> int | None:
    """Return the descriptor of the first slot's file that no other consumer has locked; None if there is none."""
    scope = sha256(f"{application}\0{stream}".encode()).hexdigest()[:16]
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.stat().st_uid != os.getuid():
            return None  # the directory of another user could be changed under us
        for number in range(MAX_SLOTS):
            descriptor = os.open(directory / f"worker-{scope}-{number}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
            else:
                return descriptor
    except OSError:
        pass
    return None


def _token(descriptor: int) -> str:
    """Return the token in a slot's file; write one if there is none."""
    token = os.pread(descriptor, _TOKEN_LENGTH, 0).decode("ascii", "replace")
    if len(token) == _TOKEN_LENGTH and token.isalnum():
        return token
    token = secrets.token_hex(_TOKEN_LENGTH // 2)
    os.pwrite(descriptor, token.encode(), 0)
    return token
