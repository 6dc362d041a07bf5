"""A file of lines that is appended to, durably, and that this process or another one rotates. Blocking.

Another program (logrotate) moves the file away, or copies and empties it: the next append, or the next look, goes on in
a new file. With limits, this process moves it itself, to NAME.20260131T120000Z, and compresses that. A line is never in
two files, and no file ends with a part of one.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import time
from typing import IO, Any, Final

import structlog

from efo_service.relay.errors import SinkLockedError, os_errors
from efo_service.relay.storage import lock, sync_directory

_READ_BLOCK: Final = 64 * 1024
_ROTATED: Final = re.compile(r"\.\d{8}T\d{6}Z(?:-\d+)?")
_PARTIAL: Final = ".gz.tmp"


@dataclass(frozen=True, slots=True)
class Rotation:
    """When the file is rotated: at a size in bytes, or so many seconds after it was opened. None: never for that.

    `compresses`: whether what was rotated is compressed by gzip.
    """

    size: int | None = None
    seconds: float | None = None
    compresses: bool = True


class RotatedFile:
    """Appends to the file `path`, which is locked: opening it raises SinkLockedError if another writer has it.

    One thread at a time calls it. `clock`: seconds since the epoch.
    """

    is_file = True

    def __init__(self, path: Path, rotation: Rotation = Rotation(), clock: Callable[[], float] = time) -> None:
        self._path = path
        self._rotation = rotation
        self._clock = clock
        self._file = self._open()

    def close(self) -> None:
        """Close and unlock the file."""
        self._file.close()

    def append(self, content: bytes) -> None:
        """Write whole lines, durably. Raises SinkFullError and SinkError; then the file has none of them."""
        with os_errors("write", self._path):
            self.look()
            descriptor = self._file.fileno()
            end = os.fstat(descriptor).st_size  # another program may have emptied it
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fdatasync(descriptor)
            except OSError:
                os.ftruncate(descriptor, end)
                raise

    def look(self) -> None:
        """Go on in a new file if this one was moved, or is to be rotated. Raises SinkError."""
        with os_errors("open", self._path):
            if not self._is_in_place():
                self._reopen("json_lines_reopened")
            elif self._is_due():
                to = self._free_name()
                self._path.rename(to)
                self._reopen("json_lines_rotated", to=str(to))

    def uncompressed(self) -> list[Path]:
        """Return the files that were rotated, and are to be compressed: also those of an earlier process."""
        if not self._rotation.compresses or self._rotation == Rotation():
            return []
        name = self._path.name
        return sorted(
            path
            for path in self._path.parent.glob(f"{name}.*Z*")
            if _ROTATED.fullmatch(path.name.removeprefix(name)) and path.is_file()
        )

    def _open(self) -> IO[Any]:
        with os_errors("open", self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                file = lock(self._path, wait=False)
            except BlockingIOError as error:
                raise SinkLockedError(
                    f"{self._path} is open in another writer: give each worker a separate file"
                ) from error
            try:
                sync_directory(self._path.parent)
                whole = _whole_lines(self._path)
                if torn := self._path.stat().st_size - whole:
                    structlog.get_logger().warning("incomplete_line_cut_off", path=str(self._path), bytes=torn)
                    os.ftruncate(file.fileno(), whole)
            except BaseException:
                file.close()
                raise
        self._opened_at = self._clock()
        return file

    def _reopen(self, event: str, **fields: str) -> None:
        before = self._file
        self._file = self._open()
        before.close()
        structlog.get_logger().info(event, path=str(self._path), **fields)

    def _is_in_place(self) -> bool:
        own = os.fstat(self._file.fileno())
        with suppress(FileNotFoundError):
            found = self._path.stat()
            return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)
        return False

    def _is_due(self) -> bool:
        size = os.fstat(self._file.fileno()).st_size
        is_large = self._rotation.size is not None and size >= self._rotation.size
        is_old = self._rotation.seconds is not None and self._clock() - self._opened_at >= self._rotation.seconds
        return size > 0 and (is_large or is_old)

    def _free_name(self) -> Path:
        at = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y%m%dT%H%M%SZ")
        names = (self._path.with_name(f"{self._path.name}.{at}{suffix}") for suffix in _suffixes())
        return next(name for name in names if not (name.exists() or name.with_name(f"{name.name}.gz").exists()))


def _suffixes() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in count(2))


def compress(path: Path) -> None:
    """Replace a file by its compressed content, NAME.gz. What ends in the middle leaves the file. Raises SinkError."""
    temporary = path.with_name(path.name + _PARTIAL)
    with os_errors("compress", path):
        try:
            with path.open("rb") as source, temporary.open("wb") as raw:
                with gzip.GzipFile(path.name, "wb", fileobj=raw) as target:
                    shutil.copyfileobj(source, target, _READ_BLOCK)
                raw.flush()
                os.fdatasync(raw.fileno())
            shutil.copymode(path, temporary)
            temporary.rename(path.with_name(f"{path.name}.gz"))
            path.unlink()
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def _whole_lines(path: Path) -> int:
    """Return the total size of a file's complete lines, in bytes."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _READ_BLOCK)
            file.seek(start)
            if (newline := file.read(end - start).rfind(b"\n")) >= 0:
                return start + newline + 1
            end = start
    return 0
