"""What a shard brings, in KB per second: smoothed, for leases to be shared out by it (KCL 3: throughputKBps)."""

from __future__ import annotations

from math import exp
from typing import Final

SMOOTHING: Final = 30.0
"""Seconds after which a change of throughput has come through by about two thirds."""

DECIMALS: Final = 6


class Throughput:
    """An exponential moving average of a running total, over whatever intervals it is asked at."""

    def __init__(self) -> None:
        self._total = 0
        self._at: float | None = None
        self._kbps: float | None = None

    def measure(self, total: int, now: float) -> float | None:
        """Return the average until now (monotonic seconds) of what makes up `total`, in bytes; None the first time.

        With six decimals, as KCL writes it: of a shard that is quiet it becomes 0. What fades away for ever would in
        the end be below 1E-130, which DynamoDB refuses to store.
        """
        before, self._at = self._at, now
        grown, self._total = total - self._total, total
        if before is not None and now > before:
            recent = grown / (now - before) / 1000
            share = 1 if self._kbps is None else 1 - exp((before - now) / SMOOTHING)
            self._kbps = (1 - share) * (self._kbps or 0.0) + share * recent
        return None if self._kbps is None else round(self._kbps, DECIMALS)
