"""The log on an object store as a sink: each commit of a shard is one object, which has the position (rule R12)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from efo.model import Checkpoint, Record
from efo_service.log.objects.writer import ObjectPartitionWriter, open_partition
from efo_service.log.sink import HEADER, ROW, part_of
from efo_service.relay.errors import CLOSED, SinkClosedError
from efo_service.relay.mapping import Extractor
from efo_service.relay.object_store.store import Store
from efo_service.relay.record_size import RecordSize
from efo_service.relay.sink import Part, closed_by_failure

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")

RunBlocking = Callable[[Callable[[], T]], Awaitable[T]]
"""Runs a blocking function, and returns what it returns."""

PARALLEL_COMMITS: Final = 32
"""How many shards may commit at once: a commit waits for the network, not for a processor or a disk."""


def _never() -> None:
    """Is never cancelled."""


class ObjectLogSink:
    """Writes records to one topic of a log on an object store, with a partition for each shard.

    `clock`: wall clock, seconds since the epoch; nothing depends on it but what is shown. `extract`: returns trace
    contexts (RecordMapping). `run_blocking`: runs the calls; None: in threads. A call is never abandoned: a
    cancellation takes effect when it ends, at the latest after the timeout of the store.
    """

    def __init__(
        self,
        store: Store,
        topic: str,
        *,
        clock: Callable[[], float] = time.time,
        extract: Extractor | None = None,
        run_blocking: RunBlocking[Any] | None = None,
    ) -> None:
        self._created_at: float | None = None
        self._store = store
        self._topic = topic
        self._clock = clock
        self._extract = extract
        # A thread of trio can ask whether its task was cancelled.
        self._check_cancelled = trio.from_thread.check_cancelled if run_blocking is None else _never
        self._run_blocking = run_blocking or partial(
            trio.to_thread.run_sync, limiter=trio.CapacityLimiter(PARALLEL_COMMITS)
        )

    def identify(self, created_at: float | None) -> None:
        """Note when the stream was created, see `Identified`."""
        self._created_at = created_at

    def open(
        self, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AbstractAsyncContextManager[ObjectShardSink]:
        """Open a shard's partition, fence its earlier writers, and recover its position.

        Entering raises StreamRecreatedError if the topic belongs to a former stream of this name, LogIncompleteError if
        a part of the log is gone, or if the checkpoint of the lease is a record's and the shard has no partition,
        SegmentCorruptError, LogOwnerError, LogVersionError, StoreUnavailableError,
        StoreDeniedError and SinkError.
        """
        return self._open(stream, shard_id, checkpoint)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str, checkpoint: Checkpoint) -> AsyncIterator[ObjectShardSink]:
        opening = partial(
            open_partition,
            self._store,
            self._topic,
            stream,
            shard_id,
            self._clock,
            self._extract,
            checkpoint=checkpoint,
            created_at=self._created_at,
            check_cancelled=self._check_cancelled,
        )
        shard_sink = ObjectShardSink(await self._run_blocking(opening), self._run_blocking)
        try:
            yield shard_sink
        finally:
            shard_sink.close()


class ObjectShardSink:
    """The log, opened for one shard; see ShardSink."""

    refusal = None

    def __init__(self, writer: ObjectPartitionWriter, run_blocking: RunBlocking[Any]) -> None:
        self._writer = writer
        self._run_blocking = run_blocking
        self._size = RecordSize(writer.mapping, record=ROW + len(writer.topic), header=HEADER)
        self._pending: Sequence[Part] = ()
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
        """Return the columns of some records, and how many bytes they have before their compression."""
        return part_of(records, self._writer.mapping, self._size)

    async def commit(self, parts: Sequence[Part]) -> None:
        """Make parts durable. After StoreUnavailableError it can be repeated: it looks what became of the first call.

        Raises SinkFencedError if another writer has opened the partition since, StoreUnavailableError,
        StoreDeniedError and SinkError.
        """
        if self._is_closed:
            raise SinkClosedError(CLOSED)
        with closed_by_failure(self.close):
            if self._pending != parts:
                await self._run_blocking(partial(self._writer.prepare, [part.content for part in parts]))
                self._pending = parts
            await self._run_blocking(self._writer.commit)
        self._pending = ()

    def close(self) -> None:
        """Close it. Nothing has to be released."""
        self._is_closed = True
