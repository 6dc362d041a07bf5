"""The frozen values that travel through efo: records, batches, shards, positions, leases."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

import msgspec

from efo.errors import ConfigurationError

MAX_HASH_KEY: Final = 2**128 - 1
"""The hash-key space of a stream is 0 to 2**128 - 1 (AWS: HashKeyRange)."""
MAX_SEQUENCE_DIGITS: Final = 129
"""The most digits of a sequence number (AWS: SequenceNumber, its pattern)."""


class Record(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """One user record: a plain Kinesis record, or one of a KPL aggregate.

    It is decoded straight from the wire, so its fields carry the wire's types.

    `sequence_number`: decimal digits; of the Kinesis record that carried this one. Compare as integers.
    `approximate_arrival_timestamp`: seconds since the epoch, with milliseconds; 0 where the service does not tell it.
    `data`: the user's bytes.
    `partition_key`: 1 to 256 characters.
    `encryption_type`: "NONE" or "KMS" where the service tells it.
    `sub_sequence_number`: 0, or the record's index in its KPL aggregate.
    `explicit_hash_key`: decimal digits; known only inside aggregates, which carry it.
    `tags`: the KPL's tags of the record, as pairs.
    """

    sequence_number: str
    approximate_arrival_timestamp: float
    data: bytes
    partition_key: str
    encryption_type: str | None = None
    sub_sequence_number: int = 0
    explicit_hash_key: str | None = None
    tags: tuple[tuple[str, str | None], ...] = ()


class HashKeyRange(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The hash keys that a shard takes, both ends included, as decimal digits."""

    starting_hash_key: str
    ending_hash_key: str

    def __contains__(self, hash_key: int) -> bool:
        """Tell whether the shard takes this hash key."""
        return int(self.starting_hash_key) <= hash_key <= int(self.ending_hash_key)


