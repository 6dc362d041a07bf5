"""The checkpoints of async-kinesis in Redis and DynamoDB.

Neither names the stream: an application of this library reads one stream. A worker writes `ts` each 15 s by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from efo.model import Lease, Shard
from efo.third_party_errors import reason_of
from efo_service.operations.migration.kcl import number, text
from efo_service.operations.migration.layout import (
    Found,
    Row,
    RowError,
    Scope,
    last_number,
    read_sequence_number,
    read_shard_id,
)

_LIBRARY = "async-kinesis"
_BLIND = "its heartbeat_frequency is longer than the look"


class _Value(msgspec.Struct, frozen=True):
    """What a key holds. `ref`, `ts`: the worker and its last heartbeat; None without an owner."""

    sequence: str | None
    ref: str | None = None
    ts: float | None = None


@dataclass(frozen=True, slots=True)
class AsyncKinesisKeys:
    """Redis: a JSON document for each shard, `pyredis-APPLICATION-SHARD`."""

    look_seconds: float = 20.0
    blind: str = _BLIND
    marks_whole_records: bool = True

    def selection(self, scope: Scope) -> str:
        """Return what the keys begin with."""
        return f"pyredis-{scope.application}-"

    def key_of(self, row: Row) -> str:
        """Return the key."""
        return str(row["key"])

    def read(self, row: Row, scope: Scope) -> Found | None:
        """Return what a key says; None for an application whose name begins with that of this one. Raises RowError."""
        shard_id = row["key"].removeprefix(self.selection(scope))
        if not shard_id.startswith("shardId-"):
            return None
        try:
            value = msgspec.json.decode(row["value"], type=_Value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RowError(reason_of(error)) from None
        checkpoint = read_sequence_number(value.sequence)
        return Found(
            key=row["key"],
            shard_id=read_shard_id(shard_id),
            checkpoint=checkpoint,
            pulse=(checkpoint, value.ref, value.ts),
            owner=value.ref,
        )

    def write(self, lease: Lease, shard: Shard | None, scope: Scope, _old: tuple[Row, Found] | None) -> Row | None:
        """Return a key and its value, without an owner. Raises NotHeldError."""
        if (sequence := last_number(lease, shard, _LIBRARY)) is None:
            return None
        value: dict[str, Any] = {"ref": None, "ts": None, "sequence": sequence}
        return {"key": self.selection(scope) + lease.key, "value": msgspec.json.encode(value).decode()}


@dataclass(frozen=True, slots=True)
class AsyncKinesisTable:
    """DynamoDB: the key `shard_id`. Rows expire: `ttl`, a day after the last write by default."""

    look_seconds: float = 20.0
    blind: str = _BLIND
    marks_whole_records: bool = True

    def selection(self, scope: Scope) -> str:
        """Return the application: the table has no other."""
        return scope.application

    def key_of(self, row: Row) -> str:
        """Return the shard's id."""
        return str(row.get("shard_id", {}).get("S"))

    def read(self, row: Row, _scope: Scope) -> Found:
        """Return what a row says. Raises RowError."""
        checkpoint = read_sequence_number(text(row, "sequence"))
        owner = text(row, "ref")
        return Found(
            key=self.key_of(row),
            shard_id=read_shard_id(text(row, "shard_id")),
            checkpoint=checkpoint,
            pulse=(checkpoint, owner, number(row, "ts")),
            owner=owner,
        )

    def write(self, lease: Lease, shard: Shard | None, _scope: Scope, _old: tuple[Row, Found] | None) -> Row | None:
        """Return a row without an owner, which does not expire. Raises NotHeldError."""
        if (sequence := last_number(lease, shard, _LIBRARY)) is None:
            return None
        null = {"NULL": True}
        return {"shard_id": {"S": lease.key}, "ref": null, "ts": null, "sequence": {"S": sequence}}
