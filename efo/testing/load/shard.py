"""A shard of a load: an endless log of which every record can be made from its sequence number.

The number of record i of event k is `first + k * 256 * 10**28 + i * 2**36`: a valid number of the layout of
`state.sequence_numbers` (what is added is a multiple of 2**36, so only the counter changes), whose last 28 digits are
the record's own in every event, and whose first 28 digits are the same for all records of one event.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from efo.model import Position, PositionType
from efo.protocol.aggregation import Entry, aggregate
from efo.testing.load.event import EventTemplate, Part
from efo.testing.load.settings import Load
from efo.testing.state.positions import starting_index
from efo.testing.state.sequence_numbers import DIGITS
from efo.testing.state.shards import ShardState

_LOW_DIGITS: Final = 28
_LOW: Final = 10**_LOW_DIGITS
EVENT_STEP: Final = 256 * _LOW
"""From an event's numbers to the next one's: a multiple of 2**36 and of 10**28. Two digits change as a rule."""
RECORD_STEP: Final = 2**36
"""From a record's number to the next one's: one step of the counter."""


class LoadShard:
    """The log of one shard.

    `keys`: partition keys whose records this shard takes. `clock` gives the wall clock, seconds since the epoch.
    With a rate, event k arrives k + 1 intervals after the shard opened. Without one it arrives when it is first
    asked for, and what nobody has asked for yet has not happened.
    """

    def __init__(self, shard: ShardState, load: Load, keys: Sequence[str], clock: Callable[[], float]) -> None:
        self._shard = shard
        self._load = load
        self._clock = clock
        start = int(shard.starting_number)
        self._first = start + RECORD_STEP * -(-(_LOW - start % _LOW) // RECORD_STEP)
        self._parts = [self._part(index, keys) for index in range(load.records_per_event)]
        self._template: EventTemplate | None = None
        self._made = 0

    def _part(self, index: int, keys: Sequence[str]) -> Part:
        key = keys[index % len(keys)]
        random = Random(f"{self._load.seed} {self._shard.id} {index}")
        if self._load.aggregated is None:
            data = random.randbytes(self._load.record_bytes)
        else:
            turns = range(index, index + self._load.aggregated)
            user_keys = [keys[turn % len(keys)] for turn in turns]
            data = aggregate(Entry(user_key, random.randbytes(self._load.record_bytes)) for user_key in user_keys)
        low = str(self._first + index * RECORD_STEP)[-_LOW_DIGITS:]
        return Part(b64encode(data), key, low)

    # --- time ----------------------------------------------------------------------------------------------

    def arrival(self, event: int) -> float | None:
        """Return when an event arrives, seconds since the epoch; None where that is when it is asked for."""
        interval = self._load.interval
        return None if interval is None else self._shard.opened_at / 1000 + (event + 1) * interval

    @property
    def arrived(self) -> int:
        """How many events have arrived."""
        if (interval := self._load.interval) is None:
            return self._made
        count = max(0, math.floor((self._until - self._shard.opened_at / 1000) / interval) - 1)
        while self.has(count):
            count += 1
        return count

    def has(self, event: int) -> bool:
        """Whether an event is there to be sent now."""
        if (arrival := self.arrival(event)) is None:
            return self._shard.is_open or event < self._made
        return arrival <= self._until

    @property
    def _until(self) -> float:
        """Now, or when the shard was closed."""
        closed_at = self._shard.closed_at
        return self._clock() if closed_at is None else min(self._clock(), closed_at / 1000)

    # --- positions -----------------------------------------------------------------------------------------

    def find(self, position: Position) -> tuple[int, int]:
        """Return the event and the index in it of the first record that a subscription from `position` gets.

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
        """Return the first record whose number is not less than this one."""
        event, rest = divmod(max(0, number - self._first), EVENT_STEP)
        index = -(-rest // RECORD_STEP)
        return (event, index) if index < self._load.records_per_event else (event + 1, 0)

    def _at_time(self, timestamp: float) -> int:
        """Return the first event that arrived then or later. Without a rate: the next one, if the shard was open."""
        opened_at, interval = self._shard.opened_at / 1000, self._load.interval
        if timestamp <= opened_at:
            return 0
        return self._made if interval is None else max(0, math.ceil((timestamp - opened_at) / interval) - 1)

    # --- events --------------------------------------------------------------------------------------------

    def render(self, event: int, first: int = 0) -> bytes:
        """Return the message of an event, whole or from its record of index `first` on."""
        self._made = max(self._made, event + 1)
        now = self._clock()
        arrival = self.arrival(event)
        following = self.arrival(event + 1)
        behind = 0 if following is None or not self.has(event + 1) else max(1, round((now - following) * 1000))
        high = str(self._first + event * EVENT_STEP)[: DIGITS - _LOW_DIGITS]
        if first:
            return EventTemplate(self._parts[first:], high).render(high, now if arrival is None else arrival, behind)
        if self._template is None:
            self._template = EventTemplate(self._parts, high)
        return self._template.render(high, now if arrival is None else arrival, behind)