class ChildShard(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """A shard that a split or a merge made, as the parent's last event tells it (AWS: ChildShard)."""

    shard_id: str
    parent_shards: tuple[str, ...]
    hash_key_range: HashKeyRange


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as ListShards tells it. `ending_sequence_number` is None while the shard is open."""

    shard_id: str
    hash_key_range: HashKeyRange
    starting_sequence_number: str
    ending_sequence_number: str | None = None
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of its parents: none, one (split) or two (merge)."""
        return tuple(p for p in (self.parent_shard_id, self.adjacent_parent_shard_id) if p is not None)

    @property
    def is_open(self) -> bool:
        """Whether the shard still takes records."""
        return self.ending_sequence_number is None


class PositionType(StrEnum):
    """The five starting positions of SubscribeToShard."""

    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a subscription starts (AWS: StartingPosition). `timestamp` is seconds since the epoch."""

    type: PositionType
    sequence_number: str | None = None
    timestamp: float | None = None

    @classmethod
    def trim_horizon(cls) -> Self:
        """Return the oldest record that the stream still has."""
        return cls(PositionType.TRIM_HORIZON)

    @classmethod
    def latest(cls) -> Self:
        """Return the place just after the newest record."""
        return cls(PositionType.LATEST)

    @classmethod
    def at_timestamp(cls, timestamp: float) -> Self:
        """Return the first record that arrived at or after this time (seconds since the epoch)."""
        return cls(PositionType.AT_TIMESTAMP, timestamp=timestamp)

    @classmethod
    def at(cls, sequence_number: str) -> Self:
        """Return this very record."""
        return cls(PositionType.AT_SEQUENCE_NUMBER, sequence_number=sequence_number)

    @classmethod
    def after(cls, sequence_number: str) -> Self:
        """Return the record after this one."""
        return cls(PositionType.AFTER_SEQUENCE_NUMBER, sequence_number=sequence_number)

    def __str__(self) -> str:
        details = (str(detail) for detail in (self.sequence_number, self.timestamp) if detail is not None)
        return " ".join((self.type.value, *details))


_SENTINEL_ORDER: Final = {"AT_TIMESTAMP": -3, "TRIM_HORIZON": -2, "LATEST": -1, "SHARD_END": 1}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a shard is done: "up to and including" this record (rule R3), or a named state.

    `sequence_number` is decimal digits, or one of KCL's sentinels: TRIM_HORIZON, LATEST and AT_TIMESTAMP say
    where a shard not yet begun shall start, SHARD_END that it is finished for good (a state, not a position:
    rule R2). `sub_sequence_number` is the index in a KPL aggregate.

    Checkpoints are ordered as KCL orders them: AT_TIMESTAMP < TRIM_HORIZON < LATEST < numbers < SHARD_END.
    """

    sequence_number: str
    sub_sequence_number: int = 0
    _key: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = self.sequence_number
        if text in _SENTINEL_ORDER:
            key = (_SENTINEL_ORDER[text], 0, 0)
        elif text.isascii() and text.isdigit() and len(text) <= MAX_SEQUENCE_DIGITS:
            key = (0, int(text), self.sub_sequence_number)
        else:
            raise ConfigurationError(
                f"{text[:200]!r} is not a checkpoint: expected decimal digits or one of {', '.join(_SENTINEL_ORDER)}"
            )
        object.__setattr__(self, "_key", key)

    @property
    def is_sentinel(self) -> bool:
        """Whether this names a state and not a record."""
        return self._key[0] != 0

    def __lt__(self, other: Checkpoint) -> bool:
        return self._key < other._key

    def __le__(self, other: Checkpoint) -> bool:
        return self._key <= other._key

    def __gt__(self, other: Checkpoint) -> bool:
        return self._key > other._key

    def __ge__(self, other: Checkpoint) -> bool:
        return self._key >= other._key

    def __str__(self) -> str:
        sub = self.sub_sequence_number
        return f"{self.sequence_number}/{sub}" if sub else self.sequence_number


TRIM_HORIZON: Final = Checkpoint("TRIM_HORIZON")
LATEST: Final = Checkpoint("LATEST")
AT_TIMESTAMP: Final = Checkpoint("AT_TIMESTAMP")
SHARD_END: Final = Checkpoint("SHARD_END")


def checkpoint_of(record: Record) -> Checkpoint:
    """Return the checkpoint that says: done up to and including this record."""
    return Checkpoint(record.sequence_number, record.sub_sequence_number)


@dataclass(frozen=True, slots=True)
class Batch:
    """The user records of one event of one shard, in order. `records` may be empty.

    `shard_id`: the shard.
    `records`: user records, KPL aggregates taken apart.
    `continuation`: where the stream goes on after this batch; None at the end of the shard.
    `millis_behind_latest`: how far the batch is behind the shard's tip, in milliseconds.
    `number`: counts the batches of one reading of the shard, from 0; names the batch when it is acked.
    """

    shard_id: str
    records: tuple[Record, ...]
    continuation: str | None
    millis_behind_latest: int
    number: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one worker to read one shard, and how far the shard is done.

    `key`: the shard's id. `owner`: the worker's id, None while nobody holds it.
    `checkpoint_owner`: during a graceful hand-off the worker that still holds the lease: it reads and checkpoints until
    it lets go, and `owner` is the one who waits. None otherwise (KCL 3: checkpointOwner). See `holder`.
    `counter`: grows with every renewal, take and checkpoint; every write is conditional on it.
    `owner_switches`: changes of owner since the last checkpoint.
    `pending_checkpoint`, `pending_checkpoint_state`: what a two-phase checkpoint prepared and has not yet made good,
    and the bytes that its reader put beside it (KCL: prepareCheckpoint).
    `throughput_kbps`: what the shard brings, in KB per second, as its holder measured it; None where nobody did.
    `parents`, `children`: shard ids; children are known once the shard's end was seen.
    `latest_at`: what the checkpoint LATEST means: the time at which the lease was created, by the service's clock, in
    seconds since the epoch. So every worker begins at the same place, whenever it comes to it (rule R4). In a lease
    that was reset, what AT_TIMESTAMP means. None in rows that others wrote.
    """

    key: str
    checkpoint: Checkpoint
    owner: str | None = None
    counter: int = 0
    owner_switches: int = 0
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    hash_key_range: HashKeyRange | None = None
    latest_at: float | None = None
    checkpoint_owner: str | None = None
    pending_checkpoint: Checkpoint | None = None
    pending_checkpoint_state: bytes | None = None
    throughput_kbps: float | None = None

    @property
    def holder(self) -> str | None:
        """The worker that may read and write: the owner, or during a hand-off the one before."""
        return self.owner if self.checkpoint_owner is None else self.checkpoint_owner

    @property
    def is_finished(self) -> bool:
        """Whether the shard was read to its end."""
        return self.checkpoint == SHARD_END


@dataclass(frozen=True, slots=True)
class FanOutConsumer:
    """A registered stream consumer. `status` is CREATING, ACTIVE or DELETING."""

    name: str
    arn: str
    status: str

    @property
    def created_at(self) -> float:
        """When it was registered, in seconds since the epoch: an ARN ends in that (AWS: ConsumerARN)."""
        return float(self.arn.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """What DescribeStreamSummary tells that efo needs. `retention_hours` as the service counts it."""

    name: str
    arn: str
    status: str
    retention_hours: int
