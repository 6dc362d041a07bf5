"""A lease store in one SQLite file: for all the workers of one machine, with nothing to install.

The file belongs on a local disk: SQLite's write-ahead log does not work over a network.

Commits wait for the disk (`synchronous=FULL`). Most checkpoints could be lost to a power failure at no
greater price than a repeat, but not the first one of a shard that began at LATEST: without it the shard
would begin at the *new* latest record and everything in between would be skipped.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import trio

from efo.errors import ConfigurationError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases import transitions
from efo.leases.sqlite_schema import prepare
from efo.model import Checkpoint, HashKeyRange, Lease

_T = TypeVar("_T")
_Row = tuple[str, str | None, int, int, str, int, str, str, str | None, str | None, float | None]

BUSY_TIMEOUT: Final = 2.0
"""Seconds that a write waits for another process' write. A transaction here takes milliseconds."""

_COLUMNS: Final = (
    "lease_key, lease_owner, lease_counter, owner_switches_since_checkpoint, checkpoint, "
    "checkpoint_sub_sequence_number, parent_shard_ids, child_shard_ids, starting_hash_key, ending_hash_key, "
    "latest_at"
)
_LIST: Final = f"SELECT {_COLUMNS} FROM lease WHERE application = ? AND stream = ?"  # noqa: S608 - constants
_CREATE: Final = f"INSERT OR IGNORE INTO lease (application, stream, {_COLUMNS}) VALUES ({', '.join('?' * 13)})"  # noqa: S608 - constants
_WRITE: Final = """
    UPDATE lease SET lease_owner = ?, lease_counter = ?, owner_switches_since_checkpoint = ?,
        checkpoint = ?, checkpoint_sub_sequence_number = ?
    WHERE application = ? AND stream = ? AND lease_key = ? AND lease_counter = ?
"""
_WRITE_OWN: Final = _WRITE + " AND lease_owner = ?"
_SAVE_CHILDREN: Final = "UPDATE lease SET child_shard_ids = ? WHERE application = ? AND stream = ? AND lease_key = ?"
_DELETE: Final = "DELETE FROM lease WHERE application = ? AND stream = ? AND lease_key = ?"

