"""The embedded log as a sink: each commit of a shard is one segment, and the position is in it (rule R12)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from efo.model import Batch, Checkpoint, Record
from efo_service.relay.errors import SinkError, SinkFullError, SinkLockedError
from efo_service.relay.log.partition_writer import PartitionWriter, open_partition
from efo_service.relay.mapping import Extractor
from efo_service.relay.retrying import Tell
from efo_service.relay.write_buffer import WriteBuffer

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")

PARALLEL_COMMITS: Final = 8
"""How many shards may commit at once: enough to keep a disk's queue busy, few enough to leave it usable."""


LOCK_PATIENCE: Final = 30.0
"""Seconds to wait for another writer to let go of a partition, at the least: it needs the fail-over time at most."""
_LOCK_INTERVAL: Final = 0.1
FULL_PATIENCE: Final = 300.0
"""Seconds to wait for room on a full disk: many passes of the upkeep, which removes what has expired meanwhile."""
_FULL_INTERVALS: Final = (1.0, 30.0)
"""Seconds between two tries, at first and at most: each writes the whole group, and the upkeep needs the disk too."""


class LogSink:
    """Puts records into the embedded log, one topic of it, a partition per shard.

    `root`: the log's directory, made if need be. `clock`: wall clock, seconds since the epoch. `lock_patience`: how
    long to wait for another writer of a partition, in seconds. `extract`: finds trace contexts (RecordMapping). `tell`:
    told of each time that the disk is full. It is tried again for FULL_PATIENCE.
    """

    def __init__(
        self,
        root: Path,
        topic: str,
        *,
        clock: Callable[[], float] = time.time,
        lock_patience: float = LOCK_PATIENCE,
        extract: Extractor | None = None,
        tell: Tell = lambda _shard_id, _error, _seconds: None,
    ) -> None:
        self._extract = extract
        self._tell = tell
        self.lock_patience = lock_patience
        self._root = root
        self._topic = topic
        self._clock = clock
        self._threads = trio.CapacityLimiter(PARALLEL_COMMITS)

    def open(self, stream: str, shard_id: str) -> AbstractAsyncContextManager[LogShardSink]:
        """Open a shard's partition, alone, and recover its position.

        Entering raises SinkLockedError if another writer has it, SegmentCorruptError, LogOwnerError,
        LogVersionError, SinkFullError, SinkError.
        """
        return self._open(stream, shard_id)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str) -> AsyncIterator[LogShardSink]:
        room = _Room(partial(self._tell, shard_id))
        writer = await room.wait_for(partial(self._open_patiently, stream, shard_id))
        shard_sink = LogShardSink(writer, self._threads, room)
        try:
            yield shard_sink
        finally:
            shard_sink.close()

    async def _open_patiently(self, stream: str, shard_id: str) -> PartitionWriter:
        """Open the partition; wait for a writer that has lost the shard and does not know it yet.

        It finds out at its next renewal of the lease, and lets go. One that still writes after `lock_patience` is
        no such writer.
        """
        deadline = trio.current_time() + self.lock_patience
        while True:
            try:
                return await trio.to_thread.run_sync(
                    open_partition,
                    self._root,
                    self._topic,
                    stream,
                    shard_id,
                    self._clock,
                    self._extract,
                    limiter=self._threads,
                )
            except SinkLockedError:
                if trio.current_time() >= deadline:
                    raise
            await trio.sleep(_LOCK_INTERVAL)


class _Room:
    """Waits for room on a full disk: nothing was written then, so that the same can be tried again."""

    def __init__(self, tell: Callable[[SinkError, float], None]) -> None:
        self._tell = tell

    async def wait_for(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something that writes until there is room for it. Raises SinkFullError after FULL_PATIENCE."""
        deadline = trio.current_time() + FULL_PATIENCE
        interval, longest = _FULL_INTERVALS
        while True:
            try:
                return await work()
            except SinkFullError as error:
                if trio.current_time() >= deadline:
                    raise
                self._tell(error, interval)
            await trio.sleep(interval)
            interval = min(2 * interval, longest)


class LogShardSink:
    """One shard's way into the log. See ShardSink; every method raises SinkClosedError once it is closed.

    A commit that fails or is cancelled closes it: what is durable then, only opening it again can tell.
    """

    def __init__(self, writer: PartitionWriter, threads: trio.CapacityLimiter, room: _Room) -> None:
        self._writer = writer
        self._threads = threads
        self._room = room
        self._group = WriteBuffer(writer.position)

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position of the last record that is durable."""
        return self._writer.position

    @property
    def end_offset(self) -> int:
        """The offset that the next committed record gets."""
        return self._writer.end

    @property
    def pending_records(self) -> int:
        """How many records are in the open group."""
        return len(self._group.records)

    @property
    def pending_bytes(self) -> int:
        """How many bytes of keys (in characters) and values are in the open group."""
        return self._group.size

    def refusal(self, record: Record) -> str | None:  # noqa: ARG002 - it takes any
        """Return None: what Kinesis took, the log takes."""
        return None

    def write(self, batch: Batch) -> None:
        """Take a batch into the open group. Raises SinkOrderError, SinkClosedError."""
        self._group.add(batch)

    async def commit(self) -> None:
        """Make the open group durable. The next group may be written meanwhile; one commit at a time.

        Raises SinkFullError, SinkError.
        """
        records = self._group.take()
        if not records:
            return

        async def append() -> None:
            await trio.to_thread.run_sync(self._writer.append, records, limiter=self._threads)

        try:
            await self._room.wait_for(append)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the partition free."""
        if not self._group.is_closed:
            self._group.close()
            self._writer.close()
