"""The log on an object store as a sink: each commit of a shard is one object, which has the position (rule R12)."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from efo.model import Batch, Checkpoint, Record
from efo_service.relay.doubt import Doubt
from efo_service.relay.errors import SinkError
from efo_service.relay.log.columns.buffer import ColumnBuffer
from efo_service.relay.mapping import Extractor
from efo_service.relay.object_log.writer import PartitionWriter, open_partition
from efo_service.relay.object_store.store import Store
from efo_service.relay.retrying import OnRecovery, OnRetry

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")

RunBlocking = Callable[[Callable[[], T]], Awaitable[T]]
"""Runs a blocking function, and returns what it returns."""

PARALLEL_COMMITS: Final = 32
"""How many shards may commit at once: a commit waits for the network, not for a processor or a disk."""
RETRY_SECONDS: Final = 300.0
"""Seconds to wait for a store that does not answer, or asks to come back later."""
_INTERVALS: Final = (0.2, 20.0)
"""The first and the longest time between two tries, in seconds. Half of each is random."""


def _never() -> None:
    """Is never cancelled."""


class ObjectLogSink:
    """Writes records to one topic of a log on an object store, with a partition for each shard.

    `clock`: wall clock, seconds since the epoch; nothing depends on it but what is shown. `extract`: returns trace
    contexts (RecordMapping). `on_retry`: called before each retry. `on_recovery`: see OnRecovery. Calls that are not
    answered are retried for `retry_seconds`. `run_blocking`: runs the calls; None: in threads. A call is never
    abandoned: a cancellation takes effect when it ends, at the latest after the timeout of the store.
    """

    def __init__(
        self,
        store: Store,
        topic: str,
        *,
        clock: Callable[[], float] = time.time,
        retry_seconds: float = RETRY_SECONDS,
        extract: Extractor | None = None,
        on_retry: OnRetry = lambda _shard_id, _error, _seconds: None,
        on_recovery: OnRecovery = lambda _shard_id: None,
        run_blocking: RunBlocking[Any] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._created_at: float | None = None
        self._store = store
        self._topic = topic
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._extract = extract
        self._on_retry = on_retry
        self._on_recovery = on_recovery
        self._rng = rng or random.Random()  # noqa: S311 - not used for security
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
        SegmentCorruptError, LogOwnerError, LogVersionError, StoreUnavailableError after `retry_seconds`,
        StoreDeniedError and SinkError.
        """
        return self._open(stream, shard_id, checkpoint)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str, checkpoint: Checkpoint) -> AsyncIterator[ObjectShardSink]:
        retry = partial(self._retried, shard_id)
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
        shard_sink = ObjectShardSink(await retry(opening), retry, self._run_blocking)
        try:
            yield shard_sink
        finally:
            shard_sink.close()

    async def _retried(self, shard_id: str, call: Callable[[], T]) -> T:
        """Make a blocking call until it is answered. It looks by itself what became of an earlier one."""
        deadline, doubt = trio.current_time() + self._retry_seconds, Doubt()
        interval, longest = _INTERVALS
        has_failed = False
        while True:
            try:
                result: T = await self._run_blocking(call)
            except SinkError as error:
                now = trio.current_time()
                if doubt.is_final(error, now) or (error.retryable and now >= deadline):
                    raise
                seconds = interval * (0.5 + self._rng.random() / 2)
                has_failed = True
                self._on_retry(shard_id, doubt.shown(error), seconds)
            else:
                if has_failed:
                    self._on_recovery(shard_id)
                return result
            await trio.sleep(seconds)
            interval = min(2 * interval, longest)


class ObjectShardSink:
    """The log, opened for one shard; see ShardSink. Once it is closed, `write` and `commit` raise SinkClosedError.

    A commit that fails or is cancelled closes it. Open it again to find out what is durable.
    """

    def __init__(
        self,
        writer: PartitionWriter,
        retry: Callable[[Callable[[], None]], Awaitable[None]],
        run_blocking: RunBlocking[Any],
    ) -> None:
        self._writer = writer
        self._retry = retry
        self._run_blocking = run_blocking
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
        """How many bytes of Arrow columns a commit of the write buffer has, before their compression."""
        return self._buffer.size

    def size(self, records: Sequence[Record]) -> int:
        """Return how many bytes some records have, headers included, before their compression."""
        return self._buffer.size_of(records)

    def refusal(self, record: Record) -> str | None:  # noqa: ARG002 - the protocol requires it
        """Return None: the log can write every record of Kinesis."""
        return None

    def write(self, batch: Batch) -> None:
        """Add a batch to the write buffer. Raises SinkOrderError and SinkClosedError."""
        self._buffer.add(batch)

    async def commit(self) -> None:
        """Make the write buffer durable. More batches can be written meanwhile; only one commit may run at a time.

        Raises SinkFencedError if another writer has opened the partition since, StoreUnavailableError after the
        retries, StoreDeniedError and SinkError.
        """
        parts = self._buffer.take()
        if not parts:
            return
        try:
            await self._run_blocking(partial(self._writer.prepare, parts))
            await self._retry(self._writer.commit)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it. Nothing has to be released."""
        self._buffer.close()
