"""The embedded log as a sink: each commit of a shard writes one segment, which contains the position (rule R12)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from efo.model import Checkpoint, Record
from efo.retrying import retry
from efo_service.log.columns.layout import columns_of
from efo_service.log.partition_writer import PartitionWriter, open_partition
from efo_service.relay.errors import CLOSED, SinkClosedError, SinkLockedError
from efo_service.relay.mapping import Extractor, RecordMapping
from efo_service.relay.record_size import RecordSize
from efo_service.relay.sink import Part, closed_by_failure

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")

RunBlocking = Callable[[Callable[[], T]], Awaitable[T]]
"""Runs a blocking function, and returns what it returns."""

PARALLEL_COMMITS: Final = 8
"""How many shards may commit at once: enough to keep a disk busy, few enough to leave it responsive."""

IN_LOOP_BYTES: Final = 16 * 1024 * 1024
"""A commit of up to so many bytes is laid out by the event loop, in some milliseconds. In a thread, which needs the
interpreter's lock for it, it slows the reading down by more than it takes."""
LOCK_TIMEOUT: Final = 30.0
"""Minimum seconds to wait for another writer to release a partition. It needs at most the fail-over time."""
_LOCK_INTERVAL: Final = 0.1
ROW: Final = 40
"""Bytes of a row besides key, value, topic and headers: two integers of 8, two of 4 and four offsets of 4."""
HEADER: Final = 8
"""Bytes of a header besides its name and value: two offsets of 4."""


class LogSink:
    """Writes records to one topic of the embedded log, with a partition for each shard.

    `root`: the log's directory; it is created if missing. `clock`: wall clock, seconds since the epoch.
    `lock_timeout`: how long to wait for another writer of a partition, in seconds. `extract`: returns trace contexts
    (RecordMapping). `run_blocking`: runs the work on files; None: in threads.
    """

    def __init__(
        self,
        root: Path,
        topic: str,
        *,
        clock: Callable[[], float] = time.time,
        lock_timeout: float = LOCK_TIMEOUT,
        extract: Extractor | None = None,
        run_blocking: RunBlocking[Any] | None = None,
    ) -> None:
        self._created_at: float | None = None
        self._extract = extract
        self.lock_timeout = lock_timeout
        self._root = root
        self._topic = topic
        self._clock = clock
        self._run_blocking = run_blocking or partial(
            trio.to_thread.run_sync, limiter=trio.CapacityLimiter(PARALLEL_COMMITS)
        )

    def identify(self, created_at: float | None) -> None:
        """Note when the stream was created, see `Identified`."""
        self._created_at = created_at

    def open(
        self, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AbstractAsyncContextManager[LogShardSink]:
        """Lock and open a shard's partition, and recover its position.

        Entering raises StreamRecreatedError if the topic belongs to a former stream of this name, SinkLockedError if
        another writer has the partition open, LogIncompleteError if the partition was emptied, or if the checkpoint of
        the lease is a record's and the shard has no partition, SegmentCorruptError, LogOwnerError, LogVersionError,
        SinkFullError and SinkError.
        """
        return self._open(stream, shard_id, checkpoint)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str, checkpoint: Checkpoint) -> AsyncIterator[LogShardSink]:
        opening = partial(
            open_partition,
            self._root,
            self._topic,
            stream,
            shard_id,
            self._clock,
            self._extract,
            checkpoint=checkpoint,
            created_at=self._created_at,
        )
        shard_sink = LogShardSink(await self._open_when_unlocked(opening), self._run_blocking)
        try:
            yield shard_sink
        finally:
            shard_sink.close()

    async def _open_when_unlocked(self, opening: Callable[[], PartitionWriter]) -> PartitionWriter:
        """Open the partition; wait for a writer that has lost the shard and has not noticed yet.

        It notices at its next renewal of the lease, and releases the partition. If the partition is still locked after
        `lock_timeout`, SinkLockedError is raised.
        """
        return await retry(
            partial(self._run_blocking, opening),
            lambda: _LOCK_INTERVAL,
            seconds=self.lock_timeout,
            repeats=lambda error: isinstance(error, SinkLockedError),
        )


class LogShardSink:
    """The log, opened for one shard; see ShardSink."""

    refusal = None

    def __init__(self, writer: PartitionWriter, run_blocking: RunBlocking[Any]) -> None:
        self._writer = writer
        self._run_blocking = run_blocking
        self._size = RecordSize(writer.mapping, record=ROW + len(writer.topic), header=HEADER)
        self._is_closed = False

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position of the last durable record."""
        return self._writer.position

    @property
    def end_offset(self) -> int:
        """The offset of the next record to be committed."""
        return self._writer.end

    def prepare(self, records: Sequence[Record]) -> Part:
        """Return the columns of some records, and how many bytes of Arrow columns a commit writes for them."""
        return part_of(records, self._writer.mapping, self._size)

    async def commit(self, parts: Sequence[Part]) -> None:
        """Make parts durable. After SinkFullError it can be repeated. Raises SinkFullError and SinkError."""
        if self._is_closed:
            raise SinkClosedError(CLOSED)
        prepare = partial(self._writer.prepare, [part.content for part in parts])
        is_large = sum(part.size for part in parts) > IN_LOOP_BYTES
        with closed_by_failure(self.close):
            prepared = await self._run_blocking(prepare) if is_large else prepare()
            await self._run_blocking(partial(self._writer.commit, prepared))

    def close(self) -> None:
        """Release the partition."""
        if not self._is_closed:
            self._is_closed = True
            self._writer.close()


def part_of(records: Sequence[Record], mapping: RecordMapping, size: RecordSize) -> Part:
    """Return records as columns. `size`: of the rows."""
    columns = columns_of(records, mapping)
    headers = size.headers if columns.plain is None else size.plain_headers
    return Part(columns, len(columns.keys) + len(columns.values) + headers(records))
