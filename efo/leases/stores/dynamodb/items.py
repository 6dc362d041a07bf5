"""Conversion between leases and items (rows) of KCL's lease table, without I/O.

The attributes, their types and their meanings are those of KCL (reference: DynamoDBLeaseSerializer and
DynamoDBMultiStreamLeaseSerializer of KCL 3.5). efo adds `efoLatestAt`, `efoStreamCreatedAt` and `efoUnreadSince`, which
KCL neither reads nor changes. Rows of KCL 2.x have fewer of these attributes. Other attributes are never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from efo.errors import ConfigurationError
from efo.leases.lease_row import check_time
from efo.model import Checkpoint, HashKeyRange, Lease

Value = Mapping[str, Any]
"""A value in DynamoDB's format: the type, mapped to the value. Numbers are strings."""
Item = Mapping[str, Value]
"""A row: its values by attribute name."""

KEY: Final = "leaseKey"
OWNER: Final = "leaseOwner"
COUNTER: Final = "leaseCounter"
CHECKPOINT_OWNER: Final = "checkpointOwner"
CHILDREN: Final = "childShardIds"
STREAM: Final = "streamName"
ENTITY: Final = "entityType"

_LEASE: Final = "LEASE"
_LATEST_AT: Final = "efoLatestAt"
_STREAM_CREATED_AT: Final = "efoStreamCreatedAt"
_UNREAD_SINCE: Final = "efoUnreadSince"
"""The time and the checkpoint that it belongs to, as text: KCL moves the checkpoint, and leaves the time as it is."""
_OF_HOLDER: Final = frozenset({_STREAM_CREATED_AT, _UNREAD_SINCE})


@dataclass(frozen=True, slots=True)
class ItemCodec:
    """Converts leases to items and back. `stream_id`: "account:stream:epoch" in a multi-stream lease table, else None.

    The keys of a multi-stream lease table are those of KCL's multi-stream applications: `account:stream:epoch:shardId`.
    """

    stream_id: str | None = None

    def key(self, shard_id: str) -> dict[str, Value]:
        """Return the primary key of a shard's lease."""
        return {KEY: {"S": f"{self.stream_id}:{shard_id}" if self.stream_id else shard_id}}

    def is_lease_of_stream(self, item: Item) -> bool:
        """Return whether a row is a lease of this stream.

        Since 3.5, KCL keeps rows of other entity types in the same table. Rows of older versions have no entity type.
        Raises ConfigurationError for a row of a multi-stream table if `stream_id` is None: its leases would seem to
        belong to shards that do not exist any more. And for a row of another table if it is not None: the stream would
        be read from its beginning.
        """
        if item.get(ENTITY, {}).get("S", _LEASE) != _LEASE:
            return False
        stream = item.get(STREAM, {}).get("S")
        if self.stream_id is None and stream is not None:
            raise ConfigurationError(
                f"the lease table belongs to a multi-stream application, it has leases of {stream!r}: set stream_id to "
                "account:stream:epoch of this stream, or use another table"
            )
        if self.stream_id is not None and stream is None:
            raise ConfigurationError(
                f"the lease table belongs to an application of one stream, it has the lease {item[KEY]['S']!r} without"
                " a stream: use another table for many streams"
            )
        return self.stream_id in {None, stream}

    def new_item(self, lease: Lease) -> dict[str, Value]:
        """Return a new row for a lease."""
        item = self.key(lease.key) | attributes(lease) | {ENTITY: {"S": _LEASE}}
        if self.stream_id is not None:
            item |= {STREAM: {"S": self.stream_id}, "shardId": {"S": lease.key}}
        return item

    def lease(self, item: Item) -> Lease:
        """Return the lease of a row. Raises ConfigurationError, LookupError, TypeError or ValueError if invalid."""
        key = _text(item, KEY)
        prefix = f"{self.stream_id}:" if self.stream_id else ""
        if not key.startswith(prefix):
            raise ConfigurationError(f"the key does not begin with {prefix!r}, the prefix of the stream")
        checkpoint = _checkpoint(item, "checkpoint")
        if checkpoint is None:
            raise KeyError("checkpoint")
        start, end = _text_or_none(item, "startingHashKey"), _text_or_none(item, "endingHashKey")
        return Lease(
            key.removeprefix(prefix),
            checkpoint,
            owner=_text_or_none(item, OWNER),
            counter=int(item[COUNTER]["N"]),
            owner_switches=int(_number_or_none(item, "ownerSwitchesSinceCheckpoint") or 0),
            parents=_texts(item, "parentShardId"),
            children=_texts(item, CHILDREN),
            hash_key_range=None if start is None or end is None else HashKeyRange(start, end),
            latest_at=check_time(_float_or_none(item, _LATEST_AT)),
            checkpoint_owner=_text_or_none(item, CHECKPOINT_OWNER),
            pending_checkpoint=_checkpoint(item, "pendingCheckpoint"),
            pending_checkpoint_state=_bytes_or_none(item, "pendingCheckpointState"),
            throughput_kbps=_float_or_none(item, "throughputKBps"),
            stream_created_at=check_time(_float_or_none(item, _STREAM_CREATED_AT)),
            unread_since=check_time(_time_of(_text_or_none(item, _UNREAD_SINCE), checkpoint)),
        )


