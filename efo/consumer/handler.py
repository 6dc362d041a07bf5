"""A handler with a failure policy, as a reader of shards: what `efo.consume` runs."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio

from efo.consumer.failure_handler import DeadLetterSink, FailureHandler, HandlerResult, OnError
from efo.consumer.shard_stream import ShardStream
from efo.errors import ConfigurationError
from efo.events import Observer, ignore
from efo.exception_groups import collapse_groups
from efo.model import Batch, Record
from efo.protocol.batch_slice import BatchSlice
from efo.protocol.failure import FailurePolicy
from efo.protocol.per_key_order import PerKeyOrder

BatchHandler = Callable[[Batch], Awaitable[HandlerResult | None]]
"""Does what is to be done with a batch of user records. When it returns, the batch is acked, unless it says HOLD."""
RecordHandler = Callable[[Record], Awaitable[HandlerResult | None]]
"""The same for one record."""
Flush = Callable[[str], Awaitable[None]]
"""Makes safe what the handler holds of this shard (see `HOLD`)."""

BACKLOG: Final = 10_000
BACKLOG_BYTES: Final = 16 * 1024 * 1024
"""With several keys at once: how many records of one shard may wait for their keys, and how many bytes the batches may
have that they are of. Then it is not read further, so that a slow key does not fill the memory with what is behind it
(rule R9)."""


class Handler:
    """Reads a shard with a handler: `await consumer.run(Handler(handle))`.

    Either `handle`, called with one batch after the other, or `handle_record`, with one record after the other. What
    they did is acked when they return. `failures`: what happens when they raise (rule R11); the default stops
    everything at the first failure. `dead_letter`: where a policy of `then="dead_letter"` puts records.
    `flush`: called with a shard's id at the end of its reading, if the handler holds something.

    `key_concurrency`: how many partition keys of one shard are handled at once, each in order. With more than 1,
    `handle` gets batches of one key each, and HOLD is not possible. When the consumer drains no handler is called any
    more, and those that are running finish. With several keys, records that were done ahead of one that was not are
    handled again later.

    Raises ConfigurationError.
    """

    def __init__(
        self,
        handle: BatchHandler | None = None,
        *,
        handle_record: RecordHandler | None = None,
        failures: OnError | None = None,
        dead_letter: DeadLetterSink | None = None,
        flush: Flush | None = None,
        key_concurrency: int = 1,
        observer: Observer = ignore,
        rng: random.Random | None = None,
    ) -> None:
        if (handle is None) == (handle_record is None):
            raise ConfigurationError("give either a handler of batches or handle_record")
        if key_concurrency < 1:
            raise ConfigurationError(f"key_concurrency={key_concurrency}: expected 1 or more")
        failures = failures or FailurePolicy()
        if isinstance(failures, FailurePolicy) and failures.then == "dead_letter" and dead_letter is None:
            raise ConfigurationError('then="dead_letter" needs dead_letter: an async callable that keeps the record')
        self._handle = handle
        self._handle_record = handle_record
        self._failures = failures
        self._dead_letter = dead_letter
        self._flush = flush
        self._key_concurrency = key_concurrency
        self._observer = observer
        self._rng = rng or random.Random()  # noqa: S311 - jitter is no secret

    async def __call__(self, shard: ShardStream) -> None:
        """ShardReader a shard until its iteration ends. Raises what the policy does not cure."""
        if self._key_concurrency > 1:
            await self._read_by_key(shard)
        else:
            await self._read_in_order(shard)

    async def _read_in_order(self, shard: ShardStream) -> None:
        failure_handler = self._failure_handler(
            shard, lambda batch_slice: shard.ack_through(batch_slice.batch, batch_slice.indexes[-1])
        )
        async for batch in shard:
            for batch_slice in self._slices(BatchSlice.whole(batch)):
                if not shard.is_wanted(batch):
                    break
                await failure_handler.process(batch_slice)
        if self._flush is not None:
            await failure_handler.flush(self._flush)

    async def _read_by_key(self, shard: ShardStream) -> None:
        failure_handler = self._failure_handler(
            shard, lambda batch_slice: shard.ack_records(batch_slice.batch, batch_slice.indexes)
        )
        pending, room, running = PerKeyOrder(), trio.lowlevel.ParkingLot(), 0

        async def work(run: BatchSlice | None) -> None:
            nonlocal running
            while run is not None:
                for batch_slice in self._slices(run):
                    if not shard.is_wanted(run.batch):
                        break
                    await failure_handler.process(batch_slice)
                    if failure_handler.held is not None:
                        raise ConfigurationError("a handler returned HOLD: that needs key_concurrency=1")
                pending.done(run)
                room.unpark_all()
                run = pending.take()
            running -= 1
            room.unpark_all()

        with collapse_groups():
            async with trio.open_nursery() as nursery:
                async for batch in shard:
                    pending.add(batch)
                    while running < self._key_concurrency and (run := pending.take()):
                        running += 1
                        nursery.start_soon(work, run)
                    while (
                        running == self._key_concurrency or pending.records >= BACKLOG or pending.size >= BACKLOG_BYTES
                    ):
                        await room.park()

    def _slices(self, batch_slice: BatchSlice) -> Iterator[BatchSlice]:
        """Return what the handler is called with, one after the other."""
        if self._handle_record is None:
            yield batch_slice
        else:
            for index in batch_slice.indexes:
                yield BatchSlice(batch_slice.batch, (index,))

    def _failure_handler(self, shard: ShardStream, ack: Callable[[BatchSlice], None]) -> FailureHandler:
        return FailureHandler(
            shard,
            self._call,
            ack,
            failures=self._failures,
            dead_letter=self._dead_letter,
            random=self._rng.random,
            observer=self._observer,
        )

    async def _call(self, batch_slice: BatchSlice) -> HandlerResult | None:
        if self._handle_record is not None:
            return await self._handle_record(batch_slice.first)
        assert self._handle is not None  # noqa: S101 - it is one or the other
        return await self._handle(batch_slice.as_batch())
