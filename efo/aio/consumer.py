"""The consumers behind the asyncio surface, of one stream and of many."""

from __future__ import annotations

from efo.adapters.consumer import StreamConsumer
from efo.adapters.engine import Engine
from efo.adapters.streams import AdaptedStreams, Clients
from efo.aio.loop_side import LoopSide
from efo.aio.reading import LoopReading
from efo.consumer.consumer import Consumer as TrioConsumer
from efo.consumer.streams.consumer import MultiStreamConsumer as TrioMultiStreamConsumer


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
