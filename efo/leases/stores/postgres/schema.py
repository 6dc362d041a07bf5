"""The lease store's table in PostgreSQL: one for all applications and streams, made and renewed by efo itself.

`MIGRATIONS` is the whole history: a database at version n gets the statements after the n-th. A role that may not
create tables can be given them by the database's owner; `efo_lease_version` then tells that it is done.
"""

from __future__ import annotations

from typing import Final

import psycopg

from efo.errors import LeaseStoreCorruptError, LeaseStoreUnavailableError

MIGRATIONS: Final = (
    """
    CREATE TABLE efo_lease (
        application text NOT NULL,
        stream text NOT NULL,
        lease_key text NOT NULL,
        lease_owner text,
        lease_counter bigint NOT NULL,
        owner_switches_since_checkpoint bigint NOT NULL,
        checkpoint text NOT NULL,
        checkpoint_sub_sequence_number bigint NOT NULL,
        parent_shard_ids text[] NOT NULL,
        child_shard_ids text[] NOT NULL,
        starting_hash_key text,
        ending_hash_key text,
        latest_at double precision,
        checkpoint_owner text,
        pending_checkpoint text,
        pending_checkpoint_sub_sequence_number bigint,
        pending_checkpoint_state bytea,
        throughput_kbps double precision,
        PRIMARY KEY (application, stream, lease_key)
    ) WITH (fillfactor = 50);
    CREATE TABLE efo_lease_version (version integer NOT NULL);
    INSERT INTO efo_lease_version VALUES (1);
    """,
)
"""Rows are written several times a second and half of a page is left free, so that a write stays in its page, touches
no index, and what it replaces is removed without a vacuum (PostgreSQL: heap-only tuples)."""
VERSION: Final = len(MIGRATIONS)

_LOCK: Final = int.from_bytes(b"efoLease")
"""Workers that come at once wait for the one that makes the table (advisory lock, for one transaction)."""
_NEEDED: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")


def prepare(connection: psycopg.Connection, place: str) -> None:
    """Make the table or bring it to this version, and check that we may use it.

    Raises LeaseStoreCorruptError, LeaseStoreUnavailableError and psycopg.Error.
    """
    if _only(connection, "SELECT pg_is_in_recovery()"):
        raise LeaseStoreUnavailableError(
            f"lease store {place}: this server is a read-only replica. Name the primary, or several hosts with "
            "target_session_attrs=read-write"
        )
    if _version(connection, place) < VERSION:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            for statements in MIGRATIONS[_version(connection, place) :]:
                connection.execute(statements)
            connection.execute("UPDATE efo_lease_version SET version = %s", (VERSION,))
    _check_permissions(connection, place)


def _version(connection: psycopg.Connection, place: str) -> int:
    """Return the version of what is there: 0 for nothing."""
    # By way of a table, pg_class: a session learns of what others have made when it locks one, and an advisory lock
    # is none.
    if not _only(connection, "SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('efo_lease_version'))"):
        return 0
    version = _only(connection, "SELECT max(version) FROM efo_lease_version")
    if not isinstance(version, int) or not 0 < version <= VERSION:
        raise LeaseStoreCorruptError(
            f"lease store {place}: the version of its table is {version} and this efo knows {VERSION}. "
            "Use the efo that made it, or a newer one"
        )
    return version


def _check_permissions(connection: psycopg.Connection, place: str) -> None:
    missing = [
        right for right in _NEEDED if not _only(connection, "SELECT has_table_privilege('efo_lease', %s)", right)
    ]
    if missing:
        raise LeaseStoreUnavailableError(
            f"lease store {place}: the role may not {', '.join(missing)}. "
            f"As the table's owner: GRANT {', '.join(_NEEDED)} ON efo_lease TO the role"
        )


def _only(connection: psycopg.Connection, query: str, *parameters: object) -> object:
    """Return the one value of a query."""
    row = connection.execute(query, parameters).fetchone()
    return None if row is None else row[0]