def attributes(lease: Lease) -> dict[str, Value]:
    """Return the attributes of a lease, without the key. None and empty sets, which DynamoDB rejects, are left out."""
    hash_keys, pending = lease.hash_key_range, lease.pending_checkpoint
    values: dict[str, Value | None] = {
        OWNER: _string(lease.owner),
        COUNTER: _number(lease.counter),
        "ownerSwitchesSinceCheckpoint": _number(lease.owner_switches),
        "checkpoint": _string(lease.checkpoint.sequence_number),
        "checkpointSubSequenceNumber": _number(lease.checkpoint.sub_sequence_number),
        "pendingCheckpoint": _string(pending.sequence_number if pending else None),
        "pendingCheckpointSubSequenceNumber": _number(pending.sub_sequence_number if pending else None),
        "pendingCheckpointState": _binary(lease.pending_checkpoint_state),
        "parentShardId": _string_set(lease.parents),
        CHILDREN: _string_set(lease.children),
        "startingHashKey": _string(hash_keys.starting_hash_key if hash_keys else None),
        "endingHashKey": _string(hash_keys.ending_hash_key if hash_keys else None),
        "throughputKBps": _number(lease.throughput_kbps),
        CHECKPOINT_OWNER: _string(lease.checkpoint_owner),
        _LATEST_AT: _number(lease.latest_at),
        _STREAM_CREATED_AT: _number(lease.stream_created_at),
        _UNREAD_SINCE: _string(None if (since := lease.unread_since) is None else f"{since!r} {lease.checkpoint}"),
    }
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Expression:
    """The expressions of an UpdateItem call, and the values that they refer to."""

    update: str
    condition: str
    values: dict[str, Value]


def update_of(old: Lease, new: Lease, condition: tuple[str, ...]) -> Expression:
    """Return the expressions that write the differences between `old` and `new`.

    `condition`: attributes whose values must be those of `old`. At least one of them must be present in `old`, because
    a missing row also fulfils conditions on absent attributes. What the holder of the lease knows is written whatever
    `old` has, if the condition makes sure that it has read the row.
    """
    before, after = attributes(old), attributes(new)
    known = _OF_HOLDER if COUNTER in condition else ()
    changed = {name: value for name, value in after.items() if before.get(name) != value or name in known}
    removed = [name for name in before if name not in after]
    update = []
    if changed:
        update.append("SET " + ", ".join(f"{name} = :{name}" for name in changed))
    if removed:
        update.append("REMOVE " + ", ".join(removed))
    conditions = [f"{name} = :was_{name}" if name in before else f"attribute_not_exists({name})" for name in condition]
    values = {f":{name}": value for name, value in changed.items()}
    values |= {f":was_{name}": before[name] for name in condition if name in before}
    return Expression(" ".join(update), " AND ".join(conditions), values)


# --- values ----------------------------------------------------------------------------------------------------


def _string(value: str | None) -> Value | None:
    return {"S": value} if value is not None else None


def _binary(value: bytes | None) -> Value | None:
    return {"B": value} if value is not None else None


def _string_set(values: tuple[str, ...]) -> Value | None:
    return {"SS": sorted(values)} if values else None


def _number(value: float | None) -> Value | None:
    return {"N": repr(value)} if value is not None else None


def _text(item: Item, name: str) -> str:
    value = item[name]["S"]
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a string")
    return value


def _text_or_none(item: Item, name: str) -> str | None:
    return _text(item, name) if name in item else None


def _texts(item: Item, name: str) -> tuple[str, ...]:
    """Return a string set, sorted: sets have no order."""
    return tuple(sorted(item[name]["SS"])) if name in item else ()


def _number_or_none(item: Item, name: str) -> str | None:
    return str(item[name]["N"]) if name in item else None


def _time_of(noted: str | None, checkpoint: Checkpoint) -> float | None:
    """Return the time that was noted with this checkpoint; None if it was noted with another one."""
    time, _, belongs_to = (noted or "").partition(" ")
    return float(time) if belongs_to == str(checkpoint) else None


def _float_or_none(item: Item, name: str) -> float | None:
    text = _number_or_none(item, name)
    return None if text is None else float(text)


def _bytes_or_none(item: Item, name: str) -> bytes | None:
    """Return bytes. KCL (at least up to 3.5.1) creates rows with a number here, which counts as None."""
    value = item.get(name, {}).get("B")
    return None if value is None else bytes(value)


def _checkpoint(item: Item, name: str) -> Checkpoint | None:
    if name not in item:
        return None
    sub_sequence_number = int(_number_or_none(item, f"{name}SubSequenceNumber") or 0)
    try:
        return Checkpoint(_text(item, name), sub_sequence_number)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from error
