"""The lease tables in DynamoDB of KCL, kinesumer and vmware-go-kcl, versions 1 and 2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from efo.checks import shown
from efo.errors import ConfigurationError
from efo.leases.stores.dynamodb.items import KEY, ItemCodec, attributes
from efo.model import Lease, Shard
from efo.third_party_errors import reason_of
from efo_service.operations.migration.layout import (
    Found,
    Heartbeat,
    OtherStream,
    Row,
    RowError,
    Scope,
    read_sequence_number,
    read_shard_id,
    whole_record,
)

_STREAM = "streamName"
_ENTITY = "entityType"


@dataclass(frozen=True, slots=True)
class KclTable:
    """The lease table of KCL. `leaseCounter` grows with each renewal: by default each 3.3 s."""

    look_seconds: float = 15.0
    blind: str = "the fail-over time of the application is longer than the look"
    marks_whole_records: bool = False

    def selection(self, scope: Scope) -> str:
        """Return the application: the table has no other."""
        return scope.application

    def key_of(self, row: Row) -> str:
        """Return the lease key."""
        return str(row.get(KEY, {}).get("S"))

    def read(self, row: Row, scope: Scope) -> Found | OtherStream | None:
        """Return what a lease says; None for a row of another entity. Raises RowError."""
        if row.get(_ENTITY, {}).get("S", "LEASE") != "LEASE":
            return None
        stream = row.get(_STREAM, {}).get("S")
        if stream is not None and (stream.count(":") != 2 or stream.split(":")[1] != scope.stream):  # noqa: PLR2004 - KCL
            return OtherStream(stream)
        try:
            lease = ItemCodec(stream).lease(row)
        except (ConfigurationError, LookupError, TypeError, ValueError) as error:
            raise RowError(reason_of(error)) from None
        pending = lease.pending_checkpoint
        return Found(
            key=self.key_of(row),
            shard_id=read_shard_id(lease.key),
            checkpoint=lease.checkpoint,
            pulse=(lease.counter, lease.owner, lease.checkpoint),
            owner=lease.holder,
            stream_id=stream,
            parents=lease.parents,
            children=lease.children,
            hash_key_range=lease.hash_key_range,
            latest_at=lease.latest_at,
            pending_checkpoint=pending,
            pending_checkpoint_state=lease.pending_checkpoint_state,
            notes=() if pending is None else (f"its pending checkpoint {pending} is kept",),
        )

    def write(self, lease: Lease, _shard: Shard | None, scope: Scope, old: tuple[Row, Found] | None) -> Row:
        """Return the lease without an owner. Attributes that efo does not know stay as they are."""
        codec = ItemCodec(scope.stream_id)
        if old is None:
            return codec.new_item(replace(lease, owner=None, checkpoint_owner=None, counter=0))
        row = old[0]
        before = codec.lease(row)
        after = replace(lease, owner=None, checkpoint_owner=None, counter=before.counter + 1)
        known = attributes(before)
        return {name: value for name, value in row.items() if name not in known} | attributes(after)


@dataclass(frozen=True, slots=True)
class KinesumerTable:
    """A table with the keys `pk` and `sk`. A client writes its `last_update` each 5 s."""

    look_seconds: float = 12.0
    blind: str = ""
    marks_whole_records: bool = True

    def selection(self, scope: Scope) -> str:
        """Return the first key of the application's checkpoints on the stream."""
        return f"check_point#{scope.application}#{scope.stream}"

    def key_of(self, row: Row) -> str:
        """Return both keys."""
        return f"{row.get('pk', {}).get('S')} {row.get('sk', {}).get('S')}"

    def read(self, row: Row, scope: Scope) -> Found | Heartbeat | None:
        """Return what a checkpoint or a client says; None for other applications and streams. Raises RowError."""
        first, second, updated = text(row, "pk"), text(row, "sk"), text(row, "last_update")
        if first == f"client#{scope.application}":
            return Heartbeat(self.key_of(row), (updated,))
        if first != self.selection(scope):
            return None
        checkpoint = read_sequence_number(text(row, "sequence_number"))
        return Found(
            key=self.key_of(row),
            shard_id=read_shard_id(second),
            checkpoint=checkpoint,
            pulse=(checkpoint, updated),
        )

    def write(self, lease: Lease, _shard: Shard | None, scope: Scope, old: tuple[Row, Found] | None) -> Row | None:
        """Return a checkpoint. A finished shard needs none: kinesumer reads open shards. Raises NotHeldError."""
        if lease.is_finished:
            return None
        number = whole_record(lease, "kinesumer")
        # kinesumer does not read the time of a checkpoint.
        updated = old[0].get("last_update") if old else None
        return {
            "pk": {"S": self.selection(scope)},
            "sk": {"S": lease.key},
            "sequence_number": {"S": number},
            "last_update": updated or {"S": "1970-01-01T00:00:00Z"},
        }


_LIBRARY = "vmware-go-kcl"


@dataclass(frozen=True, slots=True)
class VmwareTable:
    """One table for an application on a stream. A worker renews `LeaseTimeout` each 5 s by default."""

    look_seconds: float = 15.0
    blind: str = "its LeaseRefreshPeriodMillis is longer than the look"
    marks_whole_records: bool = True

    def selection(self, scope: Scope) -> str:
        """Return the application: the table has no other."""
        return scope.application

    def key_of(self, row: Row) -> str:
        """Return the shard's id."""
        return str(row.get("ShardID", {}).get("S"))

    def read(self, row: Row, _scope: Scope) -> Found:
        """Return what a row says. Raises RowError."""
        shard_id = read_shard_id(text(row, "ShardID"))
        parent, owner = text(row, "ParentShardId"), text(row, "AssignedTo")
        checkpoint = read_sequence_number(text(row, "Checkpoint"), "SHARD_END")
        claim = text(row, "ClaimRequest")
        return Found(
            key=shard_id,
            shard_id=shard_id,
            checkpoint=checkpoint,
            pulse=(text(row, "LeaseTimeout"), owner, claim, checkpoint),
            owner=owner or None,
            parents=(read_shard_id(parent),) if parent else (),
        )

    def write(self, lease: Lease, _shard: Shard | None, _scope: Scope, _old: tuple[Row, Found] | None) -> Row:
        """Return a row without an owner, so that any worker takes it. Raises NotHeldError."""
        number = "SHARD_END" if lease.is_finished else whole_record(lease, _LIBRARY)
        row = {"ShardID": {"S": lease.key}, "Checkpoint": {"S": number}}
        if lease.parents:  # it keeps one parent of two
            row["ParentShardId"] = {"S": lease.parents[0]}
        return row


_ABSENT: Final[tuple[dict[str, bool], ...]] = ({}, {"NULL": True})


def text(item: Row, name: str) -> str | None:
    """Return a string; None if it is absent or null. Raises RowError for another type."""
    return _value(item, name, "S")


def number(item: Row, name: str) -> str | None:
    """Return a number, as text; None if it is absent or null. Raises RowError for another type."""
    return _value(item, name, "N")


def _value(item: Row, name: str, kind: str) -> str | None:
    value: Any = item.get(name, {})
    if value in _ABSENT:
        return None
    if not isinstance(value, dict) or not isinstance(value.get(kind), str):
        raise RowError(f"{name} is {shown(value)}: expected the type {kind}")
    return str(value[kind])
