"""A lock on a file, which the kernel releases when its process ends."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO


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
