"""The consumers behind the synchronous surface, of one stream and of many."""

from __future__ import annotations

from efo.adapters.consumer import StreamConsumer
from efo.adapters.engine import Engine
from efo.adapters.streams import AdaptedStreams, Clients
from efo.consumer.consumer import Consumer as TrioConsumer
from efo.consumer.streams.consumer import MultiStreamConsumer as TrioMultiStreamConsumer
from efo.sync.caller_side import CallerSide
from efo.sync.reading import CallerReading


class Consumer(CallerReading[TrioConsumer], StreamConsumer):
    """Reads the shards whose leases this worker holds, for synchronous code. Made by `efo.sync.open_consumer`.

    Iterate over it: `for batch in consumer`, then `consumer.ack(batch)`; or `consumer.run(reader)`.
    """

    def __init__(self, engine: Engine[TrioConsumer], side: CallerSide) -> None:
        CallerReading.__init__(self, engine, side)
        StreamConsumer.__init__(self, side, self._merge, engine.value)


class MultiStreamConsumer(CallerReading[TrioMultiStreamConsumer], AdaptedStreams):
    """Reads many streams, for synchronous code: `efo.MultiStreamConsumer`. Made by `efo.sync.open_streams`.

    Run it or iterate over it as over a consumer of one stream. `batch.stream` is the name of its stream.
    """

    def __init__(self, engine: Engine[TrioMultiStreamConsumer], side: CallerSide, clients: Clients) -> None:
        super().__init__(engine, side)
        self._clients = clients
