"""The PostgreSQL table of the lease store: one for all applications and streams, created and migrated by efo.

`MIGRATIONS` is the whole history: a database at version n gets the statements after the n-th. If a role may not create
tables, the owner of the database can create them; `efo_lease_version` then has the current version.
"""

from __future__ import annotations

from typing import Final

import psycopg

from efo.errors import LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.store import Inspection

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
    """
    ALTER TABLE efo_lease ADD COLUMN stream_created_at double precision;
    ALTER TABLE efo_lease ADD COLUMN unread_since double precision;
    """,
)
"""`fillfactor`: rows are updated often. With half of each page free, an update stays in its page, touches no index, and
the old row version is removed without a vacuum (PostgreSQL: heap-only tuples)."""
VERSION: Final = len(MIGRATIONS)

_WITH_STREAMS: Final = 2
"""The first version whose leases say of which stream they are."""
_STREAMS: Final = (
    "SELECT DISTINCT stream_created_at FROM efo_lease WHERE application = %s AND stream = %s"
    " AND stream_created_at IS NOT NULL"
)
_LOCK: Final = int.from_bytes(b"efoLease")
"""Key of the transaction-level advisory lock: workers that start together wait for the one that creates the table."""
_NEEDED: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")


def prepare(connection: psycopg.Connection, location: str) -> None:
    """Create the table or migrate it to this version, and check the permissions of the role.

    Raises LeaseStoreCorruptError, LeaseStoreUnavailableError and psycopg.Error.
    """
    _refuse_replica(connection, location)
    if _version(connection, location) < VERSION:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            for statements in MIGRATIONS[_version(connection, location) :]:
                connection.execute(statements)
            connection.execute("UPDATE efo_lease_version SET version = %s", (VERSION,))
    _check_permissions(connection, location)


def inspect(connection: psycopg.Connection, location: str, scope: tuple[str, str]) -> Inspection:
    """Look at the table, which may not exist. `scope`: application and stream. Raises as `prepare` does."""
    _refuse_replica(connection, location)
    if not (version := _version(connection, location)):
        may_create = _scalar(connection, "SELECT has_schema_privilege(current_schema(), 'CREATE')")
        return Inspection(exists=False, denied=() if may_create else ("CREATE on the schema",))
    leases = _scalar(connection, "SELECT count(*) FROM efo_lease WHERE application = %s AND stream = %s", *scope)
    assert isinstance(leases, int)  # noqa: S101 - PostgreSQL's bigint
    streams = [] if version < _WITH_STREAMS else connection.execute(_STREAMS, scope).fetchall()
    denied = _missing_permissions(connection)
    created_at = tuple(time for (time,) in streams)
    return Inspection(exists=True, leases=leases, version=version, denied=denied, created_at=created_at)


def _refuse_replica(connection: psycopg.Connection, location: str) -> None:
    if _scalar(connection, "SELECT pg_is_in_recovery()"):
        raise LeaseStoreUnavailableError(
            f"lease store {location}: this server is a read-only replica: use the URL of the primary, or several "
            "hosts with target_session_attrs=read-write"
        )


def _version(connection: psycopg.Connection, location: str) -> int:
    """Return the version of the table, 0 if it does not exist."""
    # Through pg_class: a session sees tables that other sessions have created once it locks a relation. An advisory
    # lock does not do that.
    if not _scalar(connection, "SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('efo_lease_version'))"):
        return 0
    version = _scalar(connection, "SELECT max(version) FROM efo_lease_version")
    if not isinstance(version, int) or not 0 < version <= VERSION:
        raise LeaseStoreCorruptError(
            f"lease store {location}: the version of its table is {version}, this efo supports {VERSION}: "
            "use the efo release that wrote it, or a newer one"
        )
    return version


def _check_permissions(connection: psycopg.Connection, location: str) -> None:
    if missing := _missing_permissions(connection):
        raise LeaseStoreUnavailableError(
            f"lease store {location}: the role lacks {', '.join(missing)} on efo_lease: "
            f"as the owner of the table, GRANT {', '.join(_NEEDED)} ON efo_lease TO the role"
        )


def _missing_permissions(connection: psycopg.Connection) -> tuple[str, ...]:
    has = "SELECT has_table_privilege('efo_lease', %s)"
    return tuple(name for name in _NEEDED if not _scalar(connection, has, name))


def _scalar(connection: psycopg.Connection, query: str, *parameters: object) -> object:
    """Return the single value of a query."""
    row = connection.execute(query, parameters).fetchone()
    return None if row is None else row[0]
