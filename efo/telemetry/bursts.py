"""Holds back the events of a burst, so that an observer processes many of them one after the other.

Between two events of a busy shard, hundreds of records are decoded and handled. Then the observer's code and figures
have left the processor's caches, and the first event takes it some five times as long as the next ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final

from efo.events import BatchDelivered, Event, EventReceived, RecordsProcessed

FREQUENT: Final = frozenset({EventReceived, BatchDelivered, RecordsProcessed})
"""The types of events that come with each event of a shard."""
AT_ONCE: Final = 60
"""How many events of a second are not held back: a quiet consumer has no more."""
MAX_HELD: Final = 90
"""How many events are held back at most: they take an observer less than a millisecond."""


class Bursts:
    """Passes events on to `feed`: at once, or in a burst many together.

    `clock`: returns seconds, monotonic. `add` is called by one thread, `drain` by any.
    """

    __slots__ = ("_at_once", "_clock", "_feed", "_held", "_lock", "_second_ends")

    def __init__(self, feed: Callable[[Event], None], clock: Callable[[], float] = monotonic) -> None:
        self._feed = feed
        self._clock = clock
        self._held: deque[Event] = deque()
        self._lock = Lock()
        self._at_once = AT_ONCE
        self._second_ends = clock() + 1

    def add(self, event: Event) -> None:
        """Pass on an event, or hold it back."""
        if (now := self._clock()) >= self._second_ends:
            self.drain()  # also waits for another thread that drains
            self._at_once, self._second_ends = AT_ONCE, now + 1
        if self._at_once:
            self._at_once -= 1
            self._feed(event)
        else:
            self._held.append(event)
            if len(self._held) >= MAX_HELD:
                self.drain()

    def drain(self) -> None:
        """Pass on what is held back."""
        with self._lock:
            while self._held:
                self._feed(self._held.popleft())
