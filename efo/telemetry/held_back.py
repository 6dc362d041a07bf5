"""Holds back what an attempt to read a stream reports, until it reads: attempts that fail alike then leave no lines."""

from __future__ import annotations

from collections.abc import Callable

from efo.events import Event, Observer, ShardsListed


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
