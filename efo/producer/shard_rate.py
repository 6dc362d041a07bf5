"""How much one shard accepts now: 1,000 records and 1 MiB in any second, or less while others write to it too.

Several shards among which the service distributes the records accept as many times as much, together.

A request counts from its sending until a second after its response. The service received it somewhere between, so two
records that it received within one second are both counted when the later one is sent. So a producer that writes alone
is never throttled, however its requests are delayed on the way.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

RECORDS_PER_SECOND: Final = 1000
BYTES_PER_SECOND: Final = 1024 * 1024
"""The limits of a shard, partition keys included (AWS: quotas and limits)."""
WINDOW: Final = 1.001
"""Seconds for which a request counts after its response. The thousandth is for clocks of milliseconds."""
CUT: Final = 0.7
"""The factor by which a throttled request lowers the share, at most once in a window."""
REGAIN: Final = 0.01, 0.05
"""What the share grows by in a second without throttling: a part of the limits, and a part of itself. So the share of
one among many producers goes down far enough, and that of one that is alone again comes back within a minute."""
MIN_SHARE: Final = 0.02


class ShardRate:
    """The rate limit of one shard. Times are seconds of one monotonic clock, sizes bytes.

    `share`: the part of the limits that may be used; infinity: no limit. `shards`: of how many shards it is the limit.
    """

    def __init__(self, share: float, shards: int = 1) -> None:
        self._most_records = RECORDS_PER_SECOND * shards
        self._most_bytes = BYTES_PER_SECOND * shards
        self._most = share
        self._share = share
        self._share_at = -inf
        self._records = 0
        self._bytes = 0
        self._settled: deque[tuple[float, int, int]] = deque()  # (until when it counts, records, bytes)

    def share(self, now: float) -> float:
        """Return the part of the limits that may be used now."""
        if self._share == self._most:
            return self._share
        growth = REGAIN[0] + REGAIN[1] * self._share
        return min(self._most, self._share + growth * (now - self._share_at))

    @property
    def is_idle(self) -> bool:
        """Whether no request counts, as `room` last saw it. A shard then takes one record of any size."""
        return not self._records

    def room(self, now: float) -> tuple[float, float]:
        """Return how many records and bytes may be sent now."""
        if self._most == inf:
            return inf, inf
        settled = self._settled
        while settled and settled[0][0] <= now:
            _, records, size = settled.popleft()
            self._records -= records
            self._bytes -= size
        share = self.share(now)
        most = max(1, int(self._most_records * share))
        return most - self._records, int(self._most_bytes * share) - self._bytes

    def grows_at(self) -> float:
        """Return when the next request ceases to count; infinity if all of them are in flight."""
        return self._settled[0][0] if self._settled else inf

    def sent(self, records: int, size: int) -> None:
        """Count a request."""
        if self._most != inf:
            self._records += records
            self._bytes += size

    def settle(self, records: int, size: int, now: float, *, throttled: bool) -> None:
        """Count the response to a request, or its failure. `throttled`: whether the shard refused records of it."""
        if self._most == inf:
            return
        if throttled and now >= self._share_at + WINDOW:
            self._share, self._share_at = max(MIN_SHARE, self.share(now) * CUT), now
        until = now + max(WINDOW, size / self._most_bytes)
        if self._settled:
            until = max(until, self._settled[-1][0])
        self._settled.append((until, records, size))
