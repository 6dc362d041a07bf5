"""Up to where a shard is read by a consumer that ends by itself: to what was there when it began, or to a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec.structs import replace

from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.packed import arrivals_of

Until = Literal["now"] | float
"""`now`: what was there when the reading began. A number: what arrived before it, in seconds since the epoch."""

SLACK: Final = 1.0
"""Seconds by which the time of a record may differ from that of another one that was put together with it, and by which
an event that shows the tip of a shard may be older than its receipt."""


class ShardLimit:
    """Where the reading of one shard ends. `is_reached`: all before it has arrived.

    Events are measured by the service's times alone, so that it does not matter what this host's clock says: an event
    tells the arrival of its last record and how far that is behind the tip. `is_closed`: whether the shard is known to
    have ended, by a split or a merge. Such a shard is read to its end, or its children would not be read.
    """

    def __init__(self, until: Until, is_closed: Callable[[], bool]) -> None:
        self.is_reached = False
        self._at = None if until == "now" else until
        self._is_exact = self._at is not None
        self._is_closed = is_closed

    def restart(self) -> None:
        """Begin again, after a seek."""
        self.is_reached = False

    def take(self, event: SubscribeToShardEvent, now: float) -> SubscribeToShardEvent:
        """Take an event; return it without the records that are beyond the limit. `now`: by the service's clock."""
        records, behind = event.records, event.millis_behind_latest
        beyond = (i for i, arrival in enumerate(arrivals_of(records)) if self._is_beyond(arrival))
        if (kept := next(beyond, None)) is not None:
            self.is_reached = True
            # The continuation is beyond what is kept (rule R3), and there is more to read.
            return replace(
                event, records=records[:kept], continuation_sequence_number=None, millis_behind_latest=max(behind, 1)
            )
        if behind == 0 and event.continuation_sequence_number is not None and not self._is_closed():
            self.is_reached = not self._is_exact or (self._at is not None and now >= self._at + SLACK)
        elif self._at is None and records and (newest := records[-1].approximate_arrival_timestamp):
            self._at = newest + behind / 1000 + SLACK
        return event

    def _is_beyond(self, arrival: float) -> bool:
        return self._at is not None and arrival >= self._at
