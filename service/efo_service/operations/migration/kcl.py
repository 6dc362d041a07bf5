"""KCL's lease table: KCL 1, 2 and 3, and amazon_kclpy, whose daemon is KCL."""

from __future__ import annotations

from dataclasses import dataclass, replace

from efo.errors import ConfigurationError
from efo.leases.stores.dynamodb.items import KEY, ItemCodec, attributes
from efo.model import Lease, Shard
from efo.third_party_errors import reason_of
from efo_service.operations.migration.layout import Found, OtherStream, Row, RowError, Scope, read_shard_id

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