_CORRUPT_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class SqliteLeaseStore:
    """A LeaseStore in the file `path`, made if it is not there: `async with SqliteLeaseStore(...) as store:`.

    One file may serve many applications and streams. Opening raises LeaseStoreUnavailableError (directory
    missing or not writable, file locked) and LeaseStoreCorruptError (not a lease store of efo, or damaged, or
    written by a newer efo).

    Each write is one short transaction in a thread, and the connection serves one thread at a time. A
    cancelled call returns at once while its transaction runs to its end behind it: whether it took
    place is then unknown, as with any store at a distance, but it is never left half done.
    """

    def __init__(self, path: Path, application: str, stream: str) -> None:
        self._path = path
        self._scope = (application, stream)
        self._connection: sqlite3.Connection | None = None
        self._one_at_a_time = trio.CapacityLimiter(1)

    async def __aenter__(self) -> Self:
        # Not abandoned on cancellation: a connection that nobody knows could not be closed.
        self._connection = await trio.to_thread.run_sync(self._open, limiter=self._one_at_a_time)
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
                await trio.to_thread.run_sync(connection.close, limiter=self._one_at_a_time)

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order."""
        rows = await self._run(lambda connection: connection.execute(_LIST, self._scope).fetchall())
        return [self._lease_of(row) for row in rows]

    async def create(self, lease: Lease) -> bool:
        """Add a lease if there is none of its key; return whether it was added."""
        return await self._change(_CREATE, (*self._scope, *_row_of(lease)))

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Become the owner, conditional on the counter."""
        return await self._write(_WRITE, lease, transitions.taken(lease, owner))

    async def renew(self, lease: Lease) -> Lease:
        """Tell the others that we are alive, conditional on counter and owner."""
        return await self._write(_WRITE_OWN, lease, transitions.renewed(lease), lease.owner)

    async def release(self, lease: Lease) -> Lease:
        """Give up ownership, conditional on counter and owner."""
        return await self._write(_WRITE_OWN, lease, transitions.released(lease), lease.owner)

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        """Save how far the shard is done, conditional on counter and owner."""
        return await self._write(_WRITE_OWN, lease, transitions.checkpointed(lease, checkpoint), lease.owner)

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the shard's children, conditional on the row's existence."""
        if not await self._change(_SAVE_CHILDREN, (json.dumps(children), *self._scope, lease.key)):
            raise transitions.lost(lease)
        return replace(lease, children=children)

    async def delete(self, key: str) -> None:
        """Remove a lease, if it is there."""
        await self._change(_DELETE, (*self._scope, key))

    async def _write(self, statement: str, old: Lease, new: Lease, *condition: str | None) -> Lease:
        """Write what changes in a lease, if its row is still as `old` says."""
        values = (
            new.owner,
            new.counter,
            new.owner_switches,
            new.checkpoint.sequence_number,
            new.checkpoint.sub_sequence_number,
        )
        if not await self._change(statement, (*values, *self._scope, old.key, old.counter, *condition)):
            raise transitions.lost(old)
        return new

    async def _change(self, statement: str, parameters: Sequence[str | float | None]) -> bool:
        """Run one statement as one transaction and return whether it changed a row."""
        return await self._run(partial(_transaction, statement=statement, parameters=parameters))

    async def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run `work` in a thread, after any other work on the connection."""
        if (connection := self._connection) is None:
            raise LeaseStoreUnavailableError(f"lease store {self._path}: it is not open, use `async with`")
        with self._translated():
            return await trio.to_thread.run_sync(work, connection, abandon_on_cancel=True, limiter=self._one_at_a_time)

    def _open(self) -> sqlite3.Connection:
        with self._translated():
            connection = sqlite3.connect(
                self._path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
            )
            try:
                _patiently(lambda: prepare(connection, self._path))
            except BaseException:
                connection.close()
                raise
            return connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn sqlite3's errors into ours: the seam between the two."""
        try:
            yield
        except sqlite3.Error as error:
            # Only the low byte names the error, the rest is detail. Errors of Python's own have no code.
            if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _CORRUPT_CODES:
                raise LeaseStoreCorruptError(
                    f"lease store {self._path}: the file is damaged or no SQLite file ({error}). Restore it from a "
                    "backup, or move it away: efo then starts anew, at the initial position"
                ) from error
            raise LeaseStoreUnavailableError(
                f"lease store {self._path}: {error}. Check that its directory exists and is writable, that the disk "
                "is not full, and that no other program holds the file locked"
            ) from error

    def _lease_of(self, row: _Row) -> Lease:
        key, owner, counter, switches, sequence_number, sub_sequence_number, parents, children, start, end, latest = row
        try:
            return Lease(
                key,
                Checkpoint(sequence_number, sub_sequence_number),
                owner=owner,
                counter=counter,
                owner_switches=switches,
                parents=tuple(json.loads(parents)),
                children=tuple(json.loads(children)),
                hash_key_range=None if start is None or end is None else HashKeyRange(start, end),
                latest_at=latest,
            )
        except (ConfigurationError, ValueError, TypeError) as error:
            raise LeaseStoreCorruptError(
                f"lease store {self._path}, application {self._scope[0]!r}, stream {self._scope[1]!r}, "
                f"lease {key!r}: {error}. Correct the row or delete it"
            ) from error


def _patiently(work: Callable[[], None]) -> None:
    """Repeat `work` while the file is locked: SQLite does not wait by itself where it switches to the WAL."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def _row_of(lease: Lease) -> tuple[str | float | None, ...]:
    """Return the values of a lease in the order of `_COLUMNS`."""
    hash_keys = lease.hash_key_range
    return (
        lease.key,
        lease.owner,
        lease.counter,
        lease.owner_switches,
        lease.checkpoint.sequence_number,
        lease.checkpoint.sub_sequence_number,
        json.dumps(lease.parents),
        json.dumps(lease.children),
        hash_keys.starting_hash_key if hash_keys else None,
        hash_keys.ending_hash_key if hash_keys else None,
        lease.latest_at,
    )


def _transaction(connection: sqlite3.Connection, statement: str, parameters: Sequence[str | float | None]) -> bool:
    connection.execute("BEGIN IMMEDIATE")  # the write lock first: no deadlock with another process' write
    try:
        changed = connection.execute(statement, parameters).rowcount
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return changed == 1
