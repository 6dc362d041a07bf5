"""Frozen values: records, batches, shards, positions, checkpoints, leases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import msgspec

from efo.checks import shown
from efo.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_HASH_KEY: Final = 2**128 - 1
"""The hash-key space of a stream is 0 to 2**128 - 1 (AWS: HashKeyRange)."""
MAX_SEQUENCE_DIGITS: Final = 129
"""The maximum number of digits of a sequence number (AWS: SequenceNumber, pattern)."""


class Record(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """One user record: a plain Kinesis record, or one of a KPL aggregate.

    It is decoded straight from the wire, so its fields have the types of the wire format.

    `sequence_number`: decimal digits; the sequence number of the Kinesis record that contained this record. Compare
    sequence numbers as integers.
    `approximate_arrival_timestamp`: seconds since the epoch, with milliseconds; 0 if the service did not send it.
    `data`: the payload.
    `partition_key`: 1 to 256 characters; None if the record was put without one, which a stream with the record
    distribution strategy AUTO allows.
    `encryption_type`: "NONE" or "KMS"; None if the service did not send it.
    `sub_sequence_number`: the index in the KPL aggregate; 0 for a plain record.
    `explicit_hash_key`: decimal digits; only set for records of a KPL aggregate; None if it is not a valid hash key.
    `tags`: KPL tags, as pairs.
    """

    sequence_number: str
    approximate_arrival_timestamp: float
    data: bytes
    partition_key: str | None = None
    encryption_type: str | None = None
    sub_sequence_number: int = 0
    explicit_hash_key: str | None = None
    tags: tuple[tuple[str, str | None], ...] = ()


class HashKeyRange(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """A range of hash keys, both ends included, as decimal digits (AWS: HashKeyRange)."""

    starting_hash_key: str
    ending_hash_key: str

    def __contains__(self, hash_key: int) -> bool:
        """Return whether the hash key is in the range."""
        return int(self.starting_hash_key) <= hash_key <= int(self.ending_hash_key)


class ChildShard(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """A child shard in the last event of its parent (AWS: ChildShard)."""

    shard_id: str
    parent_shards: tuple[str, ...]
    hash_key_range: HashKeyRange


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as ListShards describes it. `ending_sequence_number` is None while the shard is open."""

    shard_id: str
    hash_key_range: HashKeyRange
    starting_sequence_number: str
    ending_sequence_number: str | None = None
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of its parents: none, one (after a split) or two (after a merge)."""
        return tuple(p for p in (self.parent_shard_id, self.adjacent_parent_shard_id) if p is not None)

    @property
    def is_open(self) -> bool:
        """Whether the shard accepts records."""
        return self.ending_sequence_number is None


class PositionType(StrEnum):
    """The five starting positions of SubscribeToShard."""

    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"


def is_decimal(text: str) -> bool:
    """Return whether the text is decimal digits, as sequence numbers and hash keys are, and not too many."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_SEQUENCE_DIGITS


def is_shard_id(text: str) -> bool:
    """Return whether the text may be a shard's id (AWS: ShardId). It becomes a lease's key, and is logged."""
    return _SHARD_ID.fullmatch(text) is not None


