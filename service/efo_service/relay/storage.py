"""The operations on files that decide what survives a crash, and that `Path` does not have.

The log reaches its files through its root: by the methods of `Path` (`open`, `rename`, `unlink`, `stat` and so on), and
by these functions, which dispatch on the type of their argument. So a root of another type brings its own storage, and
no function of the log has a parameter for it. The simulation's disk is such a root.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from functools import singledispatch
from pathlib import Path
from typing import IO, Any, Final


@singledispatch
def write_file(path: Path, chunks: Sequence[bytes | memoryview]) -> None:
    """Write a file, or replace its content, and make that durable, but not its name.

    With few system calls: after each, a thread waits for the interpreter's lock. `chunks`: bytes, or Arrow's buffers.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        for views in _writes(chunks):
            _write(descriptor, views)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _writes(chunks: Sequence[bytes | memoryview]) -> Iterator[list[memoryview]]:
    """Yield what each system call writes: up to _WRITE_BYTES of neighbouring chunks."""
    views: list[memoryview] = []
    space = _WRITE_BYTES
    for chunk in chunks:
        left = memoryview(chunk)
        while left:
            views.append(left[:space])
            left, space = left[space:], space - len(views[-1])
            if not space or len(views) == _MAX_VIEWS:
                yield views
                views, space = [], _WRITE_BYTES
    if views:
        yield views


def _write(descriptor: int, views: list[memoryview]) -> None:
    """Write all of it, in one system call unless the system ends that early."""
    written = os.writev(descriptor, views)
    for view in views:
        rest = view[max(0, written) :]
        written -= len(view)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


_MAX_VIEWS: Final = 1024
"""How many views a call takes on every system (POSIX: IOV_MAX; Linux and macOS)."""
_WRITE_BYTES: Final = 1024 * 1024
"""Linux caches a larger write in larger pages. A virtual machine whose host takes back free memory (Firecracker) has
few of them: a write of 4 MiB at once took it three times as long."""


@singledispatch
def sync(file: IO[Any]) -> None:
    """Make what was written to a file durable, but not its name."""
    file.flush()
    os.fdatasync(file.fileno())


@singledispatch
def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@singledispatch
def names(directory: Path) -> list[str]:
    """Return the names in a directory, in any order. It is much faster than `Path.iterdir` for thousands of names."""
    return os.listdir(directory)  # noqa: PTH208


@singledispatch
def lock(path: Path, *, wait: bool = True) -> IO[bytes]:
    """Lock a file, which is created if missing. Closing it unlocks it, and so does the end of the process.

    Raises BlockingIOError if the file is locked and `wait` is false.
    """
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file
