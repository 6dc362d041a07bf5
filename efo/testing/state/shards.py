"""One shard: its records in order, its parents and children, and its listeners.

They are called in the order in which they were added. The order of a set would change from run to run, and runs
under a virtual clock would not be repeatable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Self

import msgspec

from efo.model import ChildShard, HashKeyRange, Record, Shard
from efo.testing.state.sequence_numbers import Sequence
from efo.testing.state.tags import Encryption

_MAX_NUMBER = 2**31 - 1
_BY_SEQUENCE = attrgetter("sequence_number")
_BY_ARRIVAL = attrgetter("approximate_arrival_timestamp")


class StoredRecord(msgspec.Struct, frozen=True, gc=False, rename="pascal", omit_defaults=True, kw_only=True):
    """A record, as stored and as sent (AWS: Record). An unencrypted record has no encryption type.

    A record that was put without a partition key has none.
    """

    approximate_arrival_timestamp: float
    data: bytes
    partition_key: str | None = None
    sequence_number: str
    encryption_type: str | None = None

    @property
    def size(self) -> int:
        """What AWS's limits count: the bytes of the data, and the characters of the partition key."""
        return record_size(self.partition_key, self.data)

    def as_record(self) -> Record:
        """Return the record as the library's `Record`."""
        return Record(
            self.sequence_number,
            self.approximate_arrival_timestamp,
            self.data,
            self.partition_key,
            self.encryption_type,
        )


def record_size(partition_key: str | None, data: bytes) -> int:
    """Return what AWS's limits count of a record."""
    return len(data) + len(partition_key or "")


def shard_id(number: int) -> str:
    """Return the shard id with this number, in AWS's format."""
    return f"shardId-{number:012d}"


def shard_number(text: str) -> int | None:
    """Return the number in a shard id; None if it has none.

    Only the number counts, whatever precedes the first hyphen: `x-0` and `0` are names of the first shard (observed).
    """
    digits = text.partition("-")[2] or text
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(digits)
    return number if number <= _MAX_NUMBER else None


class ShardState:
    """A shard.

    `start`, `end`: first and last hash key. `opened_at`, `closed_at`: milliseconds since the epoch.
    `records`: the records that are kept. `trimmed`: the number of trimmed records before them. Indexes count from the
    first record of the shard, trimmed or not, so trimming does not change them. `encryption`: that of the stream.
    `listeners` are called after records are added, after the shard is closed, and when the stream's key fails or
    works again.
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
        # The first sequence number of a child is greater than all sequence numbers of its parents.
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

    @classmethod
    def restore(cls, shard: Shard, now_millis: int, encryption: Encryption) -> Self:
        """Return a shard without records as another stream has it; see `StreamState.replace_shards`."""
        keys, number = shard.hash_key_range, shard_number(shard.shard_id)
        if number is None or any(shard_number(parent) is None for parent in shard.parents):
            raise ValueError(f"{shard.shard_id}: it or a parent has no valid id")
        restored = cls(number, int(keys.starting_hash_key), int(keys.ending_hash_key), now_millis, (), encryption)
        restored.parents = shard.parents
        restored.starting_number = shard.starting_sequence_number or restored.starting_number
        if not shard.is_open:
            restored.close(now_millis)
            restored.ending_number = shard.ending_sequence_number or restored.ending_number
        return restored

    @property
    def is_open(self) -> bool:
        """Whether the shard accepts records."""
        return self.closed_at is None

    @property
    def newest(self) -> tuple[int, int]:
        """Milliseconds and counter of the newest sequence number."""
        return self._sequence.millis, self._sequence.counter

    @property
    def end_index(self) -> int:
        """The index of the next record."""
        return self.trimmed + len(self.records)

    def append(self, partition_key: str | None, data: bytes, now_millis: int) -> StoredRecord:
        """Add a record. The caller must call `notify`, once for all the records that it adds."""
        number = self._sequence.next(now_millis)
        record = StoredRecord(
            approximate_arrival_timestamp=self._sequence.millis / 1000,
            data=data,
            partition_key=partition_key,
            sequence_number=number,
            encryption_type=self.encryption.of_records,
        )
        self.records.append(record)
        return record

    def tick(self, now_millis: int) -> str:
        """Return a sequence number without a record, greater than all earlier ones and less than all later ones."""
        return self._sequence.next(now_millis)

    def close(self, now_millis: int) -> None:
        """Close the shard for records. The caller must set `children` and call `notify`."""
        self.ending_number = self._sequence.next(now_millis)
        self.closed_at = self._sequence.millis

    def notify(self) -> None:
        """Call the listeners."""
        self.listeners.notify()

    def index_at(self, sequence_number: str) -> int:
        """Return the index of the first record with this or a greater sequence number."""
        return self.trimmed + bisect_left(self.records, sequence_number, key=_BY_SEQUENCE)

    def index_after(self, sequence_number: str) -> int:
        """Return the index of the first record with a greater sequence number."""
        return self.trimmed + bisect_right(self.records, sequence_number, key=_BY_SEQUENCE)

    def index_at_time(self, timestamp: float) -> int:
        """Return the index of the first record that arrived at or after this time (seconds since the epoch)."""
        return self.trimmed + bisect_left(self.records, timestamp, key=_BY_ARRIVAL)

    def trim(self, before: float) -> None:
        """Delete the records that arrived before this time (seconds since the epoch)."""
        expired = bisect_left(self.records, before, key=_BY_ARRIVAL)
        del self.records[:expired]
        self.trimmed += expired

    def behind_latest(self, index: int, now_millis: int) -> int:
        """Return the age of the record at `index` in milliseconds, at least 1; 0 if there is no such record yet."""
        if index >= self.end_index:
            return 0
        arrived = self.records[max(0, index - self.trimmed)].approximate_arrival_timestamp
        return max(1, now_millis - round(arrived * 1000))

    def read(self, index: int, max_records: int, max_bytes: int) -> list[StoredRecord]:
        """Return records from `index` on, or from the first kept record if `index` is trimmed.

        The first record is returned even if it is larger than `max_bytes`.
        """
        start = max(0, index - self.trimmed)
        records = self.records[start : start + max_records]
        size = 0
        for count, record in enumerate(records):
            size += record.size
            if size > max_bytes and count:
                return records[:count]
        return records

    def hash_key_range(self) -> HashKeyRange:
        """Return the range of the shard's hash keys (AWS: HashKeyRange)."""
        return HashKeyRange(str(self.start), str(self.end))

    def as_child(self) -> ChildShard:
        """Return the shard as in the last event of its parents (AWS: ChildShard)."""
        return ChildShard(self.id, self.parents, self.hash_key_range())

    def as_shard(self) -> Shard:
        """Return the shard as the library's `Shard`."""
        parent, adjacent = (*self.parents, None, None)[:2]
        return Shard(self.id, self.hash_key_range(), self.starting_number, self.ending_number, parent, adjacent)


Listener = Callable[[], None]


class Listeners:
    """Callbacks without arguments. Each is called once per notification, even if it was added twice."""

    def __init__(self) -> None:
        self._listeners: dict[Listener, None] = {}

    def __contains__(self, listener: Listener) -> bool:
        return listener in self._listeners

    def add(self, listener: Listener) -> None:
        """Add a callback."""
        self._listeners[listener] = None

    def discard(self, listener: Listener) -> None:
        """Remove a callback, if present."""
        self._listeners.pop(listener, None)

    def notify(self) -> None:
        """Call all callbacks."""
        for listener in tuple(self._listeners):
            listener()
