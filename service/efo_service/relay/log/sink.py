"""The embedded log as a sink: each commit of a shard writes one segment, which contains the position (rule R12)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from efo.model import Batch, Checkpoint, Record
from efo_service.relay.errors import SinkError, SinkFullError, SinkLockedError
from efo_service.relay.log.columns.buffer import ColumnBuffer
from efo_service.relay.log.partition_writer import PartitionWriter, open_partition
from efo_service.relay.mapping import Extractor
from efo_service.relay.retrying import OnRecovery, OnRetry

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
DISK_FULL_TIMEOUT: Final = 300.0
"""Seconds to wait for space on a full disk. Meanwhile, many maintenance passes remove expired segments."""
_DISK_FULL_INTERVALS: Final = (1.0, 30.0)
"""The first and the longest time between two tries, in seconds. Each try writes all records of the commit again, and
maintenance needs the disk too."""


class LogSink:
    """Writes records to one topic of the embedded log, with a partition for each shard.

    `root`: the log's directory; it is created if missing. `clock`: wall clock, seconds since the epoch.
    `lock_timeout`: how long to wait for another writer of a partition, in seconds. `extract`: returns trace contexts
    (RecordMapping). `on_retry`: called each time the disk is full. `on_recovery`: see OnRecovery. Writes to a full disk
    are retried for `retry_seconds`. `run_blocking`: runs the work on files; None: in threads.
    """

    def __init__(
        self,
        root: Path,
        topic: str,
        *,
        clock: Callable[[], float] = time.time,
        lock_timeout: float = LOCK_TIMEOUT,
        retry_seconds: float = DISK_FULL_TIMEOUT,
        extract: Extractor | None = None,
        on_retry: OnRetry = lambda _shard_id, _error, _seconds: None,
        on_recovery: OnRecovery = lambda _shard_id: None,
        run_blocking: RunBlocking[Any] | None = None,
    ) -> None:
        self._created_at: float | None = None
        self._extract = extract
        self._on_retry = on_retry
        self._on_recovery = on_recovery
        self._retry_seconds = retry_seconds
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
        disk_full_retry = _DiskFullRetry(
            self._retry_seconds, partial(self._on_retry, shard_id), partial(self._on_recovery, shard_id)
        )
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
        writer = await disk_full_retry.run(partial(self._open_when_unlocked, opening))
        shard_sink = LogShardSink(writer, self._run_blocking, disk_full_retry)
        try:
            yield shard_sink
        finally:
            shard_sink.close()

    async def _open_when_unlocked(self, opening: Callable[[], PartitionWriter]) -> PartitionWriter:
        """Open the partition; wait for a writer that has lost the shard and has not noticed yet.

        It notices at its next renewal of the lease, and releases the partition. If the partition is still locked after
        `lock_timeout`, SinkLockedError is raised.
        """
        deadline = trio.current_time() + self.lock_timeout
        while True:
            try:
                return await self._run_blocking(opening)
            except SinkLockedError:
                if trio.current_time() >= deadline:
                    raise
            await trio.sleep(_LOCK_INTERVAL)


class _DiskFullRetry:
    """Retries writes while the disk is full. A failed write leaves nothing behind, so it can be repeated."""

    def __init__(
        self, seconds: float, on_retry: Callable[[SinkError, float], None], on_recovery: Callable[[], None]
    ) -> None:
        self._seconds = seconds
        self._on_retry = on_retry
        self._on_recovery = on_recovery

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat `work` until the disk has space for it. Raises SinkFullError after `seconds`."""
        deadline = trio.current_time() + self._seconds
        interval, longest = _DISK_FULL_INTERVALS
        has_failed = False
        while True:
            try:
                result = await work()
            except SinkFullError as error:
                if trio.current_time() >= deadline:
                    raise
                has_failed = True
                self._on_retry(error, interval)
            else:
                if has_failed:
                    self._on_recovery()
                return result
            await trio.sleep(interval)
            interval = min(2 * interval, longest)


class LogShardSink:
    """The log, opened for one shard; see ShardSink. Once it is closed, `write` and `commit` raise SinkClosedError.

    A commit that fails or is cancelled closes it. Open it again to find out what is durable.
    """

    def __init__(
        self, writer: PartitionWriter, run_blocking: RunBlocking[Any], disk_full_retry: _DiskFullRetry
    ) -> None:
        self._writer = writer
        self._run_blocking = run_blocking
        self._disk_full_retry = disk_full_retry
        self._buffer = ColumnBuffer(writer.mapping, writer.topic, writer.position)

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position of the last durable record."""
        return self._writer.position

    @property
    def end_offset(self) -> int:
        """The offset of the next record to be committed."""
        return self._writer.end

    @property
    def pending_records(self) -> int:
        """How many records are in the write buffer."""
        return self._buffer.rows

    @property
    def pending_bytes(self) -> int:
        """How many bytes of Arrow columns a commit of the write buffer writes."""
        return self._buffer.size

    def size(self, records: Sequence[Record]) -> int:
        """Return how many bytes are written for some records, headers included."""
        return self._buffer.size_of(records)

    def refusal(self, record: Record) -> str | None:  # noqa: ARG002 - the protocol requires it
        """Return None: the log can write every record of Kinesis."""
        return None

    def write(self, batch: Batch) -> None:
        """Add a batch to the write buffer. Raises SinkOrderError and SinkClosedError."""
        self._buffer.add(batch)

    async def commit(self) -> None:
        """Make the write buffer durable. More batches can be written meanwhile; only one commit may run at a time.

        Raises SinkFullError and SinkError.
        """
        is_large, parts = self._buffer.size > IN_LOOP_BYTES, self._buffer.take()
        if not parts:
            return
        try:
            prepare = partial(self._writer.prepare, parts)
            prepared = await self._run_blocking(prepare) if is_large else prepare()
            commit = partial(self._writer.commit, prepared)
            await self._disk_full_retry.run(partial(self._run_blocking, commit))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the partition."""
        if not self._buffer.is_closed:
            self._buffer.close()
            self._writer.close()
