"""One shard: its records in order, its place in the lineage, and who waits for news of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter

import msgspec

from efo.model import ChildShard, HashKeyRange, Record, Shard
from efo.testing.state.encryption import Encryption
from efo.testing.state.listeners import Listeners
from efo.testing.state.sequence_numbers import Sequence

_BY_SEQUENCE = attrgetter("sequence_number")
_BY_ARRIVAL = attrgetter("approximate_arrival_timestamp")


class StoredRecord(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """A record as it is kept, and as it goes to the wire (AWS: Record)."""

    approximate_arrival_timestamp: float
    data: bytes
    partition_key: str
    sequence_number: str
    encryption_type: str = "NONE"

    def as_record(self) -> Record:
        """Return the record in the library's own words."""
        return Record(
            self.sequence_number,
            self.approximate_arrival_timestamp,
            self.data,
            self.partition_key,
            self.encryption_type,
        )


def shard_id(number: int) -> str:
    """Return the id that AWS gives to the shard of this number."""
    return f"shardId-{number:012d}"


class ShardState:
    """A shard. `start` and `end` are its hash keys, both included; `opened_at` and `closed_at` milliseconds.

    `records`: those that are still kept; `trimmed`: how many before them are gone. An index counts from the shard's
    very first record, so that trimming moves none. `encryption`: its stream's. `listeners` are called after records
    were added, after the shard was closed, and when its stream's key begins to fail.
    """

    __slots__ = (
        "_sequence", "children", "closed_at", "encryption", "end", "ending_number", "id", "listeners", "number",
        "opened_at", "parents", "records", "start", "starting_number", "trimmed",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        start: int,
        end: int,
        now_millis: int,
        parents: tuple[ShardState, ...] = (),
        encryption: Encryption | None = None,
    ) -> None:
        self.number = number
        self.encryption = encryption if encryption is not None else Encryption()
        self.id = shard_id(number)
        self.start = start
        self.end = end
        self.parents = tuple(parent.id for parent in parents)
        # A child's first number is greater than every number of its parents.
        newest = max((parent.newest for parent in parents), default=(now_millis, 0))
        self._sequence = Sequence(number, *newest)
        self.starting_number = self._sequence.next(now_millis)
        self.opened_at = self._sequence.millis
        self.closed_at: int | None = None
        self.ending_number: str | None = None
        self.records: list[StoredRecord] = []
        self.trimmed = 0
        self.children: tuple[ShardState, ...] = ()
        self.listeners = Listeners()

    @property
    def is_open(self) -> bool:
        """Whether the shard still takes records."""
        return self.closed_at is None

    @property
    def newest(self) -> tuple[int, int]:
        """Milliseconds and counter of the newest sequence number."""
        return self._sequence.millis, self._sequence.counter

    @property
    def end_index(self) -> int:
        """The index that the next record gets."""
        return self.trimmed + len(self.records)

    def append(self, partition_key: str, data: bytes, now_millis: int) -> StoredRecord:
        """Add a record. The caller tells the listeners, once for all the records that it adds."""
        number = self._sequence.next(now_millis)
        record = StoredRecord(self._sequence.millis / 1000, data, partition_key, number, self.encryption.type)
        self.records.append(record)
        return record

    def tick(self, now_millis: int) -> str:
        """Return a number that no record has: greater than all given so far, less than all later ones."""
        return self._sequence.next(now_millis)

    def close(self, now_millis: int) -> None:
        """Take no more records. The children are set, and the listeners told, by the caller."""
        self.ending_number = self._sequence.next(now_millis)
        self.closed_at = self._sequence.millis

    def notify(self) -> None:
        """Tell the listeners that there is news."""
        self.listeners.tell()

    def index_at(self, sequence_number: str) -> int:
        """Return the index of the first record whose number is not less than this one."""
        return self.trimmed + bisect_left(self.records, sequence_number, key=_BY_SEQUENCE)

    def index_after(self, sequence_number: str) -> int:
        """Return the index of the first record whose number is greater than this one."""
        return self.trimmed + bisect_right(self.records, sequence_number, key=_BY_SEQUENCE)

    def index_at_time(self, timestamp: float) -> int:
        """Return the index of the first record that arrived at or after this time (epoch seconds)."""
        return self.trimmed + bisect_left(self.records, timestamp, key=_BY_ARRIVAL)

    def trim(self, before: float) -> None:
        """Forget the records that arrived before this time (epoch seconds)."""
        gone = bisect_left(self.records, before, key=_BY_ARRIVAL)
        del self.records[:gone]
        self.trimmed += gone

    def behind_latest(self, index: int, now_millis: int) -> int:
        """Return the age of the record at `index` in milliseconds, at least 1; 0 where there is none yet."""
        if index >= self.end_index:
            return 0
        arrived = self.records[max(0, index - self.trimmed)].approximate_arrival_timestamp
        return max(1, now_millis - round(arrived * 1000))

    def read(self, index: int, most_records: int, most_bytes: int) -> list[StoredRecord]:
        """Return records from `index` on, or from the first that is kept: at least one, whatever its size."""
        start = max(0, index - self.trimmed)
        records = self.records[start : start + most_records]
        size = 0
        for count, record in enumerate(records):
            size += len(record.data) + len(record.partition_key)
            if size > most_bytes and count:
                return records[:count]
        return records

    def hash_key_range(self) -> HashKeyRange:
        """Return the hash keys that the shard takes, as the wire tells them."""
        return HashKeyRange(str(self.start), str(self.end))

    def as_child(self) -> ChildShard:
        """Return the shard as its parents' last event tells it."""
        return ChildShard(self.id, self.parents, self.hash_key_range())

    def as_shard(self) -> Shard:
        """Return the shard as ListShards tells it."""
        parent, adjacent = (*self.parents, None, None)[:2]
        return Shard(self.id, self.hash_key_range(), self.starting_number, self.ending_number, parent, adjacent)
