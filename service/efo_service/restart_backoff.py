"""The delay before a worker process or a stream that ended is started again. Pure."""

from __future__ import annotations

from typing import Final

from efo.protocol.backoff import Backoff

INITIAL_DELAY: Final = 1.0
MAX_DELAY: Final = 30.0
STABLE_AFTER: Final = 60.0
"""What ran for this many seconds counts as stable: the next restart has the initial delay again."""


class RestartBackoff:
    """The delay before a restart: 1 s after the first end, then doubled each time, up to MAX_DELAY."""

    def __init__(self) -> None:
        self._backoff = Backoff(initial=INITIAL_DELAY, limit=MAX_DELAY)

    def next_delay(self, seconds_alive: float) -> float:
        """Return the delay in seconds after a run of `seconds_alive`."""
        if seconds_alive >= STABLE_AFTER:
            self._backoff.reset()
        return self._backoff.next()
