"""From the bytes of a subscription, split at any place, to its events: by the native step, or by the Python step."""

from __future__ import annotations

from typing import Final

from efo.protocol.eventstream import EventStreamDecoder
from efo.protocol.messages import SubscribeToShardEvent, check_event, event_of, parse_message
from efo.protocol.native import STEP, Step
from efo.protocol.packed import PackedRecords, Wanted

SMALL: Final = 2048
"""Shorter frames, of one record or a few, are not worth the call of the native step: it cost 8 % of such an event."""


class EventDecoder(EventStreamDecoder):
    """Decodes a stream of bytes to events.

    `step`: the native step; None for the Python step alone. `shortest`: the shortest frame, in bytes, that it reads.

    Records of the native step are PackedRecords until somebody looks at some of them. Who looks at those of one event
    looks at those of the next ones, too, and it is cheaper to make them at once. `wants_records`: do so from the start.
    """

    __slots__ = ("_event_headers", "_shortest", "_step", "_wanted")

    def __init__(self, step: Step | None = STEP, shortest: int = SMALL, *, wants_records: bool = False) -> None:
        super().__init__()
        self._wanted = Wanted(records=wants_records)
        self._step = step
        self._shortest = shortest
        self._event_headers: bytes | None = None  # those of the last event that the Python step has read

    def next_event(self) -> tuple[SubscribeToShardEvent, int] | None:
        """Return the next event and its length on the wire in bytes; None while it is incomplete.

        Raises ProtocolError as `next_message` and `parse_message` do, and the ServiceError that ends a subscription.
        """
        while self.has_message():
            if (event := self._native_event()) is not None:
                length = self._total
                self._advance()
                check_event(event)
                return event, length
            message = self._take_message()
            parsed = parse_message(message)
            if isinstance(parsed, SubscribeToShardEvent):
                self._event_headers = self._raw_headers
                return parsed, message.wire_length
            if parsed is not None:
                raise parsed
        return None

    def _native_event(self) -> SubscribeToShardEvent | None:
        if self._step is None or self._event_headers is None or self._total < self._shortest:
            return None
        frame = (self._data, self._later, self._at, self._total, self._event_headers)
        if not self._wanted.records:
            if (packed := self._step.packed(*frame)) is not None:
                return event_of(PackedRecords(packed, self._wanted), packed[-1])
            self._wanted.records = True  # an aggregate: so will be the next ones
        read = self._step.event(*frame)
        return None if read is None else event_of(*read)
