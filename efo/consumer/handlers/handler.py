"""A handler with its failure policy, as a reader of shards: what `efo.consume` runs."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import ClassVar, Final

import trio

from efo.checks import check_async, check_callable, check_count
from efo.consumer.handlers.batched import Batched, Waiting, handler_in
from efo.consumer.handlers.failure_handler import FailureHandler, HandlerResult
from efo.consumer.shard_stream import ShardStream
from efo.errors import ConfigurationError, HandlerError
from efo.events import Observer
from efo.exception_groups import collapse_groups
from efo.model import Batch, Record, checkpoint_of
from efo.protocol.failure import FailurePolicy, OnError
from efo.protocol.per_key_order import BatchSlice, PerKeyOrder
from efo.telemetry.tracing import NO_SPAN

BatchHandler = Callable[[Batch], Awaitable[HandlerResult | None]]
"""Processes a batch of user records. When it returns, the batch is acked, unless it returns HOLD."""
RecordHandler = Callable[[Record, Batch], Awaitable[HandlerResult | None]]
"""Processes one record of a batch. When it returns, the record is acked, unless it returns HOLD."""
Flush = Callable[[str], Awaitable[None]]
"""Stores what the handler holds of the shard with this id (see `HOLD`)."""

MAX_PENDING_RECORDS: Final = 10_000
MAX_PENDING_BYTES: Final = 16 * 1024 * 1024
"""With several keys at once: how many records of a shard may wait for their keys, and the bytes of the batches that
they belong to. Then the shard is not read further, so that a slow key does not fill the memory (rule R9)."""


class Handler:
    """Reads a shard by calling a handler: `await consumer.run(Handler(handle))`.

    `handler`: an async function that is called with one batch after the other, or `batched(...)`. `record_handler`
    instead of it: an async function that is called with one record after the other, and the batch that contains it.
    What they processed is acked when they return.

    `on_error`: what happens when they raise (rule R11). The default stops everything at the first failure.
    `flush`: called with a shard's id when its reading ends, if the handler holds anything.

    `key_concurrency`: how many partition keys of one shard are processed at once, each in order. With more than 1,
    `handler` gets batches of one key each, and HOLD is not possible. When the consumer drains, running calls finish and
    no new ones start. After a crash, records are processed again that were done ahead of a record that was not.

    `observer`: called with the events of failures, such as records that are skipped; by default, that of the consumer.

    Raises ConfigurationError.
    """

    surface = "efo"  # where its functions run
    _batch_parameters: ClassVar[tuple[str, ...]] = ("batch",)
    """What `handler` is called with, for messages."""

    def __init__(
        self,
        handler: BatchHandler | None = None,
        *,
        record_handler: RecordHandler | None = None,
        on_error: OnError | None = None,
        flush: Flush | None = None,
        key_concurrency: int = 1,
        observer: Observer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if (handler is None) == (record_handler is None):
            raise ConfigurationError("pass either handler, for batches, or record_handler, for single records")
        if handler is not None:
            check_async(handler_in(handler), "handler", *self._batch_parameters)
        if record_handler is not None:
            check_async(record_handler, "record_handler", "record", "batch")
        if flush is not None:
            check_async(flush, "flush", "shard_id")
        check_count("key_concurrency", key_concurrency)
        if isinstance(handler, Batched) and key_concurrency > 1:
            raise ConfigurationError("efo.batched(...) needs key_concurrency=1: its batches have records of many keys")
        if observer is not None:
            check_callable("observer", observer, "a function of an event", "event")
        on_error = FailurePolicy() if on_error is None else on_error
        if not isinstance(on_error, FailurePolicy):
            expected = "a FailurePolicy, or a function that returns one for an exception"
            check_callable("on_error", on_error, expected, "exception")
        self._limits = handler if isinstance(handler, Batched) else None
        self._handler = handler if self._limits is None else self._limits.handler
        self._record_handler = record_handler
        self._on_error = on_error
        self._flush = flush
        self._key_concurrency = key_concurrency
        self._observer = observer
        self._rng = rng or random.Random()  # noqa: S311 - jitter is no secret

    async def __call__(self, shard: ShardStream) -> None:
        """Read a shard until its iteration ends. Raises what the failure policy does not resolve."""
        if self._key_concurrency > 1:
            await self._read_by_key(shard)
            return
        if self._limits is None:
            failure_handler = self._failure_handler(shard, lambda part: shard.ack_through(part.batch, part.indexes[-1]))
            while await self._process_next(shard, failure_handler):
                pass
        else:
            failure_handler = self._failure_handler(shard, partial(_ack_to_end, shard))
            await self._read_batched(shard, failure_handler, self._limits)
        if self._flush is not None:
            await failure_handler.flush(self._flush)

    async def _read_batched(self, shard: ShardStream, failure_handler: FailureHandler, limits: Batched) -> None:
        """Process what waits whenever it is due, and at the end of the iteration what is left.

        Not while the shard is paused: if it drains then, what waits is delivered again, and was never processed.
        """
        waiting, is_last = Waiting(limits), False
        shard.overdue_after += limits.seconds
        while True:
            await shard.resumed()
            now = trio.current_time()
            batch = None if shard.is_paused else waiting.take(now, shard.is_current, is_last=is_last)
            if batch is not None:
                with shard.process_span(batch) if shard.is_traced else NO_SPAN:
                    await failure_handler.process(BatchSlice.whole(batch))
                if failure_handler.is_abandoned:
                    if shard.is_current(batch):  # it drains, and what follows must not be acked
                        return
                    failure_handler.is_abandoned = False  # after a seek, nothing that waits is current
            elif is_last:
                return
            else:
                is_last = await self._wait_for_next(shard, waiting)

    @staticmethod
    async def _wait_for_next(shard: ShardStream, waiting: Waiting) -> bool:
        """Wait for a batch, or until what waits is due; return whether the iteration has ended."""
        with trio.move_on_at(waiting.due):
            batch = await anext(shard, None)
            if batch is None:
                return True
            waiting.add(batch, trio.current_time())
        return False

    async def _process_next(self, shard: ShardStream, failure_handler: FailureHandler) -> bool:
        """Process the next batch; return whether there was one.

        No variable outside has the batch: while the next one is awaited, idle shards would hold much memory.
        """
        batch = await anext(shard, None)
        if batch is None:
            return False
        with shard.process_span(batch) if shard.is_traced else NO_SPAN:
            for part in self._slices(BatchSlice.whole(batch)):
                if not shard.is_wanted(batch):
                    break
                await failure_handler.process(part)
        return True

    async def _read_by_key(self, shard: ShardStream) -> None:
        failure_handler = self._failure_handler(shard, lambda part: shard.ack_records(part.batch, part.indexes))
        pending, room, running = PerKeyOrder(), trio.lowlevel.ParkingLot(), 0

        async def work(key_slice: BatchSlice | None) -> None:
            nonlocal running
            while key_slice is not None:
                with shard.process_span(key_slice.as_batch()) if shard.is_traced else NO_SPAN:
                    for part in self._slices(key_slice):
                        if not shard.is_wanted(key_slice.batch):
                            break
                        await failure_handler.process(part)
                        if failure_handler.held is not None:
                            raise HandlerError("the handler returned HOLD, which needs key_concurrency=1")
                pending.done(key_slice)
                room.unpark_all()
                key_slice = pending.take()
            running -= 1
            room.unpark_all()

        def is_full() -> bool:
            return pending.records >= MAX_PENDING_RECORDS or pending.size >= MAX_PENDING_BYTES

        with collapse_groups():
            async with trio.open_nursery() as nursery:
                async for batch in shard:
                    pending.add(batch)
                    while running < self._key_concurrency and (key_slice := pending.take()):
                        running += 1
                        nursery.start_soon(work, key_slice)
                    while running == self._key_concurrency or is_full():
                        await room.park()

    def _slices(self, part: BatchSlice) -> Iterable[BatchSlice]:
        """Return what the handler is called with, one after the other."""
        if self._record_handler is None:
            return (part,)
        return (BatchSlice(part.batch, (index,)) for index in part.indexes)

    def _failure_handler(self, shard: ShardStream, ack: Callable[[BatchSlice], None]) -> FailureHandler:
        return FailureHandler(
            shard, self._call, ack, on_error=self._on_error, random=self._rng.random, observer=self._observer
        )

    async def _call(self, part: BatchSlice) -> HandlerResult | None:
        if self._record_handler is not None:
            return await self._record_handler(part.first, part.batch)
        assert self._handler is not None  # noqa: S101 - the constructor requires one of the two
        return await self._handler(part.as_batch())


def _ack_to_end(shard: ShardStream, part: BatchSlice) -> None:
    """Ack everything up to the last record of a slice, whose records are those of several batches."""
    if shard.is_current(part.batch):
        shard.ack_to(checkpoint_of(part.batch.records[part.indexes[-1]]))
