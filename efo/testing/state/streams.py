"""One stream: its settings and status, puts, the shard of each hash key, splits and merges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from hashlib import md5
from itertools import pairwise
from operator import attrgetter
from typing import Final, Literal, get_args

from efo.model import MAX_HASH_KEY, Shard
from efo.testing.errors import FakeError, invalid_argument, not_found, stream_and_account, validation
from efo.testing.state.shards import ShardState, StoredRecord, record_size, shard_id as id_of, shard_number
from efo.testing.state.tags import Encryption, Tags

MAX_PARTITION_KEY: Final = 256
DistributionStrategy = Literal["AUTO", "USER_PARTITION_KEY"]
"""How the records of a stream are distributed (AWS: RecordDistributionStrategy)."""


class StreamState:
    """A stream and its shards. Times are seconds since the epoch, except `now_millis`: milliseconds.

    `mode`: PROVISIONED or ON_DEMAND. `distribution`: AUTO gives the records to the open shards in turn.
    `metrics`: the metrics of EnableEnhancedMonitoring. `scalings`: the times of UpdateShardCount calls.
    `trimmed_at`: the time of the last trim. `creating_until`, `updating_until`: the end of these states.
    `deleted_at`: when the deletion is complete; the stream is DELETING until then. `policy`: the resource policy, in
    JSON.
    """

    def __init__(
        self, name: str, arn: str, shard_count: int, now: float, *, retention_hours: float, max_record_bytes: int
    ) -> None:
        self.name = name
        self.arn = arn
        self.created_at = now
        self.retention_hours = retention_hours
        self.max_record_bytes = max_record_bytes
        self.mode = "PROVISIONED"
        self.distribution: DistributionStrategy = "USER_PARTITION_KEY"
        self._distributed = 0
        self.encryption = Encryption()
        self.tags = Tags()
        self.policy: str | None = None
        self.metrics: set[str] = set()
        self.scalings: list[float] = []
        self.creating_until = now
        self.updating_until = now
        self._change: Callable[[int], object] | None = None
        self.deleted_at: float | None = None
        self.trimmed_at = now
        self._next_number = 0
        self.shards: dict[str, ShardState] = {}
        bounds = [i * (MAX_HASH_KEY + 1) // shard_count for i in range(shard_count + 1)]
        for start, following in pairwise(bounds):
            self._add(start, following - 1, int(now * 1000))
        self._index_open()

    def _add(self, start: int, end: int, now_millis: int, parents: tuple[ShardState, ...] = ()) -> ShardState:
        shard = ShardState(self._next_number, start, end, now_millis, parents, self.encryption)
        self._next_number += 1
        self.shards[shard.id] = shard
        return shard

    def replace_shards(self, shards: Iterable[Shard], now_millis: int) -> None:
        """Have these shards and no others, without records: those of another stream, of which a recording tells.

        An empty starting or ending sequence number is replaced by one of the fake. Raises ValueError: an id or a hash
        key is invalid, or the open shards do not have each hash key once.
        """
        restored = [ShardState.restore(shard, now_millis, self.encryption) for shard in shards]
        opened = sorted((shard for shard in restored if shard.is_open), key=attrgetter("start"))
        bounds = [(0, -1), *((shard.start, shard.end) for shard in opened), (MAX_HASH_KEY + 1, 0)]
        if any(lower_end + 1 != start for (_, lower_end), (start, _) in pairwise(bounds)):
            raise ValueError("its open shards do not have each hash key once")
        self.shards = {shard.id: shard for shard in restored}
        for shard in restored:
            shard.children = tuple(child for child in restored if shard.id in child.parents)
        self._next_number = max(shard.number for shard in restored) + 1
        self._index_open()

    def _index_open(self) -> None:
        self._open = sorted((s for s in self.shards.values() if s.is_open), key=attrgetter("start"))
        self._starts = [shard.start for shard in self._open]

    def status(self, now: float) -> str:
        """Return CREATING, ACTIVE, UPDATING or DELETING (AWS: StreamStatus)."""
        if self.deleted_at is not None:
            return "DELETING"
        if now < self.creating_until:
            return "CREATING"
        return "UPDATING" if now < self.updating_until else "ACTIVE"

    def update(self, until: float, change: Callable[[int], object]) -> None:
        """Be UPDATING until this time. `change` is applied at the end of it, with the time in milliseconds.

        Until then the stream has its old shards, and records go to them (observed on AWS).
        """
        self.updating_until = until
        self._change = change

    def settle(self, now: float) -> None:
        """Apply the change of an UPDATING that has ended at `now`."""
        if self._change is not None and now >= self.updating_until:
            change, self._change = self._change, None
            change(int(self.updating_until * 1000))

    def end_update(self, now: float) -> None:
        """End an UPDATING at once, at `now`: the stream is ACTIVE, and its change is applied."""
        self.updating_until = min(self.updating_until, now)
        self.settle(now)

    @property
    def title(self) -> str:
        """The stream in the words of AWS's error messages: "stream NAME under account ACCOUNT"."""
        return f"stream {self.name} under account {stream_and_account(self.arn)[1]}"

    @property
    def open_shards(self) -> list[ShardState]:
        """The open shards, in the order of their hash keys."""
        return self._open

    def shard(self, shard_id: str) -> ShardState:
        """Return a shard, by its id or another of its names (`shard_number`). Raises ResourceNotFoundException."""
        number = self._shard_number(shard_id)
        if (shard := self.shards.get(id_of(number))) is None:
            raise not_found(f"Shard {id_of(number)} in {self.title} does not exist")
        return shard

    def _shard_number(self, shard_id: str) -> int:
        if (number := shard_number(shard_id)) is None:
            raise not_found(f"Could not find shard {shard_id} in {self.title}.")
        return number

    def shard_of(self, hash_key: int) -> ShardState:
        """Return the open shard of this hash key."""
        return self._open[bisect_right(self._starts, hash_key) - 1]

    def distribute(self, strategy: DistributionStrategy) -> None:
        """Set the strategy, which only streams in ON_DEMAND mode have (AWS: UpdateStreamRecordDistributionStrategy).

        It takes effect at once. Raises InvalidArgumentException.
        """
        if strategy not in get_args(DistributionStrategy):
            raise validation(f"Value '{strategy}' at 'recordDistributionStrategy' failed to satisfy constraint")
        if strategy == "AUTO" and self.mode != "ON_DEMAND":
            raise only_on_demand(self.name)
        self.distribution = strategy

    def put(
        self, partition_key: str | None, data: bytes, now_millis: int, explicit_hash_key: str | None = None
    ) -> tuple[ShardState, StoredRecord]:
        """Add one record (AWS: PutRecord). Raises FakeError as `check_record` does."""
        shard = self.shard_for(partition_key, data, explicit_hash_key)
        record = shard.append(partition_key, data, now_millis)
        shard.notify()
        return shard, record

    def shard_for(self, partition_key: str | None, data: bytes, explicit_hash_key: str | None = None) -> ShardState:
        """Return the open shard for this record. Raises FakeError as `check_record` does.

        With the strategy AUTO, keys are ignored: the open shards get the records in turn, in the order of their hash
        keys.
        """
        self.check_record(partition_key, data, explicit_hash_key)
        if partition_key is None or self.distribution == "AUTO":
            self._distributed += 1
            return self._open[self._distributed % len(self._open)]
        return self.shard_of(int(explicit_hash_key) if explicit_hash_key is not None else hash_key_of(partition_key))

    def put_many(self, records: Iterable[tuple[str | None, bytes]], now_millis: int) -> int:
        """Add (partition key, data) pairs in order. Return their number.

        Listeners are called once, after all records are added. Raises FakeError, as `check_record` does, at the first
        invalid record; the records before it are kept.
        """
        touched: dict[ShardState, None] = {}  # ordered, so that runs under a virtual clock are repeatable
        count = 0
        try:
            for partition_key, data in records:
                shard = self.shard_for(partition_key, data)
                shard.append(partition_key, data, now_millis)
                touched[shard] = None
                count += 1
        finally:
            for shard in touched:
                shard.notify()
        return count

    def check_record(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | None = None,
        member: str = "partitionKey",
    ) -> None:
        """Raise InvalidArgumentException if AWS would reject the record; ValidationException if it lacks its key.

        `member`: the partition key in the message. Only the strategy AUTO allows records without one.
        """
        if partition_key is None and self.distribution != "AUTO":
            raise validation(
                f"1 validation error detected: Value null at '{member}' failed to satisfy constraint: "
                "Member must not be null"
            )
        if partition_key is not None and not 1 <= len(partition_key) <= MAX_PARTITION_KEY:
            raise invalid_argument(f"PartitionKey has {len(partition_key)} characters: expected 1 to 256")
        size = record_size(partition_key, data)
        if size > self.max_record_bytes:
            raise invalid_argument(f"A record has {size} bytes: at most {self.max_record_bytes} are allowed")
        if explicit_hash_key is not None:
            parse_hash_key(explicit_hash_key, "ExplicitHashKey")

    def split(self, shard_id: str, at: int | None, now_millis: int) -> tuple[ShardState, ShardState]:
        """Split a shard (AWS: SplitShard). `at`: the first hash key of the second child; None: the middle.

        Raises FakeError as `check_split` does.
        """
        boundary = self.check_split(shard_id, at)
        parent = self.shard(shard_id)
        parent.close(now_millis)
        lower = self._add(parent.start, boundary - 1, now_millis, (parent,))
        upper = self._add(boundary, parent.end, now_millis, (parent,))
        parent.children = (lower, upper)
        self._index_open()
        parent.notify()
        return lower, upper

    def check_split(self, shard_id: str, at: int | None) -> int:
        """Return the first hash key of the second child. Raises ResourceNotFoundException, InvalidArgumentException.

        AWS leaves at least two hash keys to each child.
        """
        parent = self._open_shard(shard_id)
        boundary = (parent.start + parent.end) // 2 + 1 if at is None else at
        if not parent.start + 1 < boundary < parent.end:
            raise invalid_argument(
                f"NewStartingHashKey {boundary} used in SplitShard() on shard {parent.id} in {self.title} is not both "
                f"greater than one plus the shard's StartingHashKey {parent.start} and less than the shard's "
                f"EndingHashKey {parent.end}."
            )
        return boundary

    def merge(self, shard_id: str, adjacent_id: str, now_millis: int) -> ShardState:
        """Merge two open shards with adjacent hash key ranges (AWS: MergeShards).

        Raises FakeError as `check_merge` does.
        """
        parents = lower, upper = self.check_merge(shard_id, adjacent_id)
        for parent in parents:
            parent.close(now_millis)
        child = self._add(lower.start, upper.end, now_millis, parents)
        for parent in parents:
            parent.children = (child,)
        self._index_open()
        for parent in parents:
            parent.notify()
        return child

    def check_merge(self, shard_id: str, adjacent_id: str) -> tuple[ShardState, ShardState]:
        """Return the shards to merge. Raises ResourceNotFoundException.

        Raises InvalidArgumentException: a shard is closed, or the second shard is not the one after the first.
        """
        lower, upper = self._open_shard(shard_id), self._open_shard(adjacent_id)
        if lower.end + 1 != upper.start:
            raise invalid_argument(
                f"Shards {lower.id} and {upper.id} in {self.title} are not an adjacent pair of shards eligible for "
                "merging"
            )
        return lower, upper

    def _open_shard(self, shard_id: str) -> ShardState:
        number = self._shard_number(shard_id)
        if (shard := self.shards.get(id_of(number))) is None:
            raise not_found(f"Could not find shard {id_of(number)} in {self.title}.")
        if not shard.is_open:
            raise invalid_argument(f"Shard {shard.id} in {self.title} is closed: only open shards can reshard")
        return shard


def only_on_demand(stream: str) -> FakeError:
    """Return the error of a provisioned stream that would have the strategy AUTO."""
    return invalid_argument(
        "RecordDistributionStrategy=AUTO is only supported for on-demand streams. "
        f"Stream {stream} is using PROVISIONED mode."
    )


def hash_key_of(partition_key: str) -> int:
    """Return the hash key of a partition key: the MD5 of its UTF-8 bytes as a number (AWS: PutRecord)."""
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest(), "big")


def parse_hash_key(text: str, name: str) -> int:
    """Parse a hash key in decimal digits. Raises InvalidArgumentException; `name`: the member in its message."""
    if not (text.isascii() and text.isdigit()) or int(text[:40]) > MAX_HASH_KEY:
        raise invalid_argument(f"Invalid {name} {text!r}: expected decimal digits, at most {MAX_HASH_KEY}")
    return int(text)
