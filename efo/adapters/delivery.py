"""The delivery of a record that was put through a surface."""

from __future__ import annotations

from typing import Any

from efo.adapters.engine import Engine
from efo.producer.delivery import Delivery, PutResult
from efo.producer.entry import Entry
from efo.producer.producer import Producer


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
