"""What a consumer knows of its shards, as a test sets it."""

from __future__ import annotations

from efo.health import IsolatedShard, LeaseCounts, ShardReading

NOW = 500.0
NO_LEASES = LeaseCounts({}, 0, {})


class FakeReadings:
    """A source of readings at the time `NOW`. `counted` None: the lease table is unknown."""

    def __init__(self, *shards: ShardReading, counts: LeaseCounts | None = NO_LEASES) -> None:
        self.time = NOW
        self.known = shards
        self.counted = counts
        self.failed: tuple[IsolatedShard, ...] = ()

    def now(self) -> float:
        return self.time

    def shards(self) -> tuple[ShardReading, ...]:
        return self.known

    def isolated(self) -> tuple[IsolatedShard, ...]:
        return self.failed

    def counts(self) -> LeaseCounts | None:
        return self.counted
