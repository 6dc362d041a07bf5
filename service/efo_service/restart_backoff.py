"""The delay before a worker process or a stream that ended is started again. Pure."""

from __future__ import annotations

from typing import Final

INITIAL_DELAY: Final = 1.0
MAX_DELAY: Final = 30.0
STABLE_AFTER: Final = 60.0
"""What ran for this many seconds counts as stable: the next restart has the initial delay again."""


class RestartBackoff:
    """The delay before a restart: 1 s after the first end, then doubled each time, up to MAX_DELAY."""

    def __init__(self) -> None:
        self._next = INITIAL_DELAY

    def next_delay(self, seconds_alive: float) -> float:
        """Return the delay in seconds after a run of `seconds_alive`."""
        delay = INITIAL_DELAY if seconds_alive >= STABLE_AFTER else self._next
        self._next = min(MAX_DELAY, 2 * delay)
        return delay
