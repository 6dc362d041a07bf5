"""Lets threads sleep until another one has something for them, and wakes them for a signal that they missed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait as wait_for
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

NAP_SECONDS: Final = 0.5
"""The longest sleep. Python calls signal handlers between two steps of the main thread: a signal that comes after the
last step and before the sleep does not end it, so its handler waits for the next step."""


class Wakeup:
    """Wakes all threads that sleep until `wake`. Ctrl-C may interrupt a sleep at any moment, without harm."""

    def __init__(self) -> None:
        self._sleeping: deque[SimpleQueue[None]] = deque()  # changed by single steps of the interpreter

    def wake(self) -> None:
        """Wake the threads that sleep or are about to. Safe in any thread and in a signal handler."""
        while self._sleeping:
            try:
                sleeper = self._sleeping.popleft()
            except IndexError:  # another thread wakes them too
                return
            sleeper.put(None)

    def sleep_unless(self, is_ready: Callable[[], object]) -> None:
        """Sleep until `wake`, unless something is ready. It may end early: look again what there is."""
        mine: SimpleQueue[None] = SimpleQueue()
        self._sleeping.append(mine)  # before the look: whoever makes something ready afterwards wakes it
        if not is_ready():
            with suppress(Empty):
                mine.get(timeout=NAP_SECONDS)
                return
        with suppress(ValueError):  # it was woken meanwhile
            self._sleeping.remove(mine)


def result_of(future: Future[T], timeout: float | None = None) -> T:
    """Wait for a future, and return its result or raise its error. A signal handler runs meanwhile, whenever it came.

    `timeout`: seconds. Raises TimeoutError after them.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while not future.done():
        left = NAP_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        wait_for([future], timeout=min(left, NAP_SECONDS))
    return future.result()
