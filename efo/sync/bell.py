"""Lets a thread sleep until another one has something for it."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue


class Bell:
    """Wakes one thread, which sleeps until it is rung. Ctrl-C may interrupt the sleep at any moment, without harm."""

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()
        self._is_awaited = False

    def ring(self) -> None:
        """Wake the thread, if it sleeps or is about to. Safe in any thread and in a signal handler."""
        if self._is_awaited:
            self._is_awaited = False
            self._rings.put(None)

    def sleep_unless(self, is_ready: Callable[[], object]) -> None:
        """Sleep until the bell rings, unless something is ready. It may end early: look again what there is."""
        self._is_awaited = True  # before the look: whoever makes something ready afterwards rings
        if not is_ready():
            self._rings.get()
