"""One shard as its reader on asyncio sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Self

import trio

from efo.adapters.calls import SIDE, outside
from efo.aio.loop_side import LoopSide
from efo.consumer.in_flight import check_delivered, check_index, record_index
from efo.consumer.shard_stream import ShardStream as TrioShardStream
from efo.exception_groups import collapse_groups
from efo.model import Batch, Checkpoint, Record
from efo.settings import PositionLike

ShardReader = Callable[["ShardStream"], Awaitable[None]]
"""An async function for asyncio that reads one shard until its iteration ends, and acks what it has processed."""


class ShardStream:
    """The batches of one shard, in order, after its checkpoint. Made by `Consumer.run`, one for each shard.

    It is `efo.ShardStream` for asyncio: `async for batch in shard`, then `shard.ack(batch)`.
    """

    def __init__(self, shard: TrioShardStream, side: LoopSide) -> None:
        self._shard = shard
        self._side = side
        self._deliver: Callable[[Batch | Exception | None], object] | None = None  # in the trio thread
        self._wanted = trio.Event()
        self._demand = Demand(side, self._ask)
        self._has_ended = False

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._shard.stream

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._shard.shard_id

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the lease, or of the last seek, after which it reads."""
        return self._shard.checkpoint

    @property
    def millis_behind_latest(self) -> int | None:
        """How far the last event was behind the tip of the shard, in milliseconds; None before the first."""
        return self._shard.millis_behind_latest

    @property
    def is_finished(self) -> bool:
        """Whether the shard was read to its end, and not merely drained."""
        return self._shard.is_finished

    @property
    def is_draining(self) -> bool:
        """Whether the iteration ends before the next batch because the consumer drains."""
        return self._shard.is_draining

    @property
    def is_paused(self) -> bool:
        """Whether the shard is paused."""
        return self._shard.is_paused

    def is_wanted(self, batch: Batch) -> bool:
        """Return whether this batch is still to be processed: no seek came since, and the consumer does not drain."""
        return self._shard.is_wanted(batch)

    def process_span(self, batch: Batch) -> AbstractContextManager[object]:
        """Return a context in which the span of the processing of this batch is current."""
        return self._shard.process_span(batch)

    # --- where to read, and whether: in the trio thread, in the order of the calls ----------------------------------

    def seek(self, to: Checkpoint | PositionLike) -> None:
        """Continue after this checkpoint or at this position: see `efo.ShardStream.seek`, also for what it raises."""
        self._side.call(self._shard.seek, to)

    def pause(self) -> None:
        """Deliver no more batches until `resume`."""
        self._side.post(self._shard.pause)

    def resume(self) -> None:
        """Continue after `pause`, without loss or repetition."""
        self._side.post(self._shard.resume)

    def drain(self) -> None:
        """End the iteration before the next batch."""
        self._side.post(self._shard.drain)

    # --- acks -------------------------------------------------------------------------------------------------------

    def ack(self, batch: Batch) -> None:
        """Ack this batch: all its records are done. Batches before it are acked by acks of their own.

        All acks raise ConfigurationError for a batch or record that this shard did not deliver.
        """
        check_delivered(self._shard, batch)
        self._side.post(self._shard.ack, batch)

    def ack_record(self, batch: Batch, record: Record) -> None:
        """Ack this record of the batch. The checkpoint does not pass earlier records that are not acked."""
        self.ack_records(batch, [record_index(batch, record)])

    def ack_records(self, batch: Batch, indexes: Iterable[int]) -> None:
        """Ack these records of the batch, by their indexes. Earlier records are acked by acks of their own."""
        check_delivered(self._shard, batch)
        indexes = [*indexes]
        for index in indexes:
            check_index(batch, index)
        self._side.post(self._shard.ack_records, batch, indexes)

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        """Ack everything up to and including this batch, or up to and including its record of this index."""
        check_delivered(self._shard, batch)
        if index is not None:
            check_index(batch, index)
        self._side.post(self._shard.ack_through, batch, index)

    # --- the iteration ----------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        while not self._has_ended:
            batch = await self._demand.next()
            if batch is None:
                self._has_ended = True
            elif self.is_wanted(batch) or self.is_draining:
                return batch  # otherwise a seek came while it was on its way
        raise StopAsyncIteration

    # --- in the trio thread -----------------------------------------------------------------------------------------

    def _ask(self, deliver: Callable[[Batch | Exception | None], object]) -> None:
        self._deliver = deliver
        self._wanted.set()

    async def pump(self) -> None:
        """Read a batch whenever one is wanted. An error of the shard is raised where the application iterates."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            assert self._deliver is not None  # noqa: S101 - set by `_ask`
            try:
                self._deliver(await anext(self._shard, None))
            except Exception as error:  # noqa: BLE001 - the reader raises it
                self._deliver(error)


def trio_reader(read: ShardReader) -> Callable[[TrioShardStream], Awaitable[None]]:
    """Return a reader for the trio consumer that calls a reader on asyncio."""
    call = outside(read)

    async def read_shard(shard: TrioShardStream) -> None:
        side: Any = SIDE.get()
        stream = ShardStream(shard, side)
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.pump)
                await call(stream)
                nursery.cancel_scope.cancel()

    return read_shard


Ask = Callable[[Callable[["Batch | Exception | None"], object]], object]
"""Asks for the next batch, in the trio thread, and passes on whom to give it to. None: the iteration has ended."""


class Demand:
    """Takes batches from the trio thread, one for each demand. The next demand gets what a cancelled one missed."""

    def __init__(self, side: LoopSide, ask: Ask) -> None:
        self._side = side
        self._ask = ask
        self._answer: asyncio.Future[Batch | Exception | None] | None = None

    async def next(self) -> Batch | None:
        """Return the next batch; None at the end. Raises what ended the iteration."""
        if self._answer is None:
            self._answer = self._side.loop.create_future()
            self._side.post(self._ask, self._deliver)
        await asyncio.shield(self._answer)  # a cancelled demand leaves it for the next one
        answer, self._answer = self._answer.result(), None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self, error: Exception | None = None) -> None:
        """Answer the demand that waits, in the loop's thread: no more batches will come."""
        self._set(error)

    def _deliver(self, batch: Batch | Exception | None) -> None:
        self._side.post_to_loop(self._set, batch)

    def _set(self, answer: Batch | Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
