"""A shard of a load: an endless log. Every record can be generated from its sequence number.

The sequence number of record i of event k is `first + k * 256 * 10**28 + i * 2**36`. It has the layout of
`state.sequence_numbers`: the increments are multiples of 2**36, so only the counter changes. The last 28 digits depend
only on i. The first 28 digits are the same for all records of an event.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from efo.model import Position, PositionType
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.testing.state.positions import starting_index
from efo.testing.state.sequence_numbers import DIGITS
from efo.testing.state.shards import ShardState
from proofs.load.event import EventTemplate, RecordTemplate
from proofs.load.settings import Load

_LOW_DIGITS: Final = 28
_LOW: Final = 10**_LOW_DIGITS
EVENT_STEP: Final = 256 * _LOW
"""Increment of the sequence numbers from event to event: a multiple of 2**36 and of 10**28. Usually 2 digits change."""
RECORD_STEP: Final = 2**36
"""Increment of the sequence number from record to record: one step of the counter."""


class LoadShard:
    """The log of one shard.

    `keys`: partition keys of this shard. `clock` returns the wall-clock time in seconds since the epoch.
    With a rate, event k arrives k + 1 intervals after the shard opened. Without a rate, an event arrives when it is
    first rendered.
    """

    def __init__(self, shard: ShardState, load: Load, keys: Sequence[str], clock: Callable[[], float]) -> None:
        self._shard = shard
        self._load = load
        self._clock = clock
        start = int(shard.starting_number)
        self._first = start + RECORD_STEP * -(-(_LOW - start % _LOW) // RECORD_STEP)
        self._records = [self._record_template(index, keys) for index in range(load.records_per_event)]
        self._template: EventTemplate | None = None
        self._rendered = 0  # events that were rendered: the index of the last one, plus 1

    def _record_template(self, index: int, keys: Sequence[str]) -> RecordTemplate:
        key = keys[index % len(keys)]
        random = Random(f"{self._load.seed} {self._shard.id} {index}")
        if self._load.aggregated is None:
            data = random.randbytes(self._load.record_bytes)
        else:
            key_indexes = range(index, index + self._load.aggregated)
            user_keys = [keys[number % len(keys)] for number in key_indexes]
            data = aggregate(
                AggregateEntry(user_key, random.randbytes(self._load.record_bytes)) for user_key in user_keys
            )
        low_digits = str(self._first + index * RECORD_STEP)[-_LOW_DIGITS:]
        return RecordTemplate(b64encode(data), key, low_digits)

    # --- time ----------------------------------------------------------------------------------------------

    def arrival(self, event: int) -> float | None:
        """Return when an event arrives, seconds since the epoch; None without a rate."""
        interval = self._load.interval
        return None if interval is None else self._shard.opened_at / 1000 + (event + 1) * interval

    @property
    def arrived(self) -> int:
        """The number of events that have arrived."""
        if (interval := self._load.interval) is None:
            return self._rendered
        count = max(0, math.floor((self._last_arrival_time - self._shard.opened_at / 1000) / interval) - 1)
        while self.has(count):
            count += 1
        return count

    def has(self, event: int) -> bool:
        """Return whether an event can be sent now."""
        if (arrival := self.arrival(event)) is None:
            return self._shard.is_open or event < self._rendered
        return arrival <= self._last_arrival_time

    @property
    def _last_arrival_time(self) -> float:
        """Now, or the time when the shard was closed: seconds since the epoch."""
        closed_at = self._shard.closed_at
        return self._clock() if closed_at is None else min(self._clock(), closed_at / 1000)

    # --- positions -----------------------------------------------------------------------------------------

    def find(self, position: Position) -> tuple[int, int]:
        """Return the first record that a subscription from `position` receives: its event and its index in the event.

        Raises FakeError, as `starting_index` does.
        """
        starting_index(self._shard, position, self._clock())
        match position.type:
            case PositionType.TRIM_HORIZON:
                return 0, 0
            case PositionType.LATEST:
                return self.arrived, 0
            case PositionType.AT_TIMESTAMP:
                return self._at_time(position.timestamp or 0.0), 0
            case PositionType.AT_SEQUENCE_NUMBER:
                return self._at(int(position.sequence_number or 0))
            case PositionType.AFTER_SEQUENCE_NUMBER:
                return self._at(int(position.sequence_number or 0) + 1)

    def _at(self, number: int) -> tuple[int, int]:
        """Return the first record with this or a greater sequence number."""
        event, rest = divmod(max(0, number - self._first), EVENT_STEP)
        index = -(-rest // RECORD_STEP)
        return (event, index) if index < self._load.records_per_event else (event + 1, 0)

    def _at_time(self, timestamp: float) -> int:
        """Return the first event that arrived at this time or later.

        Without a rate: the event after the last rendered one, or the first event if the shard opened later.
        """
        opened_at, interval = self._shard.opened_at / 1000, self._load.interval
        if timestamp <= opened_at:
            return 0
        return self._rendered if interval is None else max(0, math.ceil((timestamp - opened_at) / interval) - 1)

    # --- events --------------------------------------------------------------------------------------------

    def render(self, event: int, first: int = 0) -> bytes:
        """Return the message of an event, from its record with index `first` on."""
        self._rendered = max(self._rendered, event + 1)
        now = self._clock()
        arrival = self.arrival(event)
        following = self.arrival(event + 1)
        behind = 0 if following is None or not self.has(event + 1) else max(1, round((now - following) * 1000))
        high = str(self._first + event * EVENT_STEP)[: DIGITS - _LOW_DIGITS]
        if first:
            return EventTemplate(self._records[first:], high).render(high, now if arrival is None else arrival, behind)
        if self._template is None:
            self._template = EventTemplate(self._records, high)
        return self._template.render(high, now if arrival is None else arrival, behind)
