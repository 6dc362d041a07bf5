"""Calls several observers. Events that come with each batch are held back for those who take many at once.

Between two events of a busy shard, hundreds of records are decoded and handled. Then the observers' code and figures
have left the processor's caches, and the first event takes them some five times as long as the next ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from threading import Lock
from time import monotonic
from typing import Final, Protocol, TypeGuard

from efo.checks import check_callable
from efo.events import BatchDelivered, Event, EventReceived, Observer, RecordsProcessed, ShardsListed, ignore_events

FREQUENT: Final = frozenset({EventReceived, BatchDelivered, RecordsProcessed})
"""The types of events that come with each event of a shard."""
MAX_HELD: Final = 90
"""How many events are held back at most: they take the observers less than a millisecond."""
MAX_SECONDS: Final = 1.0
"""Seconds after which the next event passes on those that are held back."""


def nothing_held() -> None:
    """Pass on nothing: nobody holds events back."""


class BurstObserver(Protocol):
    """An observer that takes frequent events some at a time, after they happened. All others it takes at once."""

    def __call__(self, event: Event) -> None:
        """Take one event of any type."""
        ...

    def observe_many(self, events: Sequence[Event]) -> None:
        """Take events of the types in `FREQUENT`, in their order. Any thread may call it, one at a time."""
        ...

    def held_by(self, drain: Callable[[], None]) -> None:
        """Call `drain`, from any thread, before telling what was made from events: it passes on those held back."""
        ...


def combine_observers(*observers: Observer) -> Observer:
    """Return an observer that calls each of these observers, in this order. Raises ConfigurationError.

    An observer may have a method `observes(event_type: type) -> bool`, which is asked once for each type of event. Then
    it is called only with events for which that is True, and what it ignores costs nothing. A subclass with its own
    `__call__` needs its own `observes`, or gets every event.
    """
    for each in observers:
        check_callable("observer", each, "a function of an event", "event")
    flat = tuple(_flattened(observers))
    if not flat:
        return ignore_events
    is_plain = len(flat) == 1 and not _has(flat[0], "observes") and not _takes_many(flat[0])
    return flat[0] if is_plain else Combined(flat)


class Combined:
    """Passes each event to those observers that do something with its type. One thread calls it.

    `clock`: returns seconds, monotonic.
    """

    __slots__ = ("_at_once", "_clock", "_due", "_held", "_holding", "_lock", "observers")

    def __init__(self, observers: tuple[Observer, ...], clock: Callable[[], float] = monotonic) -> None:
        self.observers = observers
        self._clock = clock
        self._at_once: dict[type, tuple[Observer, ...]] = {}
        self._holding = tuple(observer for observer in observers if _takes_many(observer))
        self._held: deque[Event] = deque()
        self._lock = Lock()
        self._due = -inf
        for observer in self._holding:
            observer.held_by(self.drain)

    def __call__(self, event: Event) -> None:
        """Pass on one event."""
        event_type = type(event)
        if (at_once := self._at_once.get(event_type)) is None:
            at_once = self._at_once[event_type] = tuple(self._at_once_of(event_type))
        if self._holding:
            if event_type in FREQUENT:
                self._held.append(event)
                if (now := self._clock()) >= self._due or len(self._held) >= MAX_HELD:
                    self._due = now + MAX_SECONDS
                    self.drain()
            else:
                self.drain()  # also waits for another thread that drains
        for observer in at_once:
            observer(event)

    def drain(self) -> None:
        """Pass on what is held back. Any thread may call it."""
        with self._lock:
            # Not by a copy of all: another thread may append meanwhile.
            if events := [self._held.popleft() for _ in range(len(self._held))]:
                for observer in self._holding:
                    observer.observe_many(events)

    def _at_once_of(self, event_type: type) -> Iterator[Observer]:
        for observer in self.observers:
            if not (event_type in FREQUENT and _takes_many(observer)) and _observes(observer, event_type):
                yield observer


def _flattened(observers: tuple[Observer, ...]) -> Iterator[Observer]:
    for observer in observers:
        if isinstance(observer, Combined):
            yield from observer.observers
        elif observer is not ignore_events:
            yield observer


def _takes_many(observer: Observer) -> TypeGuard[BurstObserver]:
    return _has(observer, "observe_many")


def _observes(observer: Observer, event_type: type) -> bool:
    return not _has(observer, "observes") or bool(observer.observes(event_type))  # type: ignore[attr-defined]


def _has(observer: Observer, name: str) -> bool:
    """Return whether an observer has a method that goes with its `__call__`.

    A subclass that has a `__call__` of its own alone does not inherit what its base wants to be called with.
    """
    if name in getattr(observer, "__dict__", {}):
        return True
    for each in type(observer).__mro__:
        if name in vars(each):
            return True
        if "__call__" in vars(each):
            return False
    return False


class HeldBack:
    """An observer that passes events on to `observer` once the shards of the stream are listed and its leases checked.

    `on_reading`: called at that moment, before the first event is passed on.
    """

    def __init__(self, observer: Observer, on_reading: Callable[[], None]) -> None:
        self._observer = observer
        self._on_reading = on_reading
        self._held: list[Event] = []
        self._is_open = False

    def __call__(self, event: Event) -> None:
        """Hold an event back, or pass it on."""
        if not self._is_open and isinstance(event, ShardsListed):
            self._is_open = True
            self._on_reading()
            held, self._held = self._held, []
            for earlier in held:
                self._observer(earlier)
        if self._is_open:
            self._observer(event)
        else:
            self._held.append(event)
