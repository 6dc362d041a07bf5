"""A lease store in one SQLite file: for the workers of one machine, without a server.

The file must be on a local disk: SQLite's write-ahead log does not work over a network.

Commits wait for the disk (`synchronous=FULL`). If a power failure loses a checkpoint, records are read again. But if it
loses the first checkpoint of a shard that started at LATEST, the shard restarts at the *new* latest record, and the
records in between are skipped.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
import trio

from efo.arn import parse_stream
from efo.errors import (
    ConfigurationError,
    LeaseError,
    LeaseStoreCorruptError,
    LeaseStoreFullError,
    LeaseStoreLockedError,
    LeaseStoreUnavailableError,
)
from efo.leases.known_rows import KnownRows
from efo.leases.lease_row import COLUMN_NAMES, LeaseRow
from efo.leases.row_store import Change, RowStore
from efo.leases.store import Inspection, LeaseScope
from efo.leases.stores.sqlite.schema import inspect, prepare
from efo.leases.writes import LeaseWrite, row_after
from efo.model import Lease
from efo.third_party_errors import reason_of

_T = TypeVar("_T")
_Value = str | int | float | bytes | None

BUSY_TIMEOUT: Final = 2.0
"""Seconds that a write waits for a write of another process. A transaction takes milliseconds."""

_LISTS: Final = ("parent_shard_ids", "child_shard_ids")
"""Columns whose value is a JSON array."""
_NAMES: Final = ", ".join(COLUMN_NAMES)
_LIST: Final = f"SELECT {_NAMES} FROM lease WHERE application = ? AND stream = ?"  # noqa: S608 - constants
_GET: Final = _LIST + " AND lease_key = ?"
_CREATE: Final = f"INSERT OR IGNORE INTO lease (application, stream, {_NAMES}) VALUES (?, ?{', ?' * len(COLUMN_NAMES)})"  # noqa: S608 - constants
_WRITE: Final = (
    f"UPDATE lease SET {', '.join(f'{name} = ?' for name in COLUMN_NAMES)} "  # noqa: S608 - constants
    "WHERE application = ? AND stream = ? AND lease_key = ?"
)
_CHANGING: Final = (
    "lease_owner", "lease_counter", "owner_switches_since_checkpoint", "checkpoint", "checkpoint_sub_sequence_number",
    "checkpoint_owner", "pending_checkpoint", "pending_checkpoint_sub_sequence_number", "pending_checkpoint_state",
    "throughput_kbps", "stream_created_at", "unread_since",
)  # fmt: skip
"""The columns that the writes of a batch may change."""
_WRITE_IF: Final = (
    f"UPDATE lease SET {', '.join(f'{name} = ?' for name in _CHANGING)} "  # noqa: S608 - constants
    "WHERE application = ? AND stream = ? AND lease_key = ? "
    "AND lease_counter = ? AND lease_owner IS ? AND checkpoint_owner IS ? AND child_shard_ids = ?"
)
"""Writes a row if it is unchanged: only a request and saved children change it without its counter."""
_DELETE: Final = "DELETE FROM lease WHERE application = ? AND stream = ? AND lease_key = ?"

_ADVICE: Final[dict[int, tuple[type[LeaseStoreUnavailableError], str]]] = {
    sqlite3.SQLITE_BUSY: (LeaseStoreLockedError, "another program holds the lock of the file"),
    sqlite3.SQLITE_LOCKED: (LeaseStoreLockedError, "another program holds the lock of the file"),
    sqlite3.SQLITE_FULL: (LeaseStoreFullError, "its disk is full"),
}
_OTHERWISE: Final = (
    LeaseStoreUnavailableError,
    "check that its directory exists and is writable, and that its disk works and is not full",
)
_CORRUPT_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class SqliteLeaseStore(RowStore):
    """A LeaseStore in the file `path`, created if missing: `async with SqliteLeaseStore(...) as store:`.

    `mode`: the permissions of a new file, and so of those that SQLite puts beside it. One file may serve many
    applications and streams. Opening raises LeaseStoreUnavailableError (directory missing or not writable, file locked)
    and LeaseStoreCorruptError (not a lease store of efo, damaged, or written by a newer efo).

    Each write is one short transaction in a thread, and the connection serves one thread at a time. A cancelled call
    returns at once, and its transaction completes in the background: its effect is then unknown, but never partial.
    """

    def __init__(self, path: Path, application: str, stream: str, *, mode: int = 0o600) -> None:
        self._path = path
        self._mode = mode
        self._lease_scope = LeaseScope(application, stream)
        self._scope = (application, parse_stream(stream)[0])
        self._connection: sqlite3.Connection | None = None
        self._single_thread = trio.CapacityLimiter(1)
        self._rows = KnownRows[tuple[Any, ...]]()
        self._version: int | None = None  # of the file as in `_rows`; None: read all

    async def __aenter__(self) -> Self:
        self._version = None  # versions of different connections cannot be compared
        # Not abandoned on cancellation: nothing would close the connection.
        self._connection = await self._run_in_thread(self._open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with trio.CancelScope(shield=True):  # bounded: an abandoned write ends within the busy timeout
                await self._run_in_thread(connection.close)

    async def inspect(self) -> Inspection:
        """Look at the file, which is not open. Nothing is created. Raises as opening it does."""
        return await trio.to_thread.run_sync(self._inspect, limiter=self._single_thread, abandon_on_cancel=True)

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream."""
        self._lease_scope.ensure(application, stream)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._connection is not None

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order. Reads them only if another process has changed the file."""
        return await self._run(self._read_all)

    async def get(self, key: str) -> Lease | None:
        """Return one lease, or None."""
        return await self._run(lambda connection: self._read(connection, key))

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists; return whether it was added."""

        def insert(connection: sqlite3.Connection) -> bool:
            with self._transaction(connection):
                created = connection.execute(_CREATE, (*self._scope, *_row_of(lease))).rowcount == 1
            if created:
                self._rows.written(lease)
            return created

        return await self._run(insert)

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""

        def remove(connection: sqlite3.Connection) -> None:
            with self._transaction(connection):
                connection.execute(_DELETE, (*self._scope, key))
            self._rows.deleted(key)

        await self._run(remove)

    async def _write(self, key: str, change: Change) -> Lease:
        def write(connection: sqlite3.Connection) -> Lease:
            with self._transaction(connection):
                row = self._change(connection, key, change)
            self._rows.written(row)
            return row

        return await self._run(write)

    async def _write_rows(self, writes: Sequence[LeaseWrite]) -> Sequence[Lease | LeaseError]:
        def write(connection: sqlite3.Connection) -> Sequence[Lease | LeaseError]:
            with self._transaction(connection):
                results = [self._write_row(connection, write) for write in writes]
            for result in results:
                if isinstance(result, Lease):
                    self._rows.written(result)
            return results

        return await self._run(write)

    def _write_row(self, connection: sqlite3.Connection, write: LeaseWrite) -> Lease | LeaseError:
        """Write a row as its worker last read it, nearly always the current row; otherwise read it first."""
        lease = write.lease
        try:
            new = row_after(write, lease)
            was = (lease.key, lease.counter, lease.owner, lease.checkpoint_owner, json.dumps(lease.children))
            if connection.execute(_WRITE_IF, (*_changing_of(new), *self._scope, *was)).rowcount == 1:
                return new
            return self._change(connection, lease.key, partial(row_after, write))
        except LeaseError as error:
            return error

    def _change(self, connection: sqlite3.Connection, key: str, change: Change) -> Lease:
        row = change(self._read(connection, key))
        connection.execute(_WRITE, (*_row_of(row), *self._scope, key))
        return row

    def _read_all(self, connection: sqlite3.Connection) -> Sequence[Lease]:
        (version,) = connection.execute("PRAGMA data_version").fetchone()  # changes with each commit by others
        if version != self._version:
            self._version = None
            rows = connection.execute(_LIST, self._scope).fetchall()
            self._rows.replace({row[0]: row for row in rows}, lambda _key, row: self._lease_of(row))
            self._version = version
        return self._rows.leases()

    def _read(self, connection: sqlite3.Connection, key: str) -> Lease | None:
        row = connection.execute(_GET, (*self._scope, key)).fetchone()
        return None if row is None else self._lease_of(row)

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Commit the statements of the block, or roll them back if it raises."""
        version, self._version = self._version, None  # unknown until it is committed
        connection.execute("BEGIN IMMEDIATE")  # takes the write lock first: no deadlock with another process
        try:
            yield
            connection.execute("COMMIT")
            self._version = version
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    async def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run `work` on the open connection."""
        if (connection := self._connection) is None:
            raise LeaseStoreUnavailableError(f"lease store {self._path} is not open: use `async with`")
        with self._translate_errors():
            return await self._run_in_thread(partial(work, connection), abandon_on_cancel=True)

    async def _run_in_thread(self, work: Callable[[], _T], *, abandon_on_cancel: bool = False) -> _T:
        """Run `work` in a thread, after any other work on the connection."""
        return await trio.to_thread.run_sync(work, abandon_on_cancel=abandon_on_cancel, limiter=self._single_thread)

    def _open(self) -> sqlite3.Connection:
        with self._translate_errors():
            # SQLite would make it readable for others. An existing file is not touched: closing it would drop the locks
            # of other connections of this process. SQLite reports a path that cannot be created.
            with suppress(OSError, ValueError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, self._mode))
            connection = self._connect()
            try:
                _retry_while_locked(lambda: prepare(connection, self._path))
            except BaseException:
                connection.close()
                raise
            return connection

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)

    def _inspect(self) -> Inspection:
        if not self._path.exists():
            return Inspection(exists=False)
        wal = self._path.with_name(f"{self._path.name}-wal")
        with self._translate_errors():
            # SQLite would create the files of a write-ahead log even for a reader. Without one, nobody writes.
            is_open_elsewhere = wal.exists()
            try:
                found = self._inspect_file("mode=ro" if is_open_elsewhere else "immutable=1")
            except (LeaseStoreCorruptError, sqlite3.Error):
                if is_open_elsewhere or not wal.exists():
                    raise
                found = self._inspect_file("mode=ro")  # a worker has opened it in the meantime
        return replace(found, denied=() if os.access(self._path, os.R_OK | os.W_OK) else ("write",))

    def _inspect_file(self, how: str) -> Inspection:
        uri = f"{self._path.absolute().as_uri()}?{how}"
        with closing(sqlite3.connect(uri, timeout=BUSY_TIMEOUT, uri=True)) as connection:
            return inspect(connection, self._path, self._scope)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise the errors of sqlite3 as errors of efo."""
        try:
            yield
        except sqlite3.Error as error:
            # The low byte is the primary error code. Errors that Python raises have no code.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _CORRUPT_CODES:
                raise LeaseStoreCorruptError(
                    f"lease store {self._path}: the file is damaged or not a SQLite file ({reason_of(error)}): restore "
                    "a backup, or move the file away, so that efo starts at the initial position"
                ) from error
            kind, advice = _ADVICE.get(code, _OTHERWISE)
            raise kind(f"lease store {self._path.absolute()}: {reason_of(error)}; {advice}") from error

    def _lease_of(self, row: tuple[Any, ...]) -> Lease:
        value = dict(zip(COLUMN_NAMES, row, strict=True))
        try:
            return msgspec.convert(value | {name: json.loads(value[name]) for name in _LISTS}, LeaseRow).lease()
        except (ConfigurationError, ValueError, TypeError, RecursionError) as error:
            raise LeaseStoreCorruptError(
                f"lease store {self._path}, application {self._scope[0]!r}, stream {self._scope[1]!r}, "
                f"lease {value['lease_key']!r}: {reason_of(error)}; correct the row or delete it"
            ) from error


def _retry_while_locked(work: Callable[[], None]) -> None:
    """Repeat `work` while the file is locked. SQLite does not wait for the lock when it switches to the WAL."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def _changing_of(lease: Lease) -> tuple[_Value, ...]:
    """Return the values of a lease in the order of _CHANGING."""
    checkpoint, pending = lease.checkpoint, lease.pending_checkpoint
    return (
        lease.owner,
        lease.counter,
        lease.owner_switches,
        checkpoint.sequence_number,
        checkpoint.sub_sequence_number,
        lease.checkpoint_owner,
        None if pending is None else pending.sequence_number,
        None if pending is None else pending.sub_sequence_number,
        lease.pending_checkpoint_state,
        lease.throughput_kbps,
        lease.stream_created_at,
        lease.unread_since,
    )


def _row_of(lease: Lease) -> tuple[_Value, ...]:
    """Return the values of a lease in the order of COLUMN_NAMES."""
    values = msgspec.structs.astuple(LeaseRow.of(lease))
    return tuple(json.dumps(value) if isinstance(value, tuple) else value for value in values)
