"""The delivery of a record that was put through a door."""

from __future__ import annotations

from efo.doors.calls import ApplicationSide
from efo.producer.delivery import Delivery, PutResult
from efo.producer.entry import Entry


class DoorDelivery:
    """A record that was put and may not be stored yet. It may be used in any thread."""

    __slots__ = ("_delivery", "_side")

    def __init__(self, delivery: Delivery, side: ApplicationSide) -> None:
        self._delivery = delivery
        self._side = side

    @property
    def is_done(self) -> bool:
        """Whether its outcome is known."""
        return self._delivery.is_done

    def _outcome(self) -> PutResult:
        """Return where the record was stored, when that is known. Raises DeliveryError."""
        entry = self._delivery.carrier
        if isinstance(entry, Entry) and entry.stored is not None:
            return self._delivery.result()
        return self._side.call_or_closed(self._delivery.result)  # it counts which failures were seen
