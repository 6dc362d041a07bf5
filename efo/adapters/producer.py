"""What a producer offers behind each surface, whether its calls are awaited or block; and its deliveries."""

from __future__ import annotations

from typing import Any

from efo.adapters.engine import Engine
from efo.producer.delivery import Delivery, PutResult
from efo.producer.entry import Entry
from efo.producer.producer import Producer


class AdaptedProducer:
    """Puts records into a stream, by a producer in a trio thread: `efo.Producer`."""

    def __init__(self, engine: Engine[Producer[Any]]) -> None:
        self._engine = engine
        self.stream: str = engine.value.stream

    @property
    def buffered_records(self) -> int:
        """The number of records that were put and are neither stored nor given up."""
        self._engine.side.check_process()
        return self._engine.value.buffered_records

    @property
    def is_auto(self) -> bool:
        """Whether the service distributes the records (strategy AUTO), as far as is known: keys are optional then."""
        return self._engine.value.is_auto

    @property
    def buffered_bytes(self) -> int:
        """What counts against `ProducerSettings.max_buffered_bytes`."""
        self._engine.side.check_process()
        return self._engine.value.buffered_bytes

    def close(self) -> None:
        """Take no more records: `put` raises ProducerClosedError, also where it waits. What was taken is still sent."""
        self._engine.post(self._engine.value.close)


class AdaptedDelivery:
    """A record that was put and may not be stored yet. It may be used in any thread."""

    __slots__ = ("_delivery", "_engine")

    def __init__(self, engine: Engine[Producer[Any]], delivery: Delivery) -> None:
        self._engine = engine
        self._delivery = delivery

    @property
    def is_done(self) -> bool:
        """Whether its outcome is known."""
        return self._delivery.is_done

    def _outcome(self) -> PutResult:
        """Return where the record was stored, when that is known. Raises DeliveryError."""
        entry = self._delivery.carrier
        if isinstance(entry, Entry) and entry.stored is not None:
            return self._delivery.result()
        return self._engine.side.call_or_closed(self._delivery.result)  # it counts which failures were seen
