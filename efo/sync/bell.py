"""Lets threads sleep until another one has something for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue


class Bell:
    """Wakes all threads that sleep until it is rung. Ctrl-C may interrupt a sleep at any moment, without harm."""

    def __init__(self) -> None:
        self._sleeping: deque[SimpleQueue[None]] = deque()  # changed by single steps of the interpreter

    def ring(self) -> None:
        """Wake the threads that sleep or are about to. Safe in any thread and in a signal handler."""
        while self._sleeping:
            try:
                sleeper = self._sleeping.popleft()
            except IndexError:  # another thread rings too
                return
            sleeper.put(None)

    def sleep_unless(self, is_ready: Callable[[], object]) -> None:
        """Sleep until the bell rings, unless something is ready. It may end early: look again what there is."""
        mine: SimpleQueue[None] = SimpleQueue()
        self._sleeping.append(mine)  # before the look: whoever makes something ready afterwards rings
        if not is_ready():
            mine.get()
            return
        with suppress(ValueError):  # it was rung meanwhile
            self._sleeping.remove(mine)
