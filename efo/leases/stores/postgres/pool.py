"""Calls to a PostgreSQL server: connections, the timeout of a call, and the errors of psycopg as those of efo.

Only this module, `sessions` and `schema` import psycopg.

psycopg waits for the server without a timeout. So a session can be *aborted* from another thread: its socket is shut
down, the thread that waits on it fails at once, and the connection is closed.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil
from typing import Final, TypeVar

import psycopg
import trio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from efo.errors import (
    ConfigurationError,
    LeaseError,
    LeaseStoreCorruptError,
    LeaseStoreFullError,
    LeaseStoreLockedError,
    LeaseStoreUnavailableError,
)
from efo.leases.store import Inspection
from efo.leases.stores.postgres.schema import inspect, prepare
from efo.third_party_errors import reason_of

_T = TypeVar("_T")

_ERRORS: Final[tuple[tuple[type[Exception], type[LeaseError], str], ...]] = (
    (psycopg.errors.InsufficientPrivilege, LeaseStoreUnavailableError, "grant the role this permission"),
    (psycopg.errors.ReadOnlySqlTransaction, LeaseStoreUnavailableError, "this server is read-only: use the primary"),
    (psycopg.errors.DiskFull, LeaseStoreFullError, "free space on the server's disk"),
    (psycopg.errors.LockNotAvailable, LeaseStoreLockedError, "another session locks the table"),
    (psycopg.errors.QueryCanceled, LeaseStoreUnavailableError, "the table is locked, or the server is overloaded"),
    (psycopg.OperationalError, LeaseStoreUnavailableError, "check the server, its address, the user and the password"),
    (psycopg.InterfaceError, LeaseStoreUnavailableError, "the next call opens a new connection"),
    (psycopg.Error, LeaseStoreCorruptError, "its table efo_lease is not the one that this efo creates"),
)


class PostgresPool:
    """Up to `connections` connections to one database, each opened at first use.

    `url`: any connection string of libpq. `timeout`: maximum seconds per call. Raises ConfigurationError for a
    connection string that is not valid.

    `location`: the database without the password, for messages.
    """

    def __init__(self, url: str, timeout: float, connections: int) -> None:
        self._conninfo, self.location = _parse(url, timeout)
        self._timeout = timeout
        self._idle: list[Session] = []
        self._slots = trio.Semaphore(connections)
        self._threads = trio.CapacityLimiter(connections)

    async def prepare(self) -> None:
        """Create or migrate the table. Raises LeaseStoreUnavailableError and LeaseStoreCorruptError."""
        await self.run(lambda connection: prepare(connection, self.location))

    async def inspect(self, scope: tuple[str, str]) -> Inspection:
        """Look at the table. `scope`: application and stream. Raises as `prepare` does."""
        return await self.run(lambda connection: inspect(connection, self.location, scope))

    async def run(self, work: Callable[[psycopg.Connection], _T]) -> _T:
        """Run `work` with a connection in a thread, within the timeout of a call. Raises LeaseError."""
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
            f"lease store {self.location}: no response within {self._timeout:g} s: check the server and the network"
        )

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().abort()

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

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise the errors of psycopg as errors of efo."""
        try:
            yield
        except psycopg.Error as error:
            kind, advice = _classify(error)
            raise kind(f"lease store {self.location}: {reason_of(error)}; {advice}") from None


def _classify(error: Exception) -> tuple[type[LeaseError], str]:
    """Return the type of efo's error for an error of psycopg, and what to do about it."""
    return next((kind, advice) for psycopg_error, kind, advice in _ERRORS if isinstance(error, psycopg_error))


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
    shown = ",".join(f"[{host}]" if ":" in host else host for host in hosts.split(","))
    location = f"postgresql://{shown}:{parameters.get('port') or 5432}/{parameters.get('dbname') or ''}"
    return make_conninfo("", **parameters), location


Connect = Callable[[], psycopg.Connection]


class Session:
    """One connection, opened at first use, for one thread at a time."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: psycopg.Connection | None = None
        self._lock = threading.Lock()
        self._is_running = False
        self._is_aborted = False

    def run(self, work: Callable[[psycopg.Connection], _T]) -> _T:
        """Run `work` with the connection. Raises psycopg.Error."""
        with self._lock:
            self._is_running = True
        try:
            return work(self._open_connection())
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction):
            self._close()  # its state is unknown, or the server is a replica now
            raise
        finally:
            with self._lock:
                self._is_running = False
            if self._is_aborted:
                self._close()

    def abort(self) -> None:
        """End the running work and the session. Callable from any thread; returns at once."""
        with self._lock:
            self._is_aborted = True
            if self._connection is not None and self._is_running:
                _shut_down(self._connection)
                return
        if not self._is_running:
            self._close()

    def _open_connection(self) -> psycopg.Connection:
        connection = self._connection
        if connection is None or _is_stale(connection):
            self._close()
            connection = self._connect()
            with self._lock:
                self._connection = connection
        if self._is_aborted:
            raise psycopg.OperationalError("the call was aborted")
        return connection

    def _close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_stale(connection: psycopg.Connection) -> bool:
    """Return whether the server closed the connection, or sent data unasked, which nearly always means the same."""
    if connection.closed:
        return True
    poll = select.poll()  # select() rejects descriptors above 1023
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _shut_down(connection: psycopg.Connection) -> None:
    # With a duplicate descriptor: closing the socket object leaves the original one to psycopg.
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
