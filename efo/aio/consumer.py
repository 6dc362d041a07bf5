"""The consumer behind the asyncio door."""

from __future__ import annotations

import asyncio
from typing import Self

from efo.aio.demand import Demand
from efo.aio.loop_side import LoopSide
from efo.aio.outcome import outcome_of
from efo.aio.shard_stream import ShardReader, trio_reader
from efo.checks import check_async
from efo.consumer.consumer import Consumer as TrioConsumer
from efo.consumer.handler import Handler
from efo.consumer.processor import ProcessorReader
from efo.consumer.shard_task import ShardReader as TrioReader
from efo.doors.consumer import DoorConsumer
from efo.doors.engine import Engine, Run
from efo.model import Batch


class Consumer(DoorConsumer):
    """Reads the shards whose leases this worker holds, for asyncio. Made by `efo.aio.open_consumer`.

    Either `await consumer.run(reader)`, or iterate over it: `async for batch in consumer`, then `consumer.ack(batch)`.
    """

    def __init__(self, engine: Engine[TrioConsumer], side: LoopSide) -> None:
        super().__init__(engine)
        self._side = side
        self._iteration: Run[None] | None = None
        self._demand = Demand(side, self._merge.want)
        self._has_ended = False

    async def run(self, reader: ShardReader | Handler | ProcessorReader) -> None:
        """Read shards until `drain`: as `efo.Consumer.run`, with a reader that runs on asyncio.

        `reader`: an async function of an `efo.aio.ShardStream`, an `efo.aio.Handler` or an `efo.aio.ProcessorReader`.
        A cancellation cancels the reader's tasks, waits until they have ended, and saves what was acked.
        """
        on_trio: TrioReader
        if isinstance(reader, Handler | ProcessorReader):
            on_trio = reader
        else:
            check_async(reader, "reader", "shard")
            on_trio = trio_reader(reader)
        await outcome_of(self._engine.run(self._engine.value.run, on_trio))

    def __aiter__(self) -> Self:
        """Iterate over the batches of all shards. It ends when the consumer drains, and may be continued."""
        return self

    async def __anext__(self) -> Batch:
        if self._iteration is None:
            self._iteration = self._engine.run(self._engine.value.run, self._merge.read)
            asyncio.wrap_future(self._iteration.ended).add_done_callback(self._end)
        batch = None if self._has_ended else await self._demand.next()
        if batch is not None:
            return batch
        if not self._has_ended:
            self._has_ended = True
            if self._iteration.ended.done():
                self._iteration.ended.result()
        raise StopAsyncIteration

    def _end(self, ended: asyncio.Future[None]) -> None:
        ended.exception()  # raised by `__anext__`
        self._demand.end()
