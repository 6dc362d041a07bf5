"""A lease store in PostgreSQL: for workers on many machines that share a database.

Every write is one statement, conditional on the version of the row that was read before (`xmin`). No lock outlives a
statement, so a suspended worker or a network failure blocks no other worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from efo.arn import parse_stream
from efo.errors import (
    ConfigurationError,
    LeaseError,
    LeaseLostError,
    LeaseStoreCorruptError,
    LeaseStoreUnavailableError,
)
from efo.leases.known_rows import KnownRows
from efo.leases.lease_row import COLUMN_NAMES, LeaseRow
from efo.leases.row_store import Change, RowStore
from efo.leases.store import Inspection, LeaseScope
from efo.leases.stores import driver_of
from efo.leases.writes import LeaseWrite, row_after
from efo.model import Lease
from efo.third_party_errors import reason_of

if TYPE_CHECKING:
    import psycopg

_SCOPE: Final = "WHERE application = %s AND stream = %s"
_LIST: Final = f"SELECT {', '.join(COLUMN_NAMES)}, xmin FROM efo_lease {_SCOPE}"  # noqa: S608 - constants
_VERSIONS: Final = f"SELECT lease_key, xmin FROM efo_lease {_SCOPE}"  # noqa: S608 - constants
_LIST_SOME: Final = _LIST + " AND lease_key = ANY(%s)"
_GET: Final = _LIST + " AND lease_key = %s"
_CREATE: Final = (
    f"INSERT INTO efo_lease (application, stream, {', '.join(COLUMN_NAMES)}) "  # noqa: S608 - constants
    f"VALUES (%s, %s{', %s' * len(COLUMN_NAMES)}) ON CONFLICT DO NOTHING"
)
_WRITE: Final = (
    f"UPDATE efo_lease SET {', '.join(f'{name} = %s' for name in COLUMN_NAMES)} "  # noqa: S608 - constants
    f"{_SCOPE} AND lease_key = %s AND xmin = %s"
)
_CHANGING: Final = {
    "lease_owner": "text", "lease_counter": "bigint", "owner_switches_since_checkpoint": "bigint",
    "checkpoint": "text", "checkpoint_sub_sequence_number": "bigint", "checkpoint_owner": "text",
    "pending_checkpoint": "text", "pending_checkpoint_sub_sequence_number": "bigint",
    "pending_checkpoint_state": "bytea", "throughput_kbps": "double precision",
    "stream_created_at": "double precision", "unread_since": "double precision",
}  # fmt: skip
"""The columns that the writes of a batch may change, with their types."""
_CONDITIONS: Final = {"lease_key": "text", "was_counter": "bigint", "was_owner": "text", "was_checkpoint_owner": "text"}
_WRITE_MANY: Final = f"""
    WITH locked AS MATERIALIZED (
        SELECT lease_key FROM efo_lease {_SCOPE} AND lease_key = ANY(%s::text[]) ORDER BY lease_key FOR UPDATE
    )
    UPDATE efo_lease AS row SET {", ".join(f"{name} = new.{name}" for name in _CHANGING)}
    FROM locked, unnest({", ".join(f"%s::{kind}[]" for kind in (*_CONDITIONS.values(), *_CHANGING.values()))})
        AS new ({", ".join((*_CONDITIONS, *_CHANGING))})
    WHERE row.application = %s AND row.stream = %s AND row.lease_key = locked.lease_key
        AND new.lease_key = locked.lease_key AND row.lease_counter = new.was_counter
        AND row.lease_owner IS NOT DISTINCT FROM new.was_owner
        AND row.checkpoint_owner IS NOT DISTINCT FROM new.was_checkpoint_owner
    RETURNING row.lease_key, row.child_shard_ids
