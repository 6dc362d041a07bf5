"""The SQLite file of the lease store: its application id, its version and its one table.

The columns have the names and values of KCL's lease table, so that leases can be moved to it and back. The lists of
shard ids are JSON arrays, which SQLite's functions can read.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

from efo.errors import LeaseStoreCorruptError
from efo.leases.store import Inspection

APPLICATION_ID: Final = int.from_bytes(b"efoL")
"""SQLite's `application_id` of a lease store. `file` and other tools identify the file by it."""
VERSION: Final = 3
"""The version of the table, in SQLite's `user_version`. An older file is migrated when it is opened."""

_TABLE: Final = """
    CREATE TABLE lease (
        application TEXT NOT NULL,
        stream TEXT NOT NULL,
        lease_key TEXT NOT NULL,
        lease_owner TEXT,
        lease_counter INTEGER NOT NULL,
        owner_switches_since_checkpoint INTEGER NOT NULL,
        checkpoint TEXT NOT NULL,
        checkpoint_sub_sequence_number INTEGER NOT NULL,
        parent_shard_ids TEXT NOT NULL,
        child_shard_ids TEXT NOT NULL,
        starting_hash_key TEXT,
        ending_hash_key TEXT,
        latest_at REAL,
        checkpoint_owner TEXT,
        pending_checkpoint TEXT,
        pending_checkpoint_sub_sequence_number INTEGER,
        pending_checkpoint_state BLOB,
        throughput_kbps REAL,
        stream_created_at REAL,
        unread_since REAL,
        PRIMARY KEY (application, stream, lease_key)
    ) WITHOUT ROWID
"""

_MIGRATIONS: Final = {
    1: (
        "ALTER TABLE lease ADD COLUMN checkpoint_owner TEXT",
        "ALTER TABLE lease ADD COLUMN pending_checkpoint TEXT",
        "ALTER TABLE lease ADD COLUMN pending_checkpoint_sub_sequence_number INTEGER",
        "ALTER TABLE lease ADD COLUMN pending_checkpoint_state BLOB",
        "ALTER TABLE lease ADD COLUMN throughput_kbps REAL",
    ),
    2: (
        "ALTER TABLE lease ADD COLUMN stream_created_at REAL",
        "ALTER TABLE lease ADD COLUMN unread_since REAL",
    ),
}
"""The statements that migrate each version to the next. Columns are only added, so that an older efo can keep the file
open: it names the columns that it knows, and sees a hand-off as a stolen lease."""


_WITH_STREAMS: Final = 3
"""The first version whose leases say of which stream they are."""
_STREAMS: Final = (
    "SELECT DISTINCT stream_created_at FROM lease WHERE application = ? AND stream = ? AND stream_created_at NOTNULL"
)


def inspect(connection: sqlite3.Connection, path: Path, scope: tuple[str, str]) -> Inspection:
    """Look at a file that may be empty. `scope`: application and stream. Raises as `prepare` does."""
    if _is_empty(connection):
        return Inspection(exists=False)
    _check(connection, path)
    query = "SELECT count(*) FROM lease WHERE application = ? AND stream = ?"
    (leases,) = connection.execute(query, scope).fetchone()
    version = _pragma(connection, "user_version")
    streams = () if version < _WITH_STREAMS else (time for (time,) in connection.execute(_STREAMS, scope))
    return Inspection(exists=True, leases=leases, version=version, created_at=tuple(streams))


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the table in an empty file, or check the file and migrate it to this version.

    Raises LeaseStoreCorruptError and sqlite3.Error. A file of another program or of a newer efo is not changed.
    """
    is_new = _is_empty(connection)
    if not is_new:
        _check(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if is_new:
        _create(connection)
    elif _pragma(connection, "user_version") != VERSION:
        _migrate(connection)


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _pragma(connection, "user_version")  # another worker may have migrated it first
        for older in range(version, VERSION):
            for statement in _MIGRATIONS[older]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {older + 1}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_empty(connection):  # another worker may have created it first
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise LeaseStoreCorruptError(
            f"lease store {path}: this SQLite file belongs to another program: use another file for the leases"
        )
    if not 1 <= (version := _pragma(connection, "user_version")) <= VERSION:
        raise LeaseStoreCorruptError(
            f"lease store {path}: its version is {version}, this efo supports 1 to {VERSION}: "
            "use the efo release that wrote the file, or a newer one"
        )
    if (finding := _pragma(connection, "quick_check(1)")) != "ok":
        raise LeaseStoreCorruptError(
            f"lease store {path}: the file is damaged ({finding}): restore a backup, or move the file away, so that "
            "efo starts at the initial position"
        )


def _is_empty(connection: sqlite3.Connection) -> bool:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(tables == 0 and _pragma(connection, "application_id") == 0)


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value
