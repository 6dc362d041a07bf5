"""The state table of kinesumer: checkpoints and clients of many applications."""

from __future__ import annotations

from dataclasses import dataclass

from efo.model import Lease, Shard
from efo_service.operations.migration.items import text
from efo_service.operations.migration.layout import (
    Found,
    Heartbeat,
    Row,
    Scope,
    read_sequence_number,
    read_shard_id,
    whole_record,
)


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
