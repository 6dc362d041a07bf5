"""JSON lines as a sink: one object per record, written to stdout or appended to a file. At least once.

    {"key":"customer-7","value":"eyJpZCI6MX0=","timestamp":1700000000123,"headers":[["kinesis.stream","orders"],...]}

The key of a record without a partition key is null.
It keeps no position. After a crash, the records committed since the lease's last checkpoint are written again; a reader
can drop such duplicates by their `kinesis.*` headers. A commit is a write and a sync. If a crash leaves an incomplete
last line, opening the file again cuts it off, because its record was never acked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import structlog
import trio

from efo.exception_groups import collapse_groups
from efo.model import Checkpoint, Record
from efo_service.relay.errors import CLOSED, SinkClosedError, SinkError, os_errors
from efo_service.relay.mapping import Extractor, RecordMapping
from efo_service.relay.record_size import RecordSize
from efo_service.relay.rotated_file import RotatedFile, Rotation, compress
from efo_service.relay.sink import Part, closed_by_failure

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

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
    rotation: Rotation = Rotation(),  # noqa: B008 - frozen
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
