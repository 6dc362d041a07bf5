"""A lease store in KCL's DynamoDB table, attribute for attribute and write for write.

So workers of efo and of KCL 2 and 3 can share one application: leases move between them, and one goes on where the
other's checkpoint says. The way there: docs/leases-dynamodb.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from efo.errors import ConfigurationError, EfoError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases import transitions
from efo.leases.row_store import Change
from efo.leases.scope import LeaseScope
from efo.leases.stores.dynamodb.client import ConditionFailedError, Place, Table, open_table
from efo.leases.stores.dynamodb.items import CHECKPOINT_OWNER, CHILDREN, COUNTER, KEY, OWNER, Item, ItemCodec, update_of
from efo.leases.stores.dynamodb.table import NewTable, prepare
from efo.model import Checkpoint, Lease

__all__ = ["DynamoDbLeaseStore", "NewTable"]

_OWNERS: Final = (OWNER, CHECKPOINT_OWNER)
_STATE: Final = (COUNTER, *_OWNERS)
"""What a write depends on; for a hand-off the owners only: the counter is the holder's to move."""
_RACES: Final = 5
"""How often a write is tried again because the row changed without its counter: a hand-off was asked for."""


class DynamoDbLeaseStore:
    """A LeaseStore in the DynamoDB table `table`: `async with DynamoDbLeaseStore("orders") as store:`.

    `table`: KCL names it after the application. `region`, `endpoint_url`, `ca_file`, `profile`: as of `open_kinesis`,
    with the same credentials. `timeout`: seconds that one try of a call may take; there are up to three.
    `new_table`: how to make the table if it is not there; None: it must be there. `stream_id`: for a table of many
    streams, as KCL's multi-stream applications have it, "account:stream:epoch" of ours; leases of others are not
    touched. `consistent_reads`: the list of leases is read strongly consistent, for twice the price. By default, as in
    KCL, it may be some moments old: that may delay a take-over, but win none, for every write has its condition.

    Opening raises LeaseStoreUnavailableError (unreachable, refused, no table), LeaseStoreCorruptError (the table is
    no lease table) and ConfigurationError (no region, no credentials).

    Each write is one conditional call, that of a lease that nobody else writes one call in all. botocore may repeat
    calls by itself; a repetition that meets the work of the first try takes it for its own.
    """

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        ca_file: str | None = None,
        profile: str | None = None,
        timeout: float = 2.0,
        new_table: NewTable | None = NewTable(),  # noqa: B008 - frozen
        stream_id: str | None = None,
        consistent_reads: bool = False,
    ) -> None:
        if stream_id is not None and stream_id.count(":") != 2:  # noqa: PLR2004 - as the message says
            raise ConfigurationError(f"stream_id {stream_id!r}: expected account:stream:epoch, as in KCL's rows")
        self._lease_scope = LeaseScope()
        self._name = table
        self._place = Place(region, endpoint_url, ca_file, profile, timeout)
        self._new_table = new_table
        self._codec = ItemCodec(stream_id)
        self._consistent_reads = consistent_reads
        self._opening: AbstractAsyncContextManager[Table] | None = None
        self._opened: Table | None = None

    async def __aenter__(self) -> Self:
        opening = open_table(self._name, self._place)
        table = await opening.__aenter__()
        try:
            await prepare(table, self._new_table)
        except BaseException:
            await opening.__aexit__(None, None, None)
            raise
        self._opening, self._opened = opening, table
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        opening, self._opening, self._opened = self._opening, None, None
        if opening is not None:
            await opening.__aexit__(None, None, None)

    @property
    def table(self) -> Table:
        """The table, for what leases are not: operators' tools, measurements. Raises LeaseStoreUnavailableError."""
        if self._opened is None:
            raise LeaseStoreUnavailableError(f"lease table {self._name!r}: it is not open, use `async with`")
        return self._opened

    # --- reading ---------------------------------------------------------------------------------------------

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream."""
        self._lease_scope.ensure(application, stream)

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._opened is not None

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order. It reads the whole table: that is what costs.

        Raises ConfigurationError for a table of many streams without `stream_id`.
        """
        return [self._lease_of(item) for item in await self._items() if self._codec.is_ours(item)]

    async def get(self, key: str) -> Lease | None:
        """Return one lease as the last write left it, or None."""
        item = (await self.table.call("get_item", Key=self._codec.key(key), ConsistentRead=True)).get("Item")
        return None if item is None else self._lease_of(item)

    # --- writing ---------------------------------------------------------------------------------------------

    async def create(self, lease: Lease) -> bool:
        """Add a lease if there is none of its key; return whether it was added."""
        try:
            await self.table.call(
                "put_item",
                Item=self._codec.new_item(lease),
                ConditionExpression=f"attribute_not_exists({KEY})",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailedError as failure:
            return failure.was_repeated and await self._row_after(failure, lease.key) == lease
        return True

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Become the owner, if the lease is as last seen."""
        return await self._write(lease, lambda row: transitions.taken(transitions.seen(row, lease), owner))

    async def request_handoff(self, lease: Lease, to: str) -> Lease:
        """Ask the holder to hand the lease over, if it has not moved."""
        return await self._write(
            lease, lambda row: transitions.requested(transitions.unmoved(row, lease), to), condition=_OWNERS
        )

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Tell the others that we are alive, if we hold the lease."""
        return await self._write(lease, lambda row: transitions.renewed(transitions.held(row, lease), throughput_kbps))

    async def release(self, lease: Lease) -> Lease:
        """Let go of the lease, if we hold it."""
        return await self._write(lease, lambda row: transitions.released(transitions.held(row, lease)))

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        """Save how far the shard is done, if we hold the lease."""
        return await self._write(lease, lambda row: transitions.checkpointed(transitions.held(row, lease), checkpoint))

    async def prepare_checkpoint(self, lease: Lease, checkpoint: Checkpoint, state: bytes | None = None) -> Lease:
        """Save what the next checkpoint is about to be, if we hold the lease."""
        return await self._write(
            lease, lambda row: transitions.prepared(transitions.held(row, lease), checkpoint, state)
        )

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the shard's children, if there is a row."""
        has_some = {"ExpressionAttributeValues": {":children": {"SS": sorted(children)}}} if children else {}
        try:
            await self.table.call(
                "update_item",
                Key=self._codec.key(lease.key),
                UpdateExpression=f"SET {CHILDREN} = :children" if children else f"REMOVE {CHILDREN}",
                ConditionExpression=f"attribute_exists({KEY})",
                **has_some,
            )
        except ConditionFailedError:
            raise transitions.lost(lease) from None
        return replace(lease, children=children)

    async def reset(self, lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
        """Put the lease elsewhere, if it is as last seen."""
        return await self._write(
            lease, lambda row: transitions.reset(transitions.seen(row, lease), checkpoint, starts_at)
        )

    async def delete(self, key: str) -> None:
        """Remove a lease, if it is there."""
        await self.table.call("delete_item", Key=self._codec.key(key))

    async def _write(self, lease: Lease, change: Change, *, condition: tuple[str, ...] = _STATE) -> Lease:
        """Write what `change` makes of the row: of the lease as last seen first, which the row nearly always is."""
        row: Lease | None = lease
        for _ in range(_RACES):
            new, old = change(row), transitions.existing(row, lease)
            try:
                return await self._update(old, new, condition)
            except ConditionFailedError as failure:
                row = await self._row_after(failure, lease.key)
                if failure.was_repeated and row is not None and _is_written(row, new, condition):
                    return row
        raise LeaseStoreUnavailableError(f"{self.table}: lease {lease.key!r} changed {_RACES} times while we wrote it")

    async def _update(self, old: Lease, new: Lease, condition: tuple[str, ...]) -> Lease:
        expression = update_of(old, new, condition)
        answer = await self.table.call(
            "update_item",
            Key=self._codec.key(old.key),
            **({"UpdateExpression": expression.update} if expression.update else {}),
            ConditionExpression=expression.condition,
            ExpressionAttributeValues=expression.values,
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return self._lease_of(answer["Attributes"])

    async def _row_after(self, failure: ConditionFailedError, key: str) -> Lease | None:
        """Return the row that failed a condition; it comes with the failure, if there is one."""
        return await self.get(key) if failure.item is None else self._lease_of(failure.item)

    async def _items(self) -> Sequence[Item]:
        """Return all rows of the table, all pages."""
        page = await self.table.call("scan", ConsistentRead=self._consistent_reads)
        items = list(page["Items"])
        while start := page.get("LastEvaluatedKey"):
            page = await self.table.call("scan", ConsistentRead=self._consistent_reads, ExclusiveStartKey=start)
            items += page["Items"]
        return items

    def _lease_of(self, item: Item) -> Lease:
        try:
            return self._codec.lease(item)
        except (EfoError, LookupError, TypeError, ValueError) as error:
            key = item.get(KEY, {}).get("S")
            raise LeaseStoreCorruptError(
                f"{self.table}: the row {key!r} is no lease: {type(error).__name__}: {error}. Correct it or delete it"
            ) from error


def _is_written(row: Lease, new: Lease, condition: tuple[str, ...]) -> bool:
    """Tell whether a row is as a write would have left it, but for a hand-off that was asked for since."""
    if COUNTER in condition:
        return (row.counter, row.holder) == (new.counter, new.holder)
    return (row.owner, row.checkpoint_owner) == (new.owner, new.checkpoint_owner)
