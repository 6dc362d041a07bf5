"""Fills free memory with cached pages, as on a machine that has run for a while.

Until then, each page of a new file is the first use of that memory. The host of a virtual machine provides it only
then, which takes some five microseconds for each page: several times what writing to it takes. So on a new machine, a
file costs up to three times as much CPU time as it does later.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 32 * 1024**3
"""Not more is filled at once: it takes a second per GB. On a larger machine, some memory stays new."""
RESERVE_BYTES: Final = 300 * 1024**2
"""What stays free."""
_READ_BYTES: Final = 1024**2


class PageCache:
    """Sparse files that have been read, and so are in the page cache. They take no space on the disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = 0

    def fill(self, max_bytes: int = MAX_BYTES, reserve_bytes: int = RESERVE_BYTES) -> int:
        """Fill what is free; return how many bytes were read. Without Linux, or a disk that caches holes, in vain."""
        size = min(_free_bytes() - reserve_bytes, max_bytes)
        if size <= 0:
            return 0
        self._files += 1
        with (self._directory / str(self._files)).open("w+b", buffering=0) as file:
            file.truncate(size)
            buffer, total = bytearray(_READ_BYTES), 0
            while read := file.readinto(buffer):
                total += read
        return total


@contextmanager
def page_cache() -> Iterator[PageCache]:
    """Return the page cache. What was filled is free again at the end."""
    with tempfile.TemporaryDirectory(prefix="efo-page-cache-") as directory:
        yield PageCache(Path(directory))


def _free_bytes() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not Linux
        return 0
