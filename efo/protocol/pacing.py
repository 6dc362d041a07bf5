"""Pacing: when a subscribe is allowed (rule R6).

The service allows one SubscribeToShard per second for each (consumer, shard). It rejects a call within 5 s of the last
success. AWS documents no limit for a consumer or an account, and KCL subscribes to all its shards at once. efo has a
budget of subscribes per second nevertheless, so that a start with a thousand shards is no burst of requests. A call
that the service throttles is repeated with the backoff of its shard. Shards without a subscription come before
renewals, but for each of them four overdue renewals are granted. Otherwise many new shards would let live
subscriptions expire, and those shards would then wait like new ones. No request starves.

How many shards does a budget support? At most `budget` subscriptions start per second, and each is renewed when it
reaches its age. So for any jitter, at most `budget` renewals per second become due on average. Renewals that coincide
by chance wait for a second or two, within the 15 s that the latest age leaves. The condition is shards < budget * mean
age: with ages of 240 to 285 s, a budget of 20 is enough for about 5,000 shards per worker, and 100, the default, for
26,000. It does not matter that 45 s of jitter times 20 is only 900: a thousand shards then take 50 s to start.
`tests/efo/protocol/test_renewal_at_scale.py` and `make bench-core` run a thousand shards for an hour with a budget of
20.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

SHARD_INTERVAL: Final = 1.0
"""Seconds between two calls for one shard (AWS: one call per second per consumer and shard)."""
TAKE_OVER_AFTER: Final = 5.0
"""Seconds after a success until another call can succeed (AWS: ResourceInUseException within 5 s)."""
RENEWAL_OVERDUE_AFTER: Final = 5.0
"""Seconds that a renewal waits behind shards without a subscription. Then it is overdue."""
OVERDUE_PER_FIRST: Final = 4
"""The number of overdue renewals that are granted for each shard without a subscription."""


@dataclass(slots=True)
class _Request:
    renewal: bool
    since: float


class Pacer:
    """Grants subscribes. All times are seconds of a monotonic clock.

    `budget`: subscribes per second for the whole consumer, the most in any one second. Raises ValueError if it is not
    positive and finite.
    """

    def __init__(self, budget: float) -> None:
        if not budget > 0 or math.isinf(budget):
            raise ValueError(f"the subscribe budget is {budget} per second: expected a positive, finite number")
        # A budget below one per second is one call per longer period.
        self._limit = max(1, math.floor(budget))
        self._period = self._limit / budget
        self._granted: deque[float] = deque(maxlen=self._limit)
        # In the order of the requests.
        self._waiting: dict[str, _Request] = {}
        self._not_before: dict[str, float] = {}
        self._overdue_in_a_row = 0

    def request(self, shard_id: str, now: float, *, renewal: bool) -> None:
        """Request a subscribe. A shard has at most one request: a new one replaces the earlier one."""
        self.withdraw(shard_id)
        self._waiting[shard_id] = _Request(renewal, now)

    def withdraw(self, shard_id: str) -> None:
        """Remove a request that was not granted."""
        self._waiting.pop(shard_id, None)

    def succeeded(self, shard_id: str, now: float) -> None:
        """Record a success: the service rejects the next call for 5 s."""
        self._not_before[shard_id] = now + TAKE_OVER_AFTER

    def poll(self, now: float) -> tuple[list[str], float | None]:
        """Return the shards that may subscribe now, and the time of the next poll (None: after the next request)."""
        grants: list[str] = []
        # Remove past times: nothing reports that a shard is not read any more.
        self._not_before = {shard_id: at for shard_id, at in self._not_before.items() if at > now}
        firsts, overdue, renewals = self._queues(now)
        while firsts or overdue or renewals:
            if len(self._granted) == self._limit and now < self._granted[0] + self._period:
                break
            from_overdue = bool(overdue) and (self._overdue_in_a_row < OVERDUE_PER_FIRST or not firsts)
            shard_id = (overdue if from_overdue else firsts or renewals).popleft()
            self._overdue_in_a_row = self._overdue_in_a_row + 1 if from_overdue else 0
            self._granted.append(now)
            self._not_before[shard_id] = now + SHARD_INTERVAL
            del self._waiting[shard_id]
            grants.append(shard_id)
        return grants, self._next_time(now)

    def _queues(self, now: float) -> tuple[deque[str], deque[str], deque[str]]:
        """Return the requests that may be granted now: shards without a subscription, overdue and other renewals."""
        firsts, overdue, renewals = deque[str](), deque[str](), deque[str]()
        for shard_id, request in self._waiting.items():
            if shard_id in self._not_before:
                continue
            if not request.renewal:
                firsts.append(shard_id)
            elif now - request.since >= RENEWAL_OVERDUE_AFTER:
                overdue.append(shard_id)
            else:
                renewals.append(shard_id)
        return firsts, overdue, renewals

    def _next_time(self, now: float) -> float | None:
        if not self._waiting:
            return None
        earliest = min(self._not_before.get(shard_id, now) for shard_id in self._waiting)
        if len(self._granted) == self._limit:
            earliest = max(earliest, self._granted[0] + self._period)
        return earliest
