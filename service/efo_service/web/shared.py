"""One computation for all who ask for the same at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")

_PAUSE: Final = 4.0
"""Times as long as it took: so all requests together take a fifth of the loop, or of a thread, at most."""
_MAX_PAUSE: Final = 1.0


class SharedComputation(Generic[T]):
    """Computes for all callers at once. What a caller gets began to be computed after it asked.

    `compute`: may be slow, and raise; then its caller alone gets the exception.
    """

    def __init__(self, compute: Callable[[], Awaitable[T]]) -> None:
        self._compute = compute
        self._lock = trio.Lock()
        self._begun = 0
        self._next_at = 0.0
        self._latest: tuple[int, T] | None = None

    async def get(self) -> T:
        """Return what was computed."""
        before = self._begun
        async with self._lock:
            if self._latest is None or self._latest[0] <= before:
                await trio.sleep_until(max(self._next_at, trio.current_time()))
                self._begun += 1
                began = trio.current_time()
                try:
                    self._latest = (self._begun, await self._compute())
                finally:
                    now = trio.current_time()
                    self._next_at = now + min(_MAX_PAUSE, _PAUSE * (now - began))
            return self._latest[1]
