"""JSON lines as a sink: one object per record, on stdout or at the end of a file. At least once.

    {"key":"customer-7","value":"eyJpZCI6MX0=","timestamp":1700000000123,"headers":[["kinesis.stream","orders"],...]}

It keeps no position: what was committed since the lease's last checkpoint comes again after a crash, and a reader
drops it by its `kinesis.*` headers. A commit is a write and a sync; a line that a crash left half done is cut off when
the file is opened again, because nothing of it was acked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import trio

from efo.model import Batch, Record
from efo_service.relay.errors import SinkLockedError, os_errors
from efo_service.relay.log.catalog import lock
from efo_service.relay.log.fencing import sync_directory
from efo_service.relay.mapping import Extractor, RecordMapping
from efo_service.relay.write_buffer import WriteBuffer, check_refusals

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

Encoding = Literal["base64", "utf-8"]
"""How a value stands in JSON: base64 takes any bytes; utf-8 can be read, and refuses what is not UTF-8."""

_CUT_BLOCK: Final = 64 * 1024


class Line(msgspec.Struct, frozen=True):
    """One line. Bytes are written in base64."""

    key: str
    value: str | bytes
    timestamp: int
    headers: list[tuple[str, str | None]]


_encode = msgspec.json.Encoder().encode


def line(record: Record, mapping: RecordMapping, encoding: Encoding) -> bytes:
    """Return a record's line. Raises UnicodeDecodeError if it is not of this encoding, SinkError."""
    message = mapping.message(record)
    value = message.value if encoding == "base64" else message.value.decode()
    headers = [(name, None if content is None else content.decode()) for name, content in message.headers]
    return _encode(Line(message.key.decode(), value, message.timestamp, headers)) + b"\n"


# --- where lines go ------------------------------------------------------------------------------------


class _Output:
    """A file that only grows, or stdout. Blocking: made to run in a thread, one call at a time."""

    def __init__(self, descriptor: int, path: Path, *, is_file: bool) -> None:
        self._descriptor = descriptor
        self._path = path
        self._is_file = is_file
        self._end = os.lseek(descriptor, 0, os.SEEK_END) if is_file else 0

    def append(self, content: bytes) -> None:
        """Write whole lines, those of a file durably. Raises SinkFullError, SinkError; a file is as before then."""
        with os_errors("write", self._path):
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
                if self._is_file:
                    os.fdatasync(self._descriptor)
            except OSError:
                if self._is_file:
                    os.ftruncate(self._descriptor, self._end)
                raise
        self._end += len(content)


@contextmanager
def _open_output(path: Path | None) -> Iterator[_Output]:
    """Open the file, alone and cut to its whole lines; stdout without a path. Raises SinkLockedError, SinkError."""
    if path is None:
        yield _Output(sys.stdout.fileno(), Path("stdout"), is_file=False)
        return
    with ExitStack() as stack:
        with os_errors("open", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                file = stack.enter_context(lock(path, wait=False))
            except BlockingIOError as error:
                raise SinkLockedError(
                    f"{path} is open in another writer: give each worker a file of its own"
                ) from error
            sync_directory(path.parent)
            os.ftruncate(file.fileno(), _whole_lines(path))
            output = _Output(file.fileno(), path, is_file=True)
        yield output


def _whole_lines(path: Path) -> int:
    """Return how many bytes of a file are whole lines."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _CUT_BLOCK)
            file.seek(start)
            if (newline := file.read(end - start).rfind(b"\n")) >= 0:
                return start + newline + 1
            end = start
    return 0


# --- the sink ------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_json_lines(
    path: Path | None, *, encoding: Encoding = "base64", extract: Extractor | None = None
) -> AsyncIterator[JsonLinesSink]:
    """Open a file for lines, or stdout without a path. `extract`: see RecordMapping.

    Raises SinkLockedError if another writer has the file, SinkError.
    """
    with _open_output(path) as output:
        yield JsonLinesSink(output, encoding, extract)


class JsonLinesSink:
    """All shards' lines into one output. Made by `open_json_lines`."""

    def __init__(self, output: _Output, encoding: Encoding, extract: Extractor | None) -> None:
        self._output = output
        self._encoding = encoding
        self._extract = extract
        self._alone = trio.Lock()

    def open(self, stream: str, shard_id: str) -> AbstractAsyncContextManager[JsonLinesShardSink]:
        """Open a shard's way in."""
        return self._open(RecordMapping(stream, shard_id, self._extract))

    @asynccontextmanager
    async def _open(self, mapping: RecordMapping) -> AsyncIterator[JsonLinesShardSink]:
        shard_sink = JsonLinesShardSink(mapping, self._encoding, self._append)
        try:
            yield shard_sink
        finally:
            shard_sink.close()

    async def _append(self, content: bytes) -> None:
        async with self._alone:
            await trio.to_thread.run_sync(self._output.append, content)


class JsonLinesShardSink:
    """One shard's way in; see ShardSink."""

    position = None

    def __init__(self, mapping: RecordMapping, encoding: Encoding, append: Callable[[bytes], Awaitable[None]]) -> None:
        self._mapping = mapping
        self._encoding = encoding
        self._append = append
        self._group = WriteBuffer()

    @property
    def pending_records(self) -> int:
        """How many records are in the open group."""
        return len(self._group.records)

    @property
    def pending_bytes(self) -> int:
        """How many bytes of keys (in characters) and values are in the open group."""
        return self._group.size

    def refusal(self, record: Record) -> str | None:
        """Return why a record cannot be written: only bytes that are not UTF-8, and only in this encoding."""
        if self._encoding == "utf-8":
            try:
                record.data.decode()
            except UnicodeDecodeError as error:
                return f"its value is not UTF-8: {error.reason} at byte {error.start}"
        return None

    def write(self, batch: Batch) -> None:
        """Take a batch into the open group. Raises RecordRefusedError, SinkOrderError, SinkClosedError."""
        check_refusals(self, batch)
        self._group.add(batch)

    async def commit(self) -> None:
        """Write the open group's lines, those of a file durably. Raises SinkFullError, SinkError."""
        records = self._group.take()
        if not records:
            return
        try:
            await self._append(b"".join(line(record, self._mapping, self._encoding) for record in records))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop what was not committed."""
        self._group.close()
