"""JSON lines as a sink: one object per record, to stdout or to a file that is appended to durably and rotated.

{"key":"customer-7","value":"eyJpZCI6MX0=","timestamp":1700000000123,"headers":[["kinesis.stream","orders"],...]}

The key of a record without a partition key is null.
It keeps no position. After a crash, the records committed since the lease's last checkpoint are written again; a reader
can drop such duplicates by their `kinesis.*` headers. A commit is a write and a sync. If a crash leaves an incomplete
last line, opening the file again cuts it off, because its record was never acked.

Another program (logrotate) moves the file away, or copies and empties it: the next append, or the next look, goes on in
a new file. With limits, this process moves it itself, to NAME.20260131T120000Z, and compresses that. A line is never in
two files, and no file ends with a part of one.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from time import time
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import msgspec
import structlog
import trio

from efo.exception_groups import collapse_groups
from efo.model import Checkpoint, Record
from efo_service.relay.errors import CLOSED, SinkClosedError, SinkError, SinkLockedError, os_errors
from efo_service.relay.mapping import Extractor, RecordMapping
from efo_service.relay.record_size import RecordSize
from efo_service.relay.sink import Part, closed_by_failure
from efo_service.relay.storage import lock, sync_directory

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

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


Encoding = Literal["base64", "utf-8"]
"""The encoding of values in JSON: base64 takes any bytes; utf-8 is readable, and refuses values that are not UTF-8."""

_LOOK_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 60.0
"""Seconds until a rotation that failed is tried again."""


class Line(msgspec.Struct, frozen=True):
    """One line. msgspec encodes bytes in base64."""

    key: str | None
    value: str | bytes
    timestamp: int
    headers: list[tuple[str, str | None]]


_encode = msgspec.json.Encoder().encode


def line(record: Record, mapping: RecordMapping, encoding: Encoding) -> bytes:
    """Return a record's line. Raises UnicodeDecodeError if its value does not have this encoding, and SinkError."""
    message = mapping.message(record)
    value = message.value if encoding == "base64" else message.value.decode()
    headers = [(name, None if content is None else content.decode()) for name, content in message.headers]
    key = None if message.key is None else message.key.decode()
    return _encode(Line(key, value, message.timestamp, headers)) + b"\n"


_LINE: Final = len(_encode(Line("", "", 2**63 - 1, []))) + len("\n") - 2 * len('""')
_HEADER: Final = len('["",""],')


def _size_of_keys(records: Sequence[Record]) -> int:
    return sum(len(_encode(record.partition_key)) for record in records)


def _size_of_values(encoding: Encoding, records: Sequence[Record]) -> int:
    if encoding == "utf-8":
        return sum(len(_encode(record.data.decode(errors="replace"))) for record in records)
    return sum(len('""') + 4 * ((len(record.data) + 2) // 3) for record in records)


# --- the output ----------------------------------------------------------------------------------------


class _Stdout:
    """Stdout. Blocking: runs in a thread, one call at a time."""

    is_file = False

    def append(self, content: bytes) -> None:
        """Write whole lines. Raises SinkError."""
        with os_errors("write", Path("stdout")):
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(sys.stdout.fileno(), rest) :]


# --- the sink ------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_json_lines(
    path: Path | None,
    *,
    encoding: Encoding = "base64",
    extract: Extractor | None = None,
    rotation: Rotation = Rotation(),
    clock: Callable[[], float] = time,
) -> AsyncIterator[JsonLinesSink]:
    """Open a file as a sink, or stdout without a path. `extract`: see RecordMapping. `rotation`: of the file.

    Raises SinkLockedError if another writer has the file open, and SinkError.
    """
    if path is None:
        yield JsonLinesSink(_Stdout(), encoding, extract)
        return
    output = await trio.to_thread.run_sync(RotatedFile, path, rotation, clock)
    sink = JsonLinesSink(output, encoding, extract)
    try:
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sink.look_after, output)
                yield sink
                nursery.cancel_scope.cancel()
    finally:
        output.close()


class JsonLinesSink:
    """Writes the lines of all shards to one output. `open_json_lines` creates it."""

    def __init__(self, output: _Stdout | RotatedFile, encoding: Encoding, extract: Extractor | None) -> None:
        self._output = output
        self._encoding = encoding
        self._extract = extract
        self._lock = trio.Lock()

    def open(
        self,
        stream: str,
        shard_id: str,
        checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,  # noqa: ARG002 - the protocol requires it
    ) -> AbstractAsyncContextManager[JsonLinesShardSink]:
        """Open the sink for a shard."""
        return self._open(RecordMapping(stream, shard_id, self._extract))

    @asynccontextmanager
    async def _open(self, mapping: RecordMapping) -> AsyncIterator[JsonLinesShardSink]:
        shard_sink = JsonLinesShardSink(mapping, self._encoding, self._append)
        try:
            yield shard_sink
        finally:
            shard_sink.close()

    async def look_after(self, output: RotatedFile) -> None:
        """Leave a file that was moved away soon, also if no records come, and compress what was rotated."""
        while True:
            try:
                async with self._lock:
                    await trio.to_thread.run_sync(output.look)
                for path in await trio.to_thread.run_sync(output.uncompressed):
                    await trio.to_thread.run_sync(compress, path)
            except SinkError as error:  # a commit tells it too, and the next look tries again
                structlog.get_logger().warning("rotation_failed", error_type=error.error_type, message=str(error))
                await trio.sleep(_AGAIN_SECONDS)
            await trio.sleep(_LOOK_SECONDS)

    async def _append(self, content: bytes) -> None:
        async with self._lock:
            # A reader of stdout that has stopped must not hold up the end of the service: its thread is left behind.
            await trio.to_thread.run_sync(self._output.append, content, abandon_on_cancel=not self._output.is_file)


class JsonLinesShardSink:
    """JSON lines, opened for one shard; see ShardSink."""

    position = None

    def __init__(self, mapping: RecordMapping, encoding: Encoding, append: Callable[[bytes], Awaitable[None]]) -> None:
        self._mapping = mapping
        self._encoding = encoding
        self._append = append
        self._size = RecordSize(
            mapping, record=_LINE, header=_HEADER, keys=_size_of_keys, values=partial(_size_of_values, encoding)
        )
        self._is_closed = False

    def refusal(self, record: Record) -> str | None:
        """Return why a record cannot be written: its value is not UTF-8, but the encoding is."""
        if self._encoding == "utf-8":
            try:
                record.data.decode()
            except UnicodeDecodeError as error:
                return f"its value is not UTF-8: {error.reason} at byte {error.start}"
        return None

    def prepare(self, records: Sequence[Record]) -> Part:
        """Return the records as they are: lines are much larger, and many user records of an aggregate may wait."""
        return Part(records, self._size(records))

    async def commit(self, parts: Sequence[Part]) -> None:
        """Write lines, durably if to a file. Raises SinkFullError, which can be repeated, and SinkError."""
        if self._is_closed:
            raise SinkClosedError(CLOSED)
        with closed_by_failure(self.close):
            records = [record for part in parts for record in part.content]
            await self._append(b"".join(line(record, self._mapping, self._encoding) for record in records))

    def close(self) -> None:
        """Close it: no commit follows."""
        self._is_closed = True
