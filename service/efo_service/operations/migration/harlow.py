"""The checkpoints of harlow/kinesis-consumer in DynamoDB, Redis, PostgreSQL and MySQL.

A checkpoint is the last sequence number of a shard, and nothing else: no owner, no lineage, no end of a shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from efo.checks import shown
from efo.model import Lease, Shard
from efo_service.operations.migration.kcl import text
from efo_service.operations.migration.layout import (
    Found,
    Row,
    RowError,
    Scope,
    last_number,
    read_sequence_number,
    read_shard_id,
)

_LIBRARY = "harlow/kinesis-consumer"
_IDLE = "it has no heartbeat: an application whose shards are idle writes nothing"


def _namespace(scope: Scope) -> str:
    return f"{scope.application}-{scope.stream}"


def _found(key: str, shard_id: object, number: object) -> Found:
    checkpoint = read_sequence_number(number)
    if checkpoint is None:
        raise RowError("the sequence number is empty")
    return Found(key=key, shard_id=read_shard_id(shard_id), checkpoint=checkpoint, pulse=(checkpoint,))


@dataclass(frozen=True, slots=True)
class HarlowTable:
    """DynamoDB: the keys `namespace` and `shard_id`. It is written each minute by default."""

    look_seconds: float = 70.0
    blind: str = _IDLE
    marks_whole_records: bool = True

    def selection(self, scope: Scope) -> str:
        """Return the namespace."""
        return _namespace(scope)

    def key_of(self, row: Row) -> str:
        """Return both keys."""
        return f"{row.get('namespace', {}).get('S')} {row.get('shard_id', {}).get('S')}"

    def read(self, row: Row, scope: Scope) -> Found | None:
        """Return what a row says; None for another namespace. Raises RowError."""
        if text(row, "namespace") != _namespace(scope):
            return None
        return _found(self.key_of(row), text(row, "shard_id"), text(row, "sequence_number"))

    def write(self, lease: Lease, shard: Shard | None, scope: Scope, _old: tuple[Row, Found] | None) -> Row | None:
        """Return a row. Raises NotHeldError."""
        if (number := last_number(lease, shard, _LIBRARY)) is None:
            return None
        return {
            "namespace": {"S": _namespace(scope)},
            "shard_id": {"S": lease.key},
            "sequence_number": {"S": number},
        }


@dataclass(frozen=True, slots=True)
class HarlowKeys:
    """Redis: a string for each shard, `APPLICATION:checkpoint:STREAM:SHARD`. It is written with each record."""

    look_seconds: float = 15.0
    blind: str = _IDLE
    marks_whole_records: bool = True

    def selection(self, scope: Scope) -> str:
        """Return what the keys begin with."""
        return f"{scope.application}:checkpoint:{scope.stream}:"

    def key_of(self, row: Row) -> str:
        """Return the key."""
        return str(row["key"])

    def read(self, row: Row, scope: Scope) -> Found:
        """Return what a key says. Raises RowError."""
        return _found(row["key"], row["key"].removeprefix(self.selection(scope)), row["value"])

    def write(self, lease: Lease, shard: Shard | None, scope: Scope, _old: tuple[Row, Found] | None) -> Row | None:
        """Return a key and its value. Raises NotHeldError."""
        if (number := last_number(lease, shard, _LIBRARY)) is None:
            return None
        return {"key": self.selection(scope) + lease.key, "value": number}


@dataclass(frozen=True, slots=True)
class HarlowColumns:
    """PostgreSQL and MySQL: the columns `namespace`, `shard_id` and `sequence_number`, a number or a text."""

    look_seconds: float = 70.0
    blind: str = _IDLE
    marks_whole_records: bool = True

    def selection(self, scope: Scope) -> str:
        """Return the namespace."""
        return _namespace(scope)

    def key_of(self, row: Row) -> str:
        """Return both keys."""
        return f"{row['namespace']} {row['shard_id']}"

    def read(self, row: Row, _scope: Scope) -> Found:
        """Return what a row says. Raises RowError, also for a column whose type loses digits."""
        number = row["sequence_number"]
        if isinstance(number, float) or (isinstance(number, Decimal) and number != number.to_integral_value()):
            raise RowError(f"sequence_number is {shown(number)}: the type of the column has lost digits")
        if isinstance(number, int | Decimal):
            number = f"{number:f}".partition(".")[0]
        return _found(self.key_of(row), row["shard_id"], number)

    def write(self, lease: Lease, shard: Shard | None, scope: Scope, _old: tuple[Row, Found] | None) -> Row | None:
        """Return a row. Raises NotHeldError."""
        if (number := last_number(lease, shard, _LIBRARY)) is None:
            return None
        return {"namespace": _namespace(scope), "shard_id": lease.key, "sequence_number": number}
