"""The rate limits of operations, and of reading and writing shards (AWS: quotas and limits)."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from efo.testing.errors import FakeError, limit_exceeded

READ_BYTES_PER_SECOND: Final = 2 * 1024 * 1024
"""Limit of GetRecords for one shard."""
READS_PER_SECOND: Final = 5
"""Maximum number of GetRecords calls for one shard."""
WRITE_BYTES_PER_SECOND: Final = 1024 * 1024
"""Limit of PutRecord and PutRecords for one shard, including partition keys."""
WRITES_PER_SECOND: Final = 1000
"""Maximum number of records of PutRecord and PutRecords for one shard."""
DRY_RUNS_PER_SECOND: Final = 1
"""Maximum number of requests with DryRun for one stream."""
_WINDOW: Final = 1.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A maximum number of calls per second, counted for the account or for each stream."""

    calls: int
    scope: Literal["account", "stream"]


LIMITS: Final[dict[str, Limit]] = {
    "AddTagsToStream": Limit(5, "account"),
    "CreateStream": Limit(5, "account"),
    "DecreaseStreamRetentionPeriod": Limit(5, "account"),
    "DeleteStream": Limit(5, "account"),
    "DeregisterStreamConsumer": Limit(5, "stream"),
    "DescribeAccountSettings": Limit(5, "account"),
    "DescribeLimits": Limit(1, "account"),
    "DescribeStream": Limit(10, "account"),
    "DescribeStreamConsumer": Limit(20, "stream"),
    "DescribeStreamSummary": Limit(20, "account"),
    "DisableEnhancedMonitoring": Limit(5, "account"),
    "EnableEnhancedMonitoring": Limit(5, "account"),
    "IncreaseStreamRetentionPeriod": Limit(5, "account"),
    "ListShards": Limit(1000, "stream"),
    "ListStreamConsumers": Limit(5, "stream"),
    "ListStreams": Limit(5, "account"),
    "ListTagsForStream": Limit(5, "account"),
    "MergeShards": Limit(5, "account"),
    "RegisterStreamConsumer": Limit(5, "account"),
    "RemoveTagsFromStream": Limit(5, "account"),
    "SplitShard": Limit(5, "account"),
}
"""By operation. Other operations have no limit."""


class _ByteRate:
    """The bytes recently read from or written to one shard.

    A transfer counts for one second, or for as long as it takes at `bytes_per_second` if that is longer.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._limit = bytes_per_second
        self._transfers: deque[tuple[float, int]] = deque()
        self._total = 0

    def admits(self, size: int, now: float) -> bool:
        """Return whether `size` bytes are allowed now. An idle shard allows any size."""
        while self._transfers and now >= self._transfers[0][0] + max(_WINDOW, self._transfers[0][1] / self._limit):
            self._total -= self._transfers.popleft()[1]
        return not self._transfers or self._total + size <= self._limit

    def add(self, size: int, now: float) -> None:
        """Count a transfer of `size` bytes."""
        self._transfers.append((now, size))
        self._total += size


class Throttle:
    """Applies the rate limits. `now`: seconds since the epoch, increasing. `shard`: STREAM/SHARD_ID."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], deque[float]] = {}
        self._read: defaultdict[str, _ByteRate] = defaultdict(partial(_ByteRate, READ_BYTES_PER_SECOND))
        self._written: defaultdict[str, _ByteRate] = defaultdict(partial(_ByteRate, WRITE_BYTES_PER_SECOND))

    def call(self, operation: str, stream: str, now: float) -> None:
        """Count a call. Raises LimitExceededException; rejected calls are not counted."""
        limit = LIMITS.get(operation)
        if limit is None:
            return
        scope = "" if limit.scope == "account" else stream
        if not self._admit((operation, scope), limit.calls, now):
            of = f"stream {stream}" if scope else "the account"
            raise limit_exceeded(f"Rate exceeded for {of}: {operation} may be called {limit.calls} times a second")

    def dry_run(self, stream: str, now: float) -> None:
        """Count a request with DryRun for a stream. Raises ThrottlingException."""
        if not self._admit(("DryRun", stream), DRY_RUNS_PER_SECOND, now):
            raise FakeError("ThrottlingException", f"Rate exceeded for dry runs of stream {stream}")

    def read(self, shard: str, now: float) -> None:
        """Count a GetRecords call for a shard. Raises ProvisionedThroughputExceededException."""
        if not self._read[shard].admits(1, now) or not self._admit(("GetRecords", shard), READS_PER_SECOND, now):
            raise _rate_exceeded(shard)

    def count_read_bytes(self, shard: str, size: int, now: float) -> None:
        """Count the bytes that GetRecords returned. After 10 MiB, reads are rejected for 5 seconds."""
        self._read[shard].add(size, now)

    def write(self, shard: str, size: int, now: float) -> None:
        """Count a put of one record of `size` bytes. Raises ProvisionedThroughputExceededException."""
        rate = self._written[shard]
        if not rate.admits(size, now) or not self._admit(("PutRecords", shard), WRITES_PER_SECOND, now):
            raise _rate_exceeded(shard)
        rate.add(size, now)

    def _admit(self, key: tuple[str, str], limit: int, now: float) -> bool:
        calls = self._calls.setdefault(key, deque())
        while calls and calls[0] <= now - _WINDOW:
            calls.popleft()
        if len(calls) >= limit:
            return False
        calls.append(now)
        return True


def _rate_exceeded(shard: str) -> FakeError:
    return FakeError("ProvisionedThroughputExceededException", f"Rate exceeded for shard {shard}")
