"""Who wants to hear of news, in the order in which they came.

A set would tell them in an order that changes from run to run, and with it what happens under a virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[], None]


class Listeners:
    """Functions to call when there is news; each is in it once."""

    def __init__(self) -> None:
        self._listeners: dict[Listener, None] = {}

    def __contains__(self, listener: Listener) -> bool:
        return listener in self._listeners

    def add(self, listener: Listener) -> None:
        """Call it from now on."""
        self._listeners[listener] = None

    def discard(self, listener: Listener) -> None:
        """Call it no more."""
        self._listeners.pop(listener, None)

    def tell(self) -> None:
        """Call them all."""
        for listener in tuple(self._listeners):
            listener()
