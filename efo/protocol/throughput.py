"""The smoothed throughput of a shard in KB per second, for lease assignment by throughput (KCL 3: throughputKBps)."""

from __future__ import annotations

from math import exp
from typing import Final

SMOOTHING: Final = 30.0
"""Time constant of the average in seconds: after this time it has followed a change by about two thirds."""

DECIMALS: Final = 6


class Throughput:
    """An exponential moving average of the rate of a running total, for measurements at any intervals."""

    def __init__(self) -> None:
        self._total = 0
        self._at: float | None = None
        self._kbps: float | None = None

    def measure(self, total: int, now: float) -> float | None:
        """Return the average in KB per second, None for the first measurement.

        `total`: the bytes of the shard so far. `now`: monotonic seconds.

        The result has six decimals, as KCL writes it, so that it becomes 0 for an idle shard. Without rounding it would
        decrease below 1E-130, which DynamoDB cannot store.
        """
        previous, self._at = self._at, now
        added, self._total = total - self._total, total
        if previous is not None and now > previous:
            recent = added / (now - previous) / 1000
            weight = 1 if self._kbps is None else 1 - exp((previous - now) / SMOOTHING)
            self._kbps = (1 - weight) * (self._kbps or 0.0) + weight * recent
        return None if self._kbps is None else round(self._kbps, DECIMALS)
