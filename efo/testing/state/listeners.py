"""A list of callbacks.

They are called in the order in which they were added. The order of a set would change from run to run, and runs
under a virtual clock would not be repeatable.
"""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[], None]


class Listeners:
    """Callbacks without arguments. Each is called once per notification, even if it was added twice."""

    def __init__(self) -> None:
        self._listeners: dict[Listener, None] = {}

    def __contains__(self, listener: Listener) -> bool:
        return listener in self._listeners

    def add(self, listener: Listener) -> None:
        """Add a callback."""
        self._listeners[listener] = None

    def discard(self, listener: Listener) -> None:
        """Remove a callback, if present."""
        self._listeners.pop(listener, None)

    def notify(self) -> None:
        """Call all callbacks."""
        for listener in tuple(self._listeners):
            listener()
