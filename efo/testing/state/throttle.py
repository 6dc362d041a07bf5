"""How often operations may be called, and how fast shards may be read and written (AWS: quotas and limits)."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from efo.testing.errors import FakeError, limit_exceeded

READ_BYTES_PER_SECOND: Final = 2 * 1024 * 1024
"""What GetRecords gives of one shard."""
READS_PER_SECOND: Final = 5
"""How often GetRecords may be called about one shard."""
WRITE_BYTES_PER_SECOND: Final = 1024 * 1024
"""What PutRecord and PutRecords may put into one shard, partition keys included."""
WRITES_PER_SECOND: Final = 1000
"""How many records they may put into one shard."""
_WINDOW: Final = 1.0


@dataclass(frozen=True, slots=True)
class Limit:
    """So many calls a second, counted for the whole account or for each stream."""

    calls: int
    scope: Literal["account", "stream"]


LIMITS: Final[dict[str, Limit]] = {
    "AddTagsToStream": Limit(5, "account"),
    "CreateStream": Limit(5, "account"),
    "DecreaseStreamRetentionPeriod": Limit(5, "account"),
    "DeleteStream": Limit(5, "account"),
    "DeregisterStreamConsumer": Limit(5, "stream"),
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
"""By operation. One that is not here may be called at any rate."""


class _Flow:
    """The bytes that went in or out of one shard lately; what is more than a second's worth counts for longer."""

    def __init__(self, bytes_per_second: int) -> None:
        self._most = bytes_per_second
        self._went: deque[tuple[float, int]] = deque()
        self._total = 0

    def admits(self, size: int, now: float) -> bool:
        """Tell whether so many bytes may go. An idle shard takes any number."""
        while self._went and now >= self._went[0][0] + max(_WINDOW, self._went[0][1] / self._most):
            self._total -= self._went.popleft()[1]
        return not self._went or self._total + size <= self._most

    def add(self, size: int, now: float) -> None:
        """Count what went."""
        self._went.append((now, size))
        self._total += size


class Throttle:
    """Counts calls. `now` is in seconds since the epoch, and is expected to grow. A `shard` is told with its stream."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], deque[float]] = {}
        self._read: defaultdict[str, _Flow] = defaultdict(partial(_Flow, READ_BYTES_PER_SECOND))
        self._written: defaultdict[str, _Flow] = defaultdict(partial(_Flow, WRITE_BYTES_PER_SECOND))

    def call(self, operation: str, stream: str, now: float) -> None:
        """Count a call. Raises LimitExceededException, which counts for nothing."""
        limit = LIMITS.get(operation)
        if limit is None:
            return
        scope = "" if limit.scope == "account" else stream
        if not self._admit((operation, scope), limit.calls, now):
            of = f"stream {stream}" if scope else "the account"
            raise limit_exceeded(f"Rate exceeded for {of}: {operation} may be called {limit.calls} times a second")

    def read(self, shard: str, now: float) -> None:
        """Count a GetRecords call about a shard. Raises ProvisionedThroughputExceededException."""
        if not self._read[shard].admits(1, now) or not self._admit(("GetRecords", shard), READS_PER_SECOND, now):
            raise _rate_exceeded(shard)

    def has_read(self, shard: str, size: int, now: float) -> None:
        """Count what GetRecords gave of a shard, in bytes: 10 MiB keep the shard busy for 5 s."""
        self._read[shard].add(size, now)

    def write(self, shard: str, size: int, now: float) -> None:
        """Count a record of so many bytes that is put. Raises ProvisionedThroughputExceededException."""
        flow = self._written[shard]
        if not flow.admits(size, now) or not self._admit(("PutRecords", shard), WRITES_PER_SECOND, now):
            raise _rate_exceeded(shard)
        flow.add(size, now)

    def _admit(self, key: tuple[str, str], most: int, now: float) -> bool:
        calls = self._calls.setdefault(key, deque())
        while calls and calls[0] <= now - _WINDOW:
            calls.popleft()
        if len(calls) >= most:
            return False
        calls.append(now)
        return True


def _rate_exceeded(shard: str) -> FakeError:
    return FakeError("ProvisionedThroughputExceededException", f"Rate exceeded for shard {shard}")
