"""A lease as a row of KCL's lease table, and back: pure.

The attributes, their types and what they mean are KCL's (reference: DynamoDBLeaseSerializer and
DynamoDBMultiStreamLeaseSerializer of KCL 3.5), with one of ours beside them, `efoLatestAt`, which KCL leaves
alone. Rows of KCL 2.x are the same with fewer attributes. Attributes that are not listed here are never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from efo.errors import ConfigurationError
from efo.model import Checkpoint, HashKeyRange, Lease

Value = Mapping[str, Any]
"""A value as DynamoDB's protocol has it: its type's name, and it. Numbers are text."""
Item = Mapping[str, Value]
"""A row: attributes by name."""

KEY: Final = "leaseKey"
OWNER: Final = "leaseOwner"
COUNTER: Final = "leaseCounter"
CHECKPOINT_OWNER: Final = "checkpointOwner"
CHILDREN: Final = "childShardIds"

_ENTITY: Final = "entityType"
_LEASE: Final = "LEASE"


@dataclass(frozen=True, slots=True)
class ItemCodec:
    """How leases are keyed. `stream_id`: "account:stream:epoch" in a table of many streams, else None.

    There the key is KCL's of a multi-stream application, `account:stream:epoch:shardId`.
    """

    stream_id: str | None = None

    def key(self, shard_id: str) -> dict[str, Value]:
        """Return the primary key of a shard's lease."""
        return {KEY: {"S": f"{self.stream_id}:{shard_id}" if self.stream_id else shard_id}}

    def is_ours(self, item: Item) -> bool:
        """Tell whether a row is a lease of our stream.

        Since 3.5 KCL keeps rows of other kinds in the same table; those of before, and leases of 2.x, have no kind.
        Raises ConfigurationError for a table of many streams that is taken for one of a single stream: leases of other
        streams would seem to be of shards that are gone.
        """
        if item.get(_ENTITY, {}).get("S", _LEASE) != _LEASE:
            return False
        stream = item.get("streamName", {}).get("S")
        if self.stream_id is None and stream is not None:
            raise ConfigurationError(
                f"the lease table is that of a multi-stream application: it has leases of {stream!r}. Set stream_id to "
                "account:stream:epoch of the stream that is read, or name another table"
            )
        return self.stream_id in {None, stream}

    def new_item(self, lease: Lease) -> dict[str, Value]:
        """Return the row of a lease that has none yet."""
        item = self.key(lease.key) | attributes(lease) | {_ENTITY: {"S": _LEASE}}
        if self.stream_id is not None:
            item |= {"streamName": {"S": self.stream_id}, "shardId": {"S": lease.key}}
        return item

    def lease(self, item: Item) -> Lease:
        """Return the lease of a row. Raises ConfigurationError, LookupError, TypeError or ValueError: it is none."""
        key = _text(item, KEY)
        prefix = f"{self.stream_id}:" if self.stream_id else ""
        if not key.startswith(prefix):
            raise ValueError(f"the key does not begin with the stream's {prefix!r}")
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
            latest_at=_float_or_none(item, "efoLatestAt"),
            checkpoint_owner=_text_or_none(item, CHECKPOINT_OWNER),
            pending_checkpoint=_checkpoint(item, "pendingCheckpoint"),
            pending_checkpoint_state=_bytes_or_none(item, "pendingCheckpointState"),
            throughput_kbps=_float_or_none(item, "throughputKBps"),
        )


def attributes(lease: Lease) -> dict[str, Value]:
    """Return a lease's attributes but the key. What is None or empty has none: DynamoDB has no empty sets."""
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
        "efoLatestAt": _number(lease.latest_at),
    }
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Expression:
    """Expressions of UpdateItem, and the values that they name."""

    update: str
    condition: str
    values: dict[str, Value]


def update_of(old: Lease, new: Lease, condition: tuple[str, ...]) -> Expression:
    """Return what writes the difference between two states of a lease, if the attributes named are as in `old`.

    A row that is not there has none of the attributes, so one of those in `condition` must be there in `old`.
    """
    before, after = attributes(old), attributes(new)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    removed = [name for name in before if name not in after]
    update = []
    if changed:
        update.append("SET " + ", ".join(f"{name} = :{name}" for name in changed))
    if removed:
        update.append("REMOVE " + ", ".join(removed))
    tests = [f"{name} = :was_{name}" if name in before else f"attribute_not_exists({name})" for name in condition]
    values = {f":{name}": value for name, value in changed.items()}
    values |= {f":was_{name}": before[name] for name in condition if name in before}
    return Expression(" ".join(update), " AND ".join(tests), values)


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
    """Return a set, in the order of its texts: sets have none of their own."""
    return tuple(sorted(item[name]["SS"])) if name in item else ()


def _number_or_none(item: Item, name: str) -> str | None:
    return str(item[name]["N"]) if name in item else None


def _float_or_none(item: Item, name: str) -> float | None:
    text = _number_or_none(item, name)
    return None if text is None else float(text)


def _bytes_or_none(item: Item, name: str) -> bytes | None:
    """Return bytes; KCL (to 3.5.1 at least) writes a number here when it creates a row, which says nothing."""
    value = item.get(name, {}).get("B")
    return None if value is None else bytes(value)


def _checkpoint(item: Item, name: str) -> Checkpoint | None:
    if name not in item:
        return None
    sub_sequence_number = int(_number_or_none(item, f"{name}SubSequenceNumber") or 0)
    try:
        return Checkpoint(_text(item, name), sub_sequence_number)
    except ConfigurationError as error:
        raise ValueError(f"{name}: {error}") from error
