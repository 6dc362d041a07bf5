"""When a subscribe may be made (rule R6), and how long to wait after a failed one.

The service allows one SubscribeToShard per second for each (consumer, shard), and refuses one that comes within
5 s of the last success. On top, the whole consumer has a budget of subscribes per second, which keeps a start with
a thousand shards from hitting the account's limits. Shards without a subscription go before renewals, but of renewals
that have waited long four go for each of them: nothing that lives has to die of a crowd of newcomers, which would only
make the crowd larger, and nobody starves.

How many shards does a budget hold? No more than `budget` subscriptions per second ever begin, and a renewal only moves
each by its age: whatever the jitter is, no more than `budget` renewals per second come due in the mean, and what is
drawn together by chance waits for a second or two, within the 15 s that the latest age leaves. So it does not matter
that 45 s of jitter times 20 per second are only 900: a thousand shards never begin at once, they take 50 s. What has to
hold is shards < budget * mean age: with 20 per second and ages of 240 to 285 s, some 5,000 shards per worker.
`tests/efo/protocol/test_renewal_at_scale.py` and `make bench-core` show a thousand, for an hour.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SHARD_INTERVAL: Final = 1.0
"""Seconds between two calls for one shard (AWS: one call per second per consumer and shard)."""
TAKE_OVER_AFTER: Final = 5.0
"""Seconds after a success before another call succeeds (AWS: ResourceInUseException within 5 s)."""
RENEWAL_PATIENCE: Final = 5.0
"""Seconds that a renewal waits behind shards without a subscription."""
OVERDUE_SHARE: Final = 4
"""How many renewals that have waited so long are granted for each shard without a subscription."""


@dataclass(slots=True)
class _Ticket:
    renewal: bool
    since: float


class Pacer:
    """Grants subscribes. Times are seconds of any monotonic clock.

    `budget`: subscribes per second for the whole consumer; at most that many in any one second.
    """

    def __init__(self, budget: float) -> None:
        if not budget > 0 or math.isinf(budget):
            raise ValueError(f"a budget of {budget} subscribes per second grants none: give a positive number")
        # A budget below one per second is one call in a longer period.
        self._limit = max(1, math.floor(budget))
        self._period = self._limit / budget
        self._granted: deque[float] = deque(maxlen=self._limit)
        # In the order in which they came.
        self._waiting: dict[str, _Ticket] = {}
        self._not_before: dict[str, float] = {}
        self._overdue_in_a_row = 0

    def request(self, shard_id: str, now: float, *, renewal: bool) -> None:
        """Ask for a subscribe; a shard asks for one at a time."""
        self.withdraw(shard_id)
        self._waiting[shard_id] = _Ticket(renewal, now)

    def withdraw(self, shard_id: str) -> None:
        """Forget a request that was not granted."""
        self._waiting.pop(shard_id, None)

    def succeeded(self, shard_id: str, now: float) -> None:
        """Take note of a success: the service refuses the next call for 5 s."""
        self._not_before[shard_id] = now + TAKE_OVER_AFTER

    def poll(self, now: float) -> tuple[list[str], float | None]:
        """Return the shards that may subscribe now, and the time to ask again (None: after a request)."""
        grants: list[str] = []
        # Forget times that have come: shards go away, and nobody tells.
        self._not_before = {shard_id: at for shard_id, at in self._not_before.items() if at > now}
        firsts, overdue, renewals = self._queues(now)
        while firsts or overdue or renewals:
            if len(self._granted) == self._limit and now < self._granted[0] + self._period:
                break
            from_overdue = bool(overdue) and (self._overdue_in_a_row < OVERDUE_SHARE or not firsts)
            shard_id = (overdue if from_overdue else firsts or renewals).popleft()
            self._overdue_in_a_row = self._overdue_in_a_row + 1 if from_overdue else 0
            self._granted.append(now)
            self._not_before[shard_id] = now + SHARD_INTERVAL
            del self._waiting[shard_id]
            grants.append(shard_id)
        return grants, self._next_time(now)

    def _queues(self, now: float) -> tuple[deque[str], deque[str], deque[str]]:
        """Return who may go now, in order: shards without a subscription, renewals that waited long, others."""
        firsts, overdue, renewals = deque[str](), deque[str](), deque[str]()
        for shard_id, ticket in self._waiting.items():
            if shard_id in self._not_before:
                continue
            if not ticket.renewal:
                firsts.append(shard_id)
            elif now - ticket.since >= RENEWAL_PATIENCE:
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


class Backoff:
    """Exponential backoff with full jitter (AWS Architecture Blog: "Exponential Backoff And Jitter").

    `first` and `most` are seconds; `random` returns a number from 0 to 1.
    """

    __slots__ = ("_attempt", "_first", "_most", "_random")

    def __init__(self, random: Callable[[], float], *, first: float = 0.5, most: float = 30.0) -> None:
        self._random = random
        self._first = first
        self._most = most
        self._attempt = 0

    def next(self) -> float:
        """Return how long to wait now, in seconds."""
        ceiling = min(self._most, self._first * 2.0 ** min(self._attempt, 30))
        self._attempt += 1
        return ceiling * self._random()

    def reset(self) -> None:
        """Start over: something worked."""
        self._attempt = 0
