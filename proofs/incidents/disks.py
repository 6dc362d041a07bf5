"""A small disk that fills and is freed: a file system of its own in memory. It needs root, or a user namespace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BLOCK = 4096


class SmallDisk:
    """A mounted disk. `path`: its directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self, leave: int = 0) -> None:
        """Take all of its space, but for some bytes."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(_BLOCK))
        if leave:
            os.truncate(self._filler, max(0, self._filler.stat().st_size - leave))

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink()


@contextmanager
def small_disk(megabytes: int = 8) -> Iterator[SmallDisk]:
    """Mount a disk of this size until the context is left. Raises subprocess.CalledProcessError without the right."""
    path = Path("disk").absolute()
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", path], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", path], check=True)
