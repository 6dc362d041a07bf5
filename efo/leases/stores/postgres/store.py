"""A lease store in PostgreSQL: for workers on many machines that share a database.

Every write is one statement, conditional on the version of the row that was read before (`xmin`). No lock outlives a
statement, so a suspended worker or a network failure blocks no other worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
import trio

from efo.arn import parse_stream
from efo.errors import ConfigurationError, LeaseError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.lease_row import COLUMN_NAMES, LeaseRow
from efo.leases.row_store import Change, RowStore
from efo.leases.scope import LeaseScope
from efo.model import Lease

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    from efo.leases.stores.postgres.schema import prepare
    from efo.leases.stores.postgres.sessions import Session
except ImportError as error:
    raise ImportError(f"the PostgreSQL lease store needs psycopg: pip install 'efo[postgres]' ({error})") from error

_T = TypeVar("_T")

_SCOPE: Final = "WHERE application = %s AND stream = %s"
_LIST: Final = f"SELECT {', '.join(COLUMN_NAMES)}, xmin FROM efo_lease {_SCOPE}"  # noqa: S608 - constants
_GET: Final = _LIST + " AND lease_key = %s"
_CREATE: Final = (
    f"INSERT INTO efo_lease (application, stream, {', '.join(COLUMN_NAMES)}) "  # noqa: S608 - constants
    f"VALUES (%s, %s{', %s' * len(COLUMN_NAMES)}) ON CONFLICT DO NOTHING"
)
_WRITE: Final = (
    f"UPDATE efo_lease SET {', '.join(f'{name} = %s' for name in COLUMN_NAMES)} "  # noqa: S608 - constants
    f"{_SCOPE} AND lease_key = %s AND xmin = %s"
)
_DELETE: Final = f"DELETE FROM efo_lease {_SCOPE} AND lease_key = %s"  # noqa: S608 - constants

_ERRORS: Final[tuple[tuple[type[Exception], type[LeaseError], str], ...]] = (
    (psycopg.errors.InsufficientPrivilege, LeaseStoreUnavailableError, "grant the role this permission"),
    (psycopg.errors.ReadOnlySqlTransaction, LeaseStoreUnavailableError, "this server is read-only: use the primary"),
    (psycopg.errors.QueryCanceled, LeaseStoreUnavailableError, "the table is locked, or the server is overloaded"),
    (psycopg.OperationalError, LeaseStoreUnavailableError, "check the server, its address, the user and the password"),
    (psycopg.InterfaceError, LeaseStoreUnavailableError, "the next call opens a new connection"),
    (psycopg.Error, LeaseStoreCorruptError, "its table efo_lease is not the one that this efo creates"),
)


class PostgresLeaseStore(RowStore):
    """A LeaseStore in a PostgreSQL database: `async with PostgresLeaseStore(...) as store:`.

    `url`: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE` or any other connection string of libpq. libpq's environment
    variables and password file apply too. One database may serve many applications and streams: their leases are rows
    of one table, which is created if missing.
    `timeout`: maximum seconds per call, whatever the server does.
    `connections`: maximum number of concurrent calls.

    Opening raises ConfigurationError (invalid connection string), LeaseStoreUnavailableError (server unreachable,
    access refused, a read-only replica, missing permissions) and LeaseStoreCorruptError (a table of a newer efo or of
    another program).

    If a call is cancelled or exceeds `timeout`, it returns at once and its connection is closed. Its effect is then
    unknown, but never partial.
    """

    def __init__(self, url: str, application: str, stream: str, *, timeout: float = 5.0, connections: int = 4) -> None:
        self._conninfo, self._location = _parse(url, timeout)
        self._lease_scope = LeaseScope(application, stream)
        self._scope = (application, parse_stream(stream)[0])
        self._timeout = timeout
        self._opened = False
        self._idle: list[Session] = []
        self._slots = trio.Semaphore(connections)
        self._threads = trio.CapacityLimiter(connections)

    async def __aenter__(self) -> Self:
        self._opened = True
        try:
            await self._run(lambda connection: prepare(connection, self._location))
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

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream."""
        self._lease_scope.ensure(application, stream)

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._opened

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order."""
        return await self._run(
            lambda connection: [self._lease_of(row) for row in connection.execute(_LIST, self._scope)]
        )

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
        def write(connection: psycopg.Connection) -> Lease:
            while True:  # repeated only if another write succeeded in between
                row, version = self._read(connection, key)
                new = change(row)
                if connection.execute(_WRITE, (*_values(new), *self._scope, key, version)).rowcount == 1:
                    return new

        return await self._run(write)

    def _read(self, connection: psycopg.Connection, key: str) -> tuple[Lease | None, object]:
        """Return a lease and the version of its row."""
        row = connection.execute(_GET, (*self._scope, key)).fetchone()
        return (None, None) if row is None else (self._lease_of(row), row[-1])

    async def _run(self, work: Callable[[psycopg.Connection], _T]) -> _T:
        """Run `work` with a connection in a thread, within the timeout of a call."""
        if not self._opened:
            raise LeaseStoreUnavailableError(f"lease store {self._location} is not open: use `async with`")
        with self._translate_errors(), trio.move_on_after(self._timeout):
            async with self._slots:
                session = self._idle.pop() if self._idle else Session(self._connect)
                try:
                    result = await trio.to_thread.run_sync(
                        session.run, work, abandon_on_cancel=True, limiter=self._threads
                    )
                except trio.Cancelled:
                    session.abort()
                    raise
                except BaseException:
                    self._idle.append(session)
                    raise
                self._idle.append(session)
                return result
        raise LeaseStoreUnavailableError(
            f"lease store {self._location}: no response within {self._timeout:g} s: check the server and the network"
        )

    def _connect(self) -> psycopg.Connection:
        # Without prepared statements, so that a connection pooler can be used.
        connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        try:
            # The server must end statements that the caller has abandoned, for example while they wait for a lock.
            connection.execute("SELECT set_config('statement_timeout', %s, false)", (str(ceil(self._timeout * 1000)),))
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        self._opened = False
        while self._idle:
            self._idle.pop().abort()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise the errors of psycopg as errors of efo."""
        try:
            yield
        except psycopg.Error as error:
            kind, advice = _classify(error)
            message = " ".join(str(error).split())
            raise kind(f"lease store {self._location}: {message}; {advice}") from error

    def _lease_of(self, row: Sequence[Any]) -> Lease:
        try:
            return msgspec.convert(dict(zip(COLUMN_NAMES, row, strict=False)), LeaseRow).lease()
        except (ConfigurationError, msgspec.ValidationError) as error:
            raise LeaseStoreCorruptError(
                f"lease store {self._location}, application {self._scope[0]!r}, stream {self._scope[1]!r}, "
                f"lease {row[0]!r}: {error}; correct the row or delete it"
            ) from error


def _classify(error: Exception) -> tuple[type[LeaseError], str]:
    """Return the type of efo's error for an error of psycopg, and what to do about it."""
    return next((kind, advice) for psycopg_error, kind, advice in _ERRORS if isinstance(error, psycopg_error))


def _values(lease: Lease) -> tuple[object, ...]:
    """Return the values of a lease in the order of COLUMN_NAMES, with lists for psycopg's arrays."""
    columns = msgspec.structs.astuple(LeaseRow.of(lease))
    return tuple(list(value) if isinstance(value, tuple) else value for value in columns)


def _parse(url: str, timeout: float) -> tuple[str, str]:
    """Return the connection string, and the location of the database without the password."""
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        # Its message may contain parts of the URL, and so the password.
        raise ConfigurationError(
            "the URL of the lease store is not a PostgreSQL URL: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    hosts = str(parameters.get("host") or parameters.get("hostaddr") or "localhost")
    # The hosts share the timeout. psycopg's minimum is 2 s.
    parameters.setdefault("connect_timeout", max(2, int(timeout / len(hosts.split(",")))))
    parameters.setdefault("application_name", "efo")
    location = f"postgresql://{hosts}:{parameters.get('port') or 5432}/{parameters.get('dbname') or ''}"
    return make_conninfo("", **parameters), location
