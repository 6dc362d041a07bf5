"""An timer that rings at a deadline which moves with every event."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import trio


class Timer:
    """Calls `ring` at the deadline or earlier. `run` must be running.

    A deadline of trio per event would cost as much as the event itself. So a deadline that moves later is not set: the
    timer rings at the earlier one, and its owner sets it again if it still waits.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._sleep = trio.CancelScope()
        self._life = trio.CancelScope()

    def set(self, deadline: float) -> None:
        """Ring at this time of trio's clock at the latest."""
        if deadline < self._sleep.deadline:  # noqa: PLR1730 - setting it costs more than comparing
            self._sleep.deadline = deadline

    def close(self) -> None:
        """End `run`: it rings no more."""
        self._life.cancel()

    async def run(self) -> None:
        """Ring whenever the deadline is reached, until closed."""
        with self._life:
            while True:
                with self._sleep:
                    await trio.sleep_forever()
                self._sleep = trio.CancelScope(deadline=inf)
                self._ring()