"""  # noqa: S608 - constants
"""Writes the rows that are unchanged. It locks them in one order, so that two batches cannot block each other."""
_DELETE: Final = f"DELETE FROM efo_lease {_SCOPE} AND lease_key = %s"  # noqa: S608 - constants

_T = TypeVar("_T")


class PostgresLeaseStore(RowStore):
    """A LeaseStore in a PostgreSQL database: `async with PostgresLeaseStore(...) as store:`.

    `url`: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE` or any other connection string of libpq. libpq's environment
    variables and password file apply too. One database may serve many applications and streams: their leases are rows
    of one table, which is created if missing.
    `timeout`: maximum seconds per call, whatever the server does.
    `connections`: maximum number of concurrent calls.

    Raises MissingExtraError without psycopg, and ConfigurationError for an invalid connection string. Opening raises
    LeaseStoreUnavailableError (server unreachable, access refused, a read-only replica, missing permissions) and
    LeaseStoreCorruptError (a table of a newer efo or of another program).

    If a call is cancelled or exceeds `timeout`, it returns at once and its connection is closed. Its effect is then
    unknown, but never partial.
    """

    def __init__(self, url: str, application: str, stream: str, *, timeout: float = 5.0, connections: int = 4) -> None:
        with driver_of("PostgreSQL", "psycopg", extra="postgres"):
            from efo.leases.stores.postgres.pool import PostgresPool  # noqa: PLC0415 - psycopg may not be installed
        self._pool = PostgresPool(url, timeout, connections)
        self._lease_scope = LeaseScope(application, stream)
        self._scope = (application, parse_stream(stream)[0])
        self._rows = KnownRows[object]()
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        try:
            await self._pool.prepare()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    async def inspect(self) -> Inspection:
        """Look at the table; the store is not open. Nothing is created. Raises as opening it does."""
        try:
            return await self._pool.inspect(self._scope)
        finally:
            self._pool.close()

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream."""
        self._lease_scope.ensure(application, stream)

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._is_open

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order. Reads the versions of all rows, and the rows that have changed."""
        return await self._run(self._read_all)

    async def get(self, key: str) -> Lease | None:
        """Return one lease, or None."""
        lease, _ = await self._run(lambda connection: self._read(connection, key))
        return lease

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists; return whether it was added."""
        parameters = (*self._scope, *_values(lease))
        return await self._run(lambda connection: connection.execute(_CREATE, parameters).rowcount == 1)

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""
        await self._run(lambda connection: connection.execute(_DELETE, (*self._scope, key)))

    async def _write(self, key: str, change: Change) -> Lease:
        return await self._run(lambda connection: self._change(connection, key, change))

    async def _write_rows(self, writes: Sequence[LeaseWrite]) -> Sequence[Lease | LeaseError]:
        return await self._run(lambda connection: self._change_many(connection, writes))

    def _change(self, connection: psycopg.Connection, key: str, change: Change) -> Lease:
        while True:  # repeated only if another write succeeded in between
            row, version = self._read(connection, key)
            new = change(row)
            if connection.execute(_WRITE, (*_values(new), *self._scope, key, version)).rowcount == 1:
                return new

    def _change_many(
        self, connection: psycopg.Connection, writes: Sequence[LeaseWrite]
    ) -> Sequence[Lease | LeaseError]:
        """Write rows as their worker last read them, nearly always the current rows. Read those that have changed."""
        new: dict[str, Lease] = {}
        for write in writes:
            with suppress(LeaseLostError):  # raised again below
                new[write.lease.key] = row_after(write, write.lease)
        was = [write.lease for write in writes if write.lease.key in new]
        columns = zip(*(_changing_of(lease, new[lease.key]) for lease in was), strict=True)
        written: dict[str, tuple[str, ...]] = {}
        if was:
            arguments = (*self._scope, list(new), *map(list, columns), *self._scope)
            written = {key: tuple(children) for key, children in connection.execute(_WRITE_MANY, arguments)}
        results: list[Lease | LeaseError] = []
        for write in writes:
            key = write.lease.key
            try:
                if key in written:
                    results.append(replace(new[key], children=written[key]))
                else:
                    results.append(self._change(connection, key, partial(row_after, write)))
            except LeaseError as error:
                results.append(error)
        return results

    def _read_all(self, connection: psycopg.Connection) -> Sequence[Lease]:
        versions: dict[str, object] = dict(connection.execute(_VERSIONS, self._scope))
        rows: dict[str, Any] = {}
        if changed := self._rows.changed(versions):
            rows = {row[0]: row for row in connection.execute(_LIST_SOME, (*self._scope, changed))}
        for key in changed:
            if key in rows:
                versions[key] = rows[key][-1]  # it may have changed once more
            else:
                del versions[key]
        return self._rows.replace(versions, lambda key, _version: self._lease_of(rows[key]))

    def _read(self, connection: psycopg.Connection, key: str) -> tuple[Lease | None, object]:
        """Return a lease and the version of its row."""
        row = connection.execute(_GET, (*self._scope, key)).fetchone()
        return (None, None) if row is None else (self._lease_of(row), row[-1])

    async def _run(self, work: Callable[[psycopg.Connection], _T]) -> _T:
        if not self._is_open:
            raise LeaseStoreUnavailableError(f"lease store {self._pool.location} is not open: use `async with`")
        return await self._pool.run(work)

    def _close(self) -> None:
        self._is_open = False
        self._pool.close()

    def _lease_of(self, row: Sequence[Any]) -> Lease:
        try:
            return msgspec.convert(dict(zip(COLUMN_NAMES, row, strict=False)), LeaseRow).lease()
        except (ConfigurationError, msgspec.ValidationError) as error:
            raise LeaseStoreCorruptError(
                f"lease store {self._pool.location}, application {self._scope[0]!r}, stream {self._scope[1]!r}, "
                f"lease {row[0]!r}: {reason_of(error)}; correct the row or delete it"
            ) from error


def _changing_of(was: Lease, new: Lease) -> tuple[object, ...]:
    """Return the values of a lease in the order of _CONDITIONS and _CHANGING."""
    pending = new.pending_checkpoint
    return (
        was.key,
        was.counter,
        was.owner,
        was.checkpoint_owner,
        new.owner,
        new.counter,
        new.owner_switches,
        new.checkpoint.sequence_number,
        new.checkpoint.sub_sequence_number,
        new.checkpoint_owner,
        None if pending is None else pending.sequence_number,
        None if pending is None else pending.sub_sequence_number,
        new.pending_checkpoint_state,
        new.throughput_kbps,
        new.stream_created_at,
        new.unread_since,
    )


def _values(lease: Lease) -> tuple[object, ...]:
    """Return the values of a lease in the order of COLUMN_NAMES, with lists for psycopg's arrays."""
    columns = msgspec.structs.astuple(LeaseRow.of(lease))
    return tuple(list(value) if isinstance(value, tuple) else value for value in columns)
