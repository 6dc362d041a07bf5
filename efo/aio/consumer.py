"""The consumers behind the asyncio surface: by a reader, or as one iteration over all shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident
from typing import Self

from efo.adapters.consumer import AdaptedReading, C, StreamConsumer
from efo.adapters.engine import Engine, Run
from efo.adapters.opening import AdaptedStreams, Clients
from efo.aio.loop_side import LoopSide, outcome_of
from efo.aio.shard_stream import ShardReader, trio_reader
from efo.checks import check_async
from efo.consumer.consumer import Consumer as TrioConsumer
from efo.consumer.handlers.handler import Handler
from efo.consumer.handlers.misuse import check_no_handler, check_surface
from efo.consumer.handlers.processor import ProcessorReader
from efo.consumer.shard_task import ShardReader as TrioReader
from efo.consumer.streams.consumer import MultiStreamConsumer as TrioMultiStreamConsumer
from efo.model import Batch


class LoopReading(AdaptedReading[C]):
    """Reads shards on asyncio.

    Either `await consumer.run(reader)`, or iterate over it: `async for batch in consumer`, then `consumer.ack(batch)`.
    """

    def __init__(self, engine: Engine[C], side: LoopSide) -> None:
        super().__init__(engine)
        self._side = side
        self._iteration: Run[None] | None = None
        self._merge.on_change = self._notify
        self._changed = asyncio.Event()
        self._is_waiting = False
        self._has_ended = False
        self._thread = get_ident()

    async def run(self, reader: ShardReader | Handler | ProcessorReader) -> None:
        """Read shards until `drain`: as `efo.Consumer.run`, with a reader that runs on asyncio.

        `reader`: an async function of an `efo.aio.ShardStream`, an `efo.aio.Handler` or an `efo.aio.ProcessorReader`.
        A cancellation cancels the reader's tasks, waits until they have ended, and saves what was acked.
        """
        on_trio: TrioReader
        if isinstance(reader, Handler | ProcessorReader):
            check_surface(reader, "efo.aio")
            on_trio = reader.__call__
        else:
            check_async(reader, "reader", "shard")
            check_no_handler(reader, "efo.aio")
            on_trio = trio_reader(reader)
        run = self._claim(Run[None](self._engine.post))
        self._engine.begin(run, self._engine.value.run, on_trio)
        await outcome_of(run)

    def __aiter__(self) -> Self:
        """Iterate over the batches of all shards. It ends when the consumer drains, and may be continued."""
        return self

    async def __anext__(self) -> Batch:
        self._side.check_process()
        iteration = self._iteration or self._begin()
        await asyncio.sleep(0)  # other tasks of the loop run between two batches
        while not self._has_ended:
            if (batch := self._merge.take()) is not None:
                self._merge.taking[self._thread] = None
                return batch
            if self._merge.has_ended or iteration.ended.done():
                self._has_ended = True
                if iteration.ended.done():
                    iteration.ended.result()
            else:
                await self._wait_unless(lambda: self._merge.is_ready or iteration.ended.done())
        raise StopAsyncIteration

    def _begin(self) -> Run[None]:
        self._iteration = self._claim(Run[None](self._engine.post))
        self._engine.begin(self._iteration, self._engine.value.run, self._merge.read)
        self._iteration.ended.add_done_callback(lambda _ended: self._notify())
        return self._iteration

    async def _wait_unless(self, is_ready: Callable[[], bool]) -> None:
        """Wait for a notice, unless something is ready. It may end early."""
        self._changed.clear()
        self._is_waiting = True  # before the look: whoever makes something ready afterwards notifies
        if not is_ready():
            await self._changed.wait()

    def _notify(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._side.post_to_loop(self._changed.set)


class Consumer(LoopReading[TrioConsumer], StreamConsumer):
    """Reads the shards whose leases this worker holds, for asyncio. Made by `efo.aio.open_consumer`.

    Either `await consumer.run(reader)`, or iterate over it: `async for batch in consumer`, then `consumer.ack(batch)`.
    """

    def __init__(self, engine: Engine[TrioConsumer], side: LoopSide) -> None:
        LoopReading.__init__(self, engine, side)
        StreamConsumer.__init__(self, side, self._merge, engine.value)


class MultiStreamConsumer(LoopReading[TrioMultiStreamConsumer], AdaptedStreams):
    """Reads many streams, for asyncio: `efo.MultiStreamConsumer`. Made by `efo.aio.open_streams`.

    Run it or iterate over it as over a consumer of one stream. `batch.stream` is the name of its stream.
    """

    def __init__(self, engine: Engine[TrioMultiStreamConsumer], side: LoopSide, clients: Clients) -> None:
        super().__init__(engine, side)
        self._clients = clients
