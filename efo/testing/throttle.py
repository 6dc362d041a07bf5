"""How often the API's operations may be called, and how fast GetRecords may read (AWS: quotas and limits)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from efo.testing.errors import FakeError, limit_exceeded

READ_BYTES_PER_SECOND: Final = 2 * 1024 * 1024
"""What GetRecords gives of one shard."""
READS_PER_SECOND: Final = 5
"""How often GetRecords may be called about one shard."""
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


class Throttle:
    """Counts calls. `now` is in seconds since the epoch, and is expected to grow."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], deque[float]] = {}
        self._reads: dict[str, deque[tuple[float, int]]] = {}

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
        reads = self._reads.setdefault(shard, deque())
        while reads and now >= reads[0][0] + max(_WINDOW, reads[0][1] / READ_BYTES_PER_SECOND):
            reads.popleft()
        too_much = sum(size for _, size in reads) >= READ_BYTES_PER_SECOND
        if too_much or not self._admit(("GetRecords", shard), READS_PER_SECOND, now):
            raise FakeError("ProvisionedThroughputExceededException", f"Rate exceeded for shard {shard}")

    def has_read(self, shard: str, size: int, now: float) -> None:
        """Count what GetRecords gave of a shard, in bytes: 10 MiB keep the shard busy for 5 s."""
        self._reads.setdefault(shard, deque()).append((now, size))

    def _admit(self, key: tuple[str, str], most: int, now: float) -> bool:
        calls = self._calls.setdefault(key, deque())
        while calls and calls[0] <= now - _WINDOW:
            calls.popleft()
        if len(calls) >= most:
            return False
        calls.append(now)
        return True