_SHARD_ID: Final = re.compile(r"[a-zA-Z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a subscription starts (AWS: StartingPosition). `timestamp` is seconds since the epoch."""

    type: PositionType
    sequence_number: str | None = None
    timestamp: float | None = None

    @classmethod
    def trim_horizon(cls) -> Self:
        """Start at the oldest record that the stream retains."""
        return cls(PositionType.TRIM_HORIZON)

    @classmethod
    def latest(cls) -> Self:
        """Start after the newest record."""
        return cls(PositionType.LATEST)

    @classmethod
    def at_timestamp(cls, timestamp: float) -> Self:
        """Start at the first record that arrived at this time or later (seconds since the epoch)."""
        return cls(PositionType.AT_TIMESTAMP, timestamp=timestamp)

    @classmethod
    def at(cls, sequence_number: str) -> Self:
        """Start at the record with this sequence number."""
        return cls(PositionType.AT_SEQUENCE_NUMBER, sequence_number=sequence_number)

    @classmethod
    def after(cls, sequence_number: str) -> Self:
        """Start after the record with this sequence number."""
        return cls(PositionType.AFTER_SEQUENCE_NUMBER, sequence_number=sequence_number)

    def __str__(self) -> str:
        details = (str(detail) for detail in (self.sequence_number, self.timestamp) if detail is not None)
        return " ".join((self.type.value, *details))


_SENTINEL_ORDER: Final = {"AT_TIMESTAMP": -3, "TRIM_HORIZON": -2, "LATEST": -1, "SHARD_END": 1}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a shard has been processed: up to and including this record (rule R3), or a sentinel.

    `sequence_number`: decimal digits, or a sentinel of KCL. TRIM_HORIZON, LATEST and AT_TIMESTAMP say where to start a
    shard that was never read. SHARD_END says that the shard is finished; it is a state, not a position (rule R2).
    `sub_sequence_number`: the index in a KPL aggregate.

    Checkpoints compare as in KCL: AT_TIMESTAMP < TRIM_HORIZON < LATEST < sequence numbers < SHARD_END. Raises
    ConfigurationError for any other text.
    """

    TRIM_HORIZON: ClassVar[Checkpoint]
    LATEST: ClassVar[Checkpoint]
    AT_TIMESTAMP: ClassVar[Checkpoint]
    SHARD_END: ClassVar[Checkpoint]

    sequence_number: str
    sub_sequence_number: int = 0
    _key: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = self.sequence_number
        if not isinstance(text, str):
            raise ConfigurationError(f"sequence_number={shown(text)}: expected a text of decimal digits")
        if type(self.sub_sequence_number) is not int or self.sub_sequence_number < 0:
            raise ConfigurationError(f"sub_sequence_number={shown(self.sub_sequence_number)}: expected 0 or more")
        if text in _SENTINEL_ORDER:
            key = (_SENTINEL_ORDER[text], 0, 0)
        elif is_decimal(text):
            key = (0, int(text), self.sub_sequence_number)
        else:
            raise ConfigurationError(
                f"{text[:200]!r} is not a checkpoint: expected decimal digits or one of {', '.join(_SENTINEL_ORDER)}"
            )
        object.__setattr__(self, "_key", key)

    @property
    def is_sentinel(self) -> bool:
        """Whether this is a sentinel and not a record's position."""
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


Checkpoint.TRIM_HORIZON = Checkpoint("TRIM_HORIZON")
Checkpoint.LATEST = Checkpoint("LATEST")
Checkpoint.AT_TIMESTAMP = Checkpoint("AT_TIMESTAMP")
Checkpoint.SHARD_END = Checkpoint("SHARD_END")


def checkpoint_of(record: Record) -> Checkpoint:
    """Return the checkpoint up to and including this record."""
    return Checkpoint(record.sequence_number, record.sub_sequence_number)


@dataclass(frozen=True, slots=True)
class Batch:
    """The user records of one event of one shard, in order; or some of them, if the event has large KPL aggregates.

    Iterate over it for its records; `len(batch)` counts them.

    `stream`: the stream's name.
    `shard_id`: the shard's id.
    `records`: the user records, after deaggregation; may be empty.
    `continuation`: the sequence number after which the subscription continues; None at the end of the shard, and if the
    event has more user records than this batch.
    `millis_behind_latest`: how far the batch is behind the tip of the shard, in milliseconds.
    `number`: the index of the batch since its shard task started. It identifies the batch in acks.
    """

    stream: str
    shard_id: str
    records: tuple[Record, ...]
    continuation: str | None
    millis_behind_latest: int
    number: int

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def to_arrow(self) -> pa.RecordBatch:
        """Return the records as columns, for pyarrow, pandas, Polars or DuckDB.

        The columns have the names of `Record`. `approximate_arrival_timestamp` is in milliseconds, UTC, and null where
        the service did not send it. `partition_key` is null where a record has none. Tags are a list of pairs. The
        schema's metadata has `stream` and `shard_id`.
        Raises MissingExtraError without pyarrow.
        """
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra
            import pyarrow.compute  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError("Batch.to_arrow needs pyarrow: pip install 'efo[arrow]'") from error
        origin = {"stream": self.stream, "shard_id": self.shard_id}
        return pa.RecordBatch.from_pydict(self._columns(pa), metadata=origin)

    def _columns(self, pa: Any) -> dict[str, pa.Array]:
        """Return the columns. `pa`: pyarrow, with `pyarrow.compute`."""
        records = self.records
        milliseconds = [round(record.approximate_arrival_timestamp * 1000) or None for record in records]
        tag = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
        return {
            "sequence_number": pa.array([record.sequence_number for record in records], pa.string()),
            "sub_sequence_number": pa.array([record.sub_sequence_number for record in records], pa.int64()),
            "approximate_arrival_timestamp": pa.array(milliseconds, pa.timestamp("ms", "UTC")),
            "partition_key": pa.array([record.partition_key for record in records], pa.string()),
            "data": pa.array([record.data for record in records], pa.binary()),
            "encryption_type": pa.array([record.encryption_type for record in records], pa.string()),
            "explicit_hash_key": pa.array([record.explicit_hash_key for record in records], pa.string()),
            "tags": pa.array([record.tags for record in records], pa.list_(tag)),
        }


@dataclass(frozen=True, slots=True)
class ShardRead:
    """What one call of GetRecords read from a shard.

    `records`: Kinesis records in order, not deaggregated; maybe none, even if more follow. `iterator`: of the next
    call; None at the end of the shard. `millis_behind_latest`: how far it is behind the tip of the shard, in
    milliseconds. `children`: at the end of the shard, its child shards.
    """

    records: tuple[Record, ...]
    iterator: str | None
    millis_behind_latest: int
    children: tuple[ChildShard, ...] = ()


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one worker to read one shard, and the shard's checkpoint.

    `key`: the shard's id. `owner`: the id of the worker that owns the lease; None if it is free.
    `checkpoint_owner`: during a graceful hand-off, the worker that still reads and checkpoints the shard while `owner`
    waits for it (KCL 3: checkpointOwner); None otherwise. See `holder`.
    `counter`: grows with every renewal, take and checkpoint. Every write is conditional on it.
    `owner_switches`: the number of changes of owner since the last checkpoint.
    `pending_checkpoint`, `pending_checkpoint_state`: a two-phase checkpoint that was prepared and not yet committed,
    and the application's bytes that belong to it (KCL: prepareCheckpoint).
    `throughput_kbps`: the shard's throughput in KB per second, as its holder measured it; None if unknown.
    `parents`, `children`: shard ids. Children are known after the end of the shard was read.
    `latest_at`: the time that the checkpoint LATEST stands for: when the lease was created, by the service's clock, in
    seconds since the epoch. So each worker starts at the same place, whenever it takes the lease (rule R4). In a lease
    that was reset, the time that AT_TIMESTAMP stands for. None in rows that other libraries wrote.
    `stream_created_at`: when the stream was created whose shard this is: a stream is its name and this time (rule R15).
    None in rows that other libraries and earlier versions wrote, until a worker holds the lease.
    `unread_since`: every record of the shard that arrived later is still to be read; those before are done, or nobody
    wanted them. It belongs to the checkpoint, and tells what may have expired unread (rule R5). None if unknown.
    Times are seconds since the epoch, by the service's clock.
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
    stream_created_at: float | None = None
    unread_since: float | None = None

    @property
    def holder(self) -> str | None:
        """The worker that may read the shard: during a hand-off the previous owner, otherwise the owner."""
        return self.owner if self.checkpoint_owner is None else self.checkpoint_owner

    @property
    def is_finished(self) -> bool:
        """Whether the shard was read to its end."""
        return self.checkpoint.sequence_number == "SHARD_END"


@dataclass(frozen=True, slots=True)
class FanOutConsumer:
    """A registered stream consumer. `status` is CREATING, ACTIVE or DELETING."""

    name: str
    arn: str
    status: str

    @property
    def created_at(self) -> float:
        """When it was registered, in seconds since the epoch. The ARN ends with that time (AWS: ConsumerARN)."""
        return float(self.arn.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A stream as DescribeStreamSummary describes it.

    `retention_hours`: RetentionPeriodHours; AWS has whole hours. `key_id`: the KMS key that encrypts its records, None
    without encryption. `created_at`: StreamCreationTimestamp, in seconds since the epoch; None if the service does not
    send it. `max_record_bytes`: the maximum size of data and partition key of a record (AWS: MaxRecordSizeInKiB).
    `mode`: PROVISIONED or ON_DEMAND; None if the service does not send it. `distribution`: its record distribution
    strategy: USER_PARTITION_KEY, or AUTO if the service places each record. `queues`: how many queues it has: each
    counts as a consumer (AWS: QueueCount).
    """

    name: str
    arn: str
    status: str
    retention_hours: float
    key_id: str | None = None
    created_at: float | None = None
    max_record_bytes: int = 1024 * 1024
    mode: str | None = None
    distribution: str = "USER_PARTITION_KEY"
    queues: int = 0

    @property
    def is_auto(self) -> bool:
        """Whether the service distributes the records: keys have no order then, and records may have none."""
        return self.distribution == "AUTO"


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """How much of its quotas an account uses in a region (AWS: DescribeLimits).

    `open_shards`, `shard_limit`: of all provisioned streams. `on_demand_streams`, `on_demand_limit`: streams in
    ON_DEMAND mode.
    """

    open_shards: int
    shard_limit: int
    on_demand_streams: int
    on_demand_limit: int
