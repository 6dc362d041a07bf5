"""The table of vmware-go-kcl, versions 1 and 2."""

from __future__ import annotations

from dataclasses import dataclass

from efo.model import Lease, Shard
from efo_service.operations.migration.items import text
from efo_service.operations.migration.layout import (
    Found,
    Row,
    Scope,
    read_sequence_number,
    read_shard_id,
    whole_record,
)

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
