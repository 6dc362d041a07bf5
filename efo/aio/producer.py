"""The producer behind the asyncio surface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Unpack

from efo.adapters.opening import Stream, producer_engine
from efo.adapters.producer import AdaptedDelivery, AdaptedProducer
from efo.aio.loop_side import LoopSide, open_engine, outcome_of
from efo.event_loops import require_asyncio
from efo.producer.delivery import PutResult
from efo.producer.opening import ProducerOptions
from efo.producer.producer import ProducerRecord


class Delivery(AdaptedDelivery):
    """A record that was put: `await` it for its PutResult. Raises DeliveryError if the record was given up."""

    __slots__ = ()

    async def wait(self) -> PutResult:
        """Wait until its outcome is known, and return or raise it."""
        if not self.is_done:
            return await outcome_of(self._engine.run(self._delivery.wait))
        await asyncio.sleep(0)
        return self._outcome()

    def __await__(self) -> Generator[Any, Any, PutResult]:
        return self.wait().__await__()


class Producer(AdaptedProducer):
    """Puts records into a stream, for asyncio: `efo.Producer`. Made by `efo.aio.open_producer`.

    Each call passes from one thread to another: for many records, `put_many` costs much less than `put`.
    """

    async def put(self, data: Any, partition_key: str | None = None, explicit_hash_key: str | None = None) -> Delivery:
        """Take a record, and return its delivery. Waits only while the buffer is full: see `efo.Producer.put`."""
        put = self._engine.run(self._engine.value.put, data, partition_key, explicit_hash_key)
        return Delivery(self._engine, await outcome_of(put))

    async def put_many(self, records: Iterable[ProducerRecord[Any]]) -> list[Delivery]:
        """Take several records in order, and return their deliveries."""
        put = self._engine.run(self._engine.value.put_many, list(records))
        return [Delivery(self._engine, delivery) for delivery in await outcome_of(put)]

    async def flush(self) -> None:
        """Send everything now, and wait until all records that were put before are stored or given up."""
        await outcome_of(self._engine.run(self._engine.value.flush))


@asynccontextmanager
async def open_producer(stream: Stream, **options: Unpack[ProducerOptions]) -> AsyncIterator[Producer]:
    """Open a producer for asyncio: `efo.open_producer`, with the same arguments.

    `stream`: the stream's name or ARN, or `efo.open_kinesis(...)` as it was returned, not entered. The serializer is
    called in efo's thread. Leaving the context waits until all records are stored or given up. Raises EfoError.
    """
    require_asyncio("efo.aio.open_producer")
    engine = producer_engine(stream, options, LoopSide())
    async with open_engine(engine):
        yield Producer(engine)
