"""The producer behind the synchronous surface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Unpack

from efo.adapters.opening import Stream, producer_engine
from efo.adapters.producer import AdaptedDelivery, AdaptedProducer
from efo.producer.delivery import PutResult
from efo.producer.opening import ProducerOptions
from efo.producer.producer import ProducerRecord
from efo.sync.caller_side import CallerSide, open_engine, outcome_of


class Delivery(AdaptedDelivery):
    """A record that was put and may not be stored yet."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> PutResult:
        """Wait until its outcome is known, and return it.

        `timeout`: seconds, at most. Raises DeliveryError if the record was given up, and TimeoutError.
        """
        if self.is_done:
            return self._outcome()
        return outcome_of(self._engine.run(self._delivery.wait), timeout)


class Producer(AdaptedProducer):
    """Puts records into a stream, for synchronous code. Made by `efo.sync.open_producer`.

    Its methods are those of `efo.Producer`, and block; several threads may call them. Each call passes from one thread
    to another: for many records, `put_many` costs much less than `put`.
    """

    def put(self, data: Any, partition_key: str | None = None, explicit_hash_key: str | None = None) -> Delivery:
        """Take a record, and return its delivery. Waits only while the buffer is full: see `efo.Producer.put`."""
        put = self._engine.run(self._engine.value.put, data, partition_key, explicit_hash_key)
        return Delivery(self._engine, outcome_of(put))

    def put_many(self, records: Iterable[ProducerRecord[Any]]) -> list[Delivery]:
        """Take several records in order, and return their deliveries."""
        put = self._engine.run(self._engine.value.put_many, list(records))
        return [Delivery(self._engine, delivery) for delivery in outcome_of(put)]

    def flush(self) -> None:
        """Send everything now, and wait until all records that were put before are stored or given up."""
        outcome_of(self._engine.run(self._engine.value.flush))


@contextmanager
def open_producer(stream: Stream, **options: Unpack[ProducerOptions]) -> Iterator[Producer]:
    """Open a producer for synchronous code: `efo.open_producer`, with the same arguments.

    `stream`: the stream's name or ARN, or `efo.open_kinesis(...)` as it was returned, not entered. The serializer is
    called in efo's thread. Leaving the context waits until all records are stored or given up. Raises EfoError.
    """
    engine = producer_engine(stream, options, CallerSide())
    with open_engine(engine):
        yield Producer(engine)
