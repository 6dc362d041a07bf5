"""A lease store in KCL's DynamoDB table, with KCL's attributes and KCL's conditional writes.

So workers of efo and of KCL 2 and 3 can share one application: leases move between them, and the new owner resumes from
the checkpoint of the old one. How to set this up: docs/leases.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

import trio

from efo.errors import ConfigurationError, EfoError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases import transitions
from efo.leases.known_rows import KnownRows
from efo.leases.row_store import Change
from efo.leases.store import Inspection, LeaseScope, streams_of
from efo.leases.stores.dynamodb.client import ConditionFailedError, DynamoDbTable, TableLocation, open_table
from efo.leases.stores.dynamodb.items import (
    CHECKPOINT_OWNER,
    CHILDREN,
    COUNTER,
    KEY,
    OWNER,
    STREAM,
    Item,
    ItemCodec,
    update_of,
)
from efo.leases.stores.dynamodb.table import NewTable, denied_writes, inspect, prepare
from efo.leases.stores.dynamodb.worker_metrics import WorkerMetrics
from efo.leases.writes import LeaseWrite, SettleWrite, write_each
from efo.model import Checkpoint, Lease
from efo.third_party_errors import reason_of

__all__ = ["DynamoDbLeaseStore", "NewTable"]

_OWNERS: Final = (OWNER, CHECKPOINT_OWNER)
_STATE: Final = (COUNTER, *_OWNERS)
"""The attributes that conditions check. A hand-off request checks the owners only: the holder changes the counter."""
_INSPECTED_ROWS: Final = 25
"""Rows that an inspection reads at most. Half a unit of capacity per 4 KB; a row has some 500 bytes."""
_STREAM_ID: Final = re.compile(r"\d+:[A-Za-z0-9_.-]{1,128}:\d+")
"""KCL: StreamIdentifier.serialize of a multi-stream instance."""
_MAX_TRIES: Final = 5
"""Tries of a write if the row changes without its counter: a hand-off was requested."""


class DynamoDbLeaseStore:
    """A LeaseStore in the DynamoDB table `table`: `async with DynamoDbLeaseStore("orders") as store:`.

    `table`: the name of the lease table. KCL names it after the application.
    `region`, `endpoint_url`, `ca_file`, `profile`, `proxy_url`: as for `open_kinesis`, with the same credentials.
    `timeout`: maximum seconds per try of a call. A call has up to three tries.
    `new_table`: how to create a missing table. None: the table must exist.
    `stream_id`: "account:stream:epoch" of this stream, in the lease table of a KCL multi-stream application. Leases of
    other streams are not touched.
    `consistent_reads`: scan the lease table with strongly consistent reads, at twice the price. By default, as in KCL,
    a scan may be slightly stale. This is safe, because every write is conditional, but can delay the take of a lease.
    `worker_metrics_table`: the table in which workers of KCL 3 report their load. None: "TABLE-WorkerMetricStats".

    Opening raises LeaseStoreUnavailableError (table unreachable or missing, access refused), LeaseStoreCorruptError
    (not a lease table) and ConfigurationError (no region, no credentials).

    Each write is one conditional call, without a read, unless another worker changed the row. If botocore retries a
    call and the first try had taken effect, the store recognises this.
    """

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        ca_file: str | None = None,
        profile: str | None = None,
        proxy_url: str | None = None,
        timeout: float = 2.0,
        new_table: NewTable | None = NewTable(),  # noqa: B008 - frozen
        stream_id: str | None = None,
        consistent_reads: bool = False,
        worker_metrics_table: str | None = None,
    ) -> None:
        self._lease_scope = LeaseScope(stream=None if stream_id is None else _stream_of(stream_id))
        self._name = table
        self._location = TableLocation(region, endpoint_url, ca_file, profile, timeout, proxy_url)
        self._new_table = new_table
        self._codec = ItemCodec(stream_id)
        self._consistent_reads = consistent_reads
        self._worker_metrics_table = worker_metrics_table
        self._metrics: WorkerMetrics | None = None
        self._opening: AbstractAsyncContextManager[DynamoDbTable] | None = None
        self._opened: DynamoDbTable | None = None
        self._rows = KnownRows[Item]()
        self._scans: SharedScans | None = None

    def for_stream(self, stream_id: str) -> DynamoDbLeaseStore:
        """Return the store of one stream in this table, which is multi-stream then. This store must be open.

        `stream_id`: "account:stream:epoch". All stores of streams share the client of this one, and its lease scans.
        Raises ConfigurationError, and LeaseStoreUnavailableError if this store is not open.
        """
        if self._opened is None:
            raise _not_open(self._name)
        if self._codec.stream_id is not None:
            raise ConfigurationError(f"lease table {self._name!r} was opened for {self._codec.stream_id} alone")
        if self._scans is None:
            self._scans = SharedScans(self._scan)
        store = copy(self)
        store._lease_scope = LeaseScope(stream=_stream_of(stream_id))  # noqa: SLF001 - it is of this class
        store._codec = ItemCodec(stream_id)  # noqa: SLF001
        store._rows = KnownRows()  # noqa: SLF001
        store._opening = None  # noqa: SLF001 - the client is closed by this store
        return store

    async def __aenter__(self) -> Self:
        opening = open_table(self._name, self._location)
        table = await opening.__aenter__()
        try:
            await prepare(table, self._new_table)
        except BaseException:
            await opening.__aexit__(None, None, None)
            raise
        self._opening, self._opened = opening, table
        self._metrics = WorkerMetrics(table, self._worker_metrics_table)
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

    async def inspect(self) -> Inspection:
        """Look at the table; the store is not open. Nothing is created or written. Raises as opening it does."""
        key = self._codec.key("efo-inspection")
        async with open_table(self._name, self._location) as table:
            if not await inspect(table, self._new_table):
                return Inspection(exists=False, denied=None)
            items = (await table.call("scan", Limit=_INSPECTED_ROWS))["Items"]
            found = [item for item in items if self._codec.is_lease_of_stream(item)]
            await table.call("get_item", Key=key)
            created_at = streams_of(map(self._lease_of, found))
            return Inspection(exists=True, denied=await denied_writes(table, key), created_at=created_at)

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream."""
        self._lease_scope.ensure(application, stream)

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._opened is not None

    # --- reading ---------------------------------------------------------------------------------------------

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order. Scans the whole table.

        Raises ConfigurationError for a multi-stream lease table without `stream_id`.
        """
        found = await self._items()
        if self._metrics is not None:
            await self._metrics.report(found)
        items = {item[KEY]["S"]: item for item in found if self._codec.is_lease_of_stream(item)}
        return self._rows.replace(items, lambda _key, item: self._lease_of(item))

    async def get(self, key: str) -> Lease | None:
        """Return one lease as of the last write, or None."""
        item = (await self._table.call("get_item", Key=self._codec.key(key), ConsistentRead=True)).get("Item")
        return None if item is None else self._lease_of(item)

    # --- writing ---------------------------------------------------------------------------------------------

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists; return whether it was added."""
        try:
            await self._table.call(
                "put_item",
                Item=self._codec.new_item(lease),
                ConditionExpression=f"attribute_not_exists({KEY})",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailedError as failure:
            return failure.was_retried and await self._row_of(failure, lease.key) == lease
        return True

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Make `owner` the owner, if the counter is unchanged."""
        self._owns_leases(owner)
        return await self._write(lease, lambda row: transitions.taken(transitions.same_counter(row, lease), owner))

    async def request_handoff(self, lease: Lease, to: str) -> Lease:
        """Request the lease from its holder, if the owners are unchanged."""
        self._owns_leases(to)
        return await self._write(
            lease, lambda row: transitions.requested(transitions.same_owners(row, lease), to), condition=_OWNERS
        )

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Renew the lease, if holder and counter are unchanged."""
        return await self._write(
            lease, lambda row: transitions.renewed(transitions.same_holder(row, lease), throughput_kbps)
        )

    async def release(self, lease: Lease) -> Lease:
        """Release the lease, if holder and counter are unchanged."""
        return await self._write(lease, lambda row: transitions.released(transitions.same_holder(row, lease)))

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
        """Save the progress, if holder and counter are unchanged."""
        return await self._write(
            lease,
            lambda row: transitions.checkpointed(transitions.same_holder(row, lease), checkpoint, throughput_kbps),
        )

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the shard's children, if the row exists."""
        values = {"ExpressionAttributeValues": {":children": {"SS": sorted(children)}}} if children else {}
        try:
            await self._table.call(
                "update_item",
                Key=self._codec.key(lease.key),
                UpdateExpression=f"SET {CHILDREN} = :children" if children else f"REMOVE {CHILDREN}",
                ConditionExpression=f"attribute_exists({KEY})",
                **values,
            )
        except ConditionFailedError:
            raise transitions.lease_lost(lease) from None
        return replace(lease, children=children)

    async def reset(self, lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
        """Set another checkpoint and no owner, if the counter is unchanged."""
        return await self._write(
            lease, lambda row: transitions.reset(transitions.same_counter(row, lease), checkpoint, starts_at)
        )

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""
        await self._table.call("delete_item", Key=self._codec.key(key))

    async def write_many(self, writes: Sequence[LeaseWrite], settle: SettleWrite) -> None:
        """Perform writes of different leases, some at the same time. DynamoDB has no cheap transaction for them."""
        await write_each(self, writes, settle)

    @property
    def _table(self) -> DynamoDbTable:
        """The open table. Raises LeaseStoreUnavailableError."""
        if self._opened is None:
            raise _not_open(self._name)
        return self._opened

    def _owns_leases(self, worker_id: str) -> None:
        if self._metrics is not None:
            self._metrics.worker_id = worker_id

    async def _write(self, lease: Lease, change: Change, *, condition: tuple[str, ...] = _STATE) -> Lease:
        """Write what `change` returns for the row: first for the lease as last read, nearly always the current row."""
        row: Lease | None = lease
        for _ in range(_MAX_TRIES):
            new, old = change(row), transitions.existing(row, lease)
            try:
                return await self._update(old, new, condition)
            except ConditionFailedError as failure:
                row = await self._row_of(failure, lease.key)
                if failure.was_retried and row is not None and _is_written(row, new, condition):
                    return row
        raise LeaseStoreUnavailableError(
            f"{self._table}: lease {lease.key!r} changed {_MAX_TRIES} times during a write"
        )

    async def _update(self, old: Lease, new: Lease, condition: tuple[str, ...]) -> Lease:
        expression = update_of(old, new, condition)
        response = await self._table.call(
            "update_item",
            Key=self._codec.key(old.key),
            **({"UpdateExpression": expression.update} if expression.update else {}),
            ConditionExpression=expression.condition,
            ExpressionAttributeValues=expression.values,
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return self._lease_of(response["Attributes"])

    async def _row_of(self, failure: ConditionFailedError, key: str) -> Lease | None:
        """Return the row that failed a condition: from the failure, or else by a read."""
        return await self.get(key) if failure.item is None else self._lease_of(failure.item)

    async def _items(self) -> Sequence[Item]:
        """Return the rows of the whole table, or at least those of this stream."""
        if self._scans is None or self._codec.stream_id is None:
            return await self._scan()
        return await self._scans.items(self._codec.stream_id)

    async def _scan(self) -> Sequence[Item]:
        """Return the rows of all pages of a scan."""
        page = await self._table.call("scan", ConsistentRead=self._consistent_reads)
        items = list(page["Items"])
        while start := page.get("LastEvaluatedKey"):
            page = await self._table.call("scan", ConsistentRead=self._consistent_reads, ExclusiveStartKey=start)
            items += page["Items"]
        return items

    def _lease_of(self, item: Item) -> Lease:
        try:
            return self._codec.lease(item)
        except (EfoError, LookupError, TypeError, ValueError) as error:
            key = item.get(KEY, {}).get("S")
            where = self._opened or f"lease table {self._name!r}"
            raise LeaseStoreCorruptError(
                f"{where}: the row {key!r} is not a lease: {reason_of(error)}; correct or delete it"
            ) from error


def _not_open(table: str) -> LeaseStoreUnavailableError:
    return LeaseStoreUnavailableError(f"lease table {table!r} is not open: use `async with`")


def _stream_of(stream_id: str) -> str:
    """Return the name of the stream of an id. Raises ConfigurationError."""
    if not _STREAM_ID.fullmatch(stream_id):
        raise ConfigurationError(f"stream_id {stream_id!r} is invalid: expected account:stream:epoch, as in KCL")
    return stream_id.split(":")[1]


def _is_written(row: Lease, new: Lease, condition: tuple[str, ...]) -> bool:
    """Return whether a row has the effect of a write. A hand-off may have been requested since."""
    if COUNTER in condition:
        return (row.counter, row.holder) == (new.counter, new.holder)
    return (row.owner, row.checkpoint_owner) == (new.owner, new.checkpoint_owner)


GATHERING: Final = 0.2
"""Seconds that a scan waits for other streams that need one. Then all of them scan at the same time from then on."""


class SharedScans:
    """`scan`: reads all items of the table. Every caller gets items that were read after its call (rule R10)."""

    def __init__(self, scan: Callable[[], Awaitable[Sequence[Item]]]) -> None:
        self._scan = scan
        self._turn = trio.Lock()
        self._started = 0  # how many scans have started
        self._items: Mapping[str, Sequence[Item]] = {}

    async def items(self, stream_id: str) -> Sequence[Item]:
        """Return the items of one stream, and those of none. Raises what `scan` raises; then the next caller scans."""
        wanted = self._started + 1
        await trio.sleep(GATHERING)
        async with self._turn:
            if self._started < wanted:
                self._started += 1
                try:
                    self._items = _by_stream(await self._scan())
                except BaseException:
                    self._started -= 1  # those that wait have read nothing
                    raise
            return [*self._items.get(stream_id, ()), *self._items.get("", ())]


def _by_stream(items: Sequence[Item]) -> Mapping[str, Sequence[Item]]:
    by_stream: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_stream[item.get(STREAM, {}).get("S", "")].append(item)
    return by_stream
