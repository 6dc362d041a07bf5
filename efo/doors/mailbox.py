"""Passes calls from one thread to another, in order, and wakes the other one no more often than needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any


class Mailbox:
    """Functions for another thread to call. `wake(run)` lets that thread call `run` soon, from any thread.

    A wake costs a system call and a switch between threads. So there is one for all that is posted before it.
    """

    __slots__ = ("_is_woken", "_posted", "_wake")

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Let the other thread call a function, which must not raise. Safe in any thread and in a signal handler.

        Raises what `wake` raises.
        """
        self._posted.append((function, args))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._wake(self._run)
            except BaseException:  # the other thread has ended
                self._is_woken = False
                self._posted.clear()
                raise

    def _run(self) -> None:
        self._is_woken = False  # first: what is posted from now on wakes again
        while self._posted:
            function, args = self._posted.popleft()
            function(*args)
