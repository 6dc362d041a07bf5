"""The PostgreSQL lease store: servers and data that it rejects, and failures that it survives."""

import socket
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count

import psycopg
import pytest
import trio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from efo.errors import (
    ConfigurationError,
    LeaseStoreCorruptError,
    LeaseStoreUnavailableError,
    MissingExtraError,
)
from efo.leases.store import Inspection
from efo.leases.stores.postgres import schema as postgres_schema
from efo.leases.stores.postgres.schema import VERSION
from efo.leases.stores.postgres.store import PostgresLeaseStore
from efo.model import Checkpoint, Lease
from proofs.local_servers.postgres import PASSWORD, serve_postgres
from tests.efo.leases.stores.all_stores import CALL_TIMEOUT, check_leases_are_separate, check_leases_persist
from tests.loopback import refused_port
from tests.waiting import until

NUMBERS = count(1)
SHORT_TIMEOUT = 0.5
"""Maximum seconds per call to a server that does not respond."""

CONNECTIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'efo' AND datname = current_database()"
WAITING = CONNECTIONS + " AND wait_event_type = 'Lock'"


@pytest.fixture
def url(servers):
    """The URL of a new database."""
    server = servers.url(serve_postgres)
    name = f"test{next(NUMBERS)}"
    execute(server, f"CREATE DATABASE {name}")
    return changed(server, dbname=name)


def changed(url, **parameters):
    return make_conninfo("", **{**conninfo_to_dict(url), **parameters})


def open_store(url, application="app", stream="stream", timeout=CALL_TIMEOUT):
    return PostgresLeaseStore(url, application, stream, timeout=timeout)


def execute(url, *statements):
    with psycopg.connect(url, autocommit=True) as connection:
        cursors = [connection.execute(statement) for statement in statements]
        return cursors[-1].fetchall() if cursors[-1].description else None


@contextmanager
def locked(url):
    """Block all readers and writers of the table within the block."""
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE efo_lease IN ACCESS EXCLUSIVE MODE")
        yield


async def error_of_opening(url, kind, **options):
    with pytest.raises(kind) as caught:
        async with open_store(url, **options):
            pytest.fail("the store opened")
    message = str(caught.value)
    assert PASSWORD not in message
    assert "lease store postgresql://127.0.0.1:" in message
    return message


async def test_leases_persist_after_close(url):
    await check_leases_persist(partial(open_store, url))


async def test_applications_and_streams_in_one_table_are_separate(url):
    await check_leases_are_separate(partial(open_store, url))


async def test_workers_that_start_together_create_one_table(url):
    async def start(number):
        async with open_store(url) as store:
            await store.create(Lease(f"s{number}", Checkpoint.LATEST))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(start, number)
    assert execute(url, "SELECT count(*) FROM efo_lease") == [(8,)]
    assert execute(url, "SELECT version FROM efo_lease_version") == [(VERSION,)]


async def test_an_older_table_is_migrated(url, monkeypatch):
    async with open_store(url) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    monkeypatch.setattr(
        postgres_schema, "MIGRATIONS", (*postgres_schema.MIGRATIONS, "ALTER TABLE efo_lease ADD later text")
    )
    monkeypatch.setattr(postgres_schema, "VERSION", VERSION + 1)
    async with open_store(url) as store:
        assert await store.list() == [Lease("s", Checkpoint.LATEST)]
    assert execute(url, "SELECT version FROM efo_lease_version") == [(VERSION + 1,)]
    assert execute(url, "SELECT later FROM efo_lease") == [(None,)]


async def test_a_table_of_the_first_version_is_migrated_and_its_leases_have_no_times(url, monkeypatch):
    with monkeypatch.context() as first:
        first.setattr(postgres_schema, "MIGRATIONS", postgres_schema.MIGRATIONS[:1])
        first.setattr(postgres_schema, "VERSION", 1)
        async with open_store(url):
            pass
    execute(
        url,
        "INSERT INTO efo_lease (application, stream, lease_key, lease_owner, lease_counter,"
        " owner_switches_since_checkpoint, checkpoint, checkpoint_sub_sequence_number, parent_shard_ids,"
        " child_shard_ids) VALUES ('app', 'stream', 's', 'ann', 4, 0, '77', 2, '{}', '{}')",
    )
    assert (await open_store(url).inspect()) == Inspection(exists=True, leases=1, version=1)
    async with open_store(url) as store:
        (lease,) = await store.list()
        assert (lease.stream_created_at, lease.unread_since) == (None, None)
        await store.renew(replace(lease, stream_created_at=1000.0, unread_since=2000.0))
    assert (await open_store(url).inspect()).created_at == (1000.0,)
    assert execute(url, "SELECT version FROM efo_lease_version") == [(VERSION,)]


async def test_a_newer_version_is_rejected(url):
    async with open_store(url):
        pass
    execute(url, "UPDATE efo_lease_version SET version = version + 1")
    assert f"version of its table is {VERSION + 1}" in await error_of_opening(url, LeaseStoreCorruptError)


async def test_a_table_of_another_program_is_rejected_and_not_changed(url):
    execute(url, "CREATE TABLE efo_lease (theirs text)")
    assert "efo_lease" in await error_of_opening(url, LeaseStoreCorruptError)
    assert execute(url, "SELECT to_regclass('efo_lease_version')") == [(None,)]
    assert execute(url, "SELECT * FROM efo_lease") == []


async def test_a_wrong_password_is_reported_without_showing_it(url):
    message = await error_of_opening(changed(url, password="hunter2"), LeaseStoreUnavailableError)
    assert "password authentication failed" in message
    assert "hunter2" not in message


async def test_a_missing_database_is_named(url):
    assert '"nowhere" does not exist' in await error_of_opening(
        changed(url, dbname="nowhere"), LeaseStoreUnavailableError
    )


async def test_a_refused_connection_is_unavailable(url):
    with refused_port() as port:
        message = await error_of_opening(changed(url, port=port), LeaseStoreUnavailableError)
    assert "refused" in message
    assert str(port) in message


async def test_a_server_that_does_not_respond_is_unavailable(url):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = changed(url, port=listener.getsockname()[1])
        assert "no response within" in await error_of_opening(silent, LeaseStoreUnavailableError, timeout=SHORT_TIMEOUT)


@pytest.mark.parametrize(
    "url", ["hunter2 hunter2", "postgresql://efo:hunter2@[::1/efo", "mysql://efo:hunter2@host/efo"]
)
async def test_an_invalid_url_is_rejected_without_showing_it(url):
    with pytest.raises(ConfigurationError, match="postgresql://USER:PASSWORD@HOST:PORT/DATABASE") as caught:
        PostgresLeaseStore(url, "app", "stream")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def role(url, *statements):
    """Create a role and execute `statements`, with its name for {role}. Return the URL with the role."""
    name = f"role{next(NUMBERS)}"
    execute(url, f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    if statements:
        execute(url, *(statement.format(role=name) for statement in statements))
    return changed(url, user=name)


async def test_a_role_that_may_not_create_the_table_is_reported(url):
    execute(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    assert "permission denied for schema public" in await error_of_opening(role(url), LeaseStoreUnavailableError)


async def test_missing_permissions_are_named(url):
    async with open_store(url):
        pass
    restricted = role(url, "GRANT SELECT, INSERT ON efo_lease TO {role}", "GRANT SELECT ON efo_lease_version TO {role}")
    message = await error_of_opening(restricted, LeaseStoreUnavailableError)
    assert "lacks UPDATE, DELETE" in message
    assert "GRANT SELECT, INSERT, UPDATE, DELETE ON efo_lease" in message


async def test_a_role_without_any_permission_on_the_table_is_reported(url):
    async with open_store(url):
        pass
    assert "permission denied for table efo_lease_version" in await error_of_opening(
        role(url), LeaseStoreUnavailableError
    )


async def test_a_revoked_permission_makes_the_store_unavailable_until_it_is_granted(url):
    permissions = "SELECT, INSERT, UPDATE, DELETE ON efo_lease"
    async with open_store(url) as owner:
        await owner.create(Lease("s", Checkpoint.LATEST))
        granted = role(url, f"GRANT {permissions} TO {{role}}", "GRANT SELECT ON efo_lease_version TO {role}")
        name = conninfo_to_dict(granted)["user"]
        async with open_store(granted) as store:
            execute(url, f"REVOKE UPDATE ON efo_lease FROM {name}")
            with pytest.raises(LeaseStoreUnavailableError, match="permission denied for table efo_lease"):
                await store.take(Lease("s", Checkpoint.LATEST), "ann")
            execute(url, f"GRANT UPDATE ON efo_lease TO {name}")
            assert (await store.take(Lease("s", Checkpoint.LATEST), "ann")).counter == 1


async def test_a_write_to_a_read_only_server_is_unavailable(url):
    async with open_store(url) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    async with open_store(changed(url, options="-c default_transaction_read_only=on")) as store:
        assert await store.list() == [Lease("s", Checkpoint.LATEST)]
        with pytest.raises(LeaseStoreUnavailableError, match="read-only"):
            await store.take(Lease("s", Checkpoint.LATEST), "ann")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE efo_lease SET checkpoint = 'banana'", "banana"),
        ("UPDATE efo_lease SET parent_shard_ids = '{a, NULL}'", "parent_shard_ids"),
        ("ALTER TABLE efo_lease ALTER lease_counter TYPE text", "lease_counter"),
    ],
)
async def test_an_invalid_row_is_rejected_with_its_key(url, damage, message):
    async with open_store(url) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        execute(url, damage)
        with pytest.raises(LeaseStoreCorruptError, match="stream 'stream', lease 's'") as caught:
            await store.list()
        assert message in str(caught.value)


async def test_a_table_that_is_dropped_while_the_store_is_open_is_named(url):
    async with open_store(url) as store:
        execute(url, "DROP TABLE efo_lease")
        with pytest.raises(LeaseStoreCorruptError, match='relation "efo_lease" does not exist'):
            await store.list()


async def test_a_connection_that_the_server_closed_is_reopened_without_an_error(url):
    async with open_store(url) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        for lease in (Lease("s", Checkpoint.LATEST), Lease("s", Checkpoint.LATEST, owner="ann", counter=1)):
            execute(url, CONNECTIONS.replace("pid", "pg_terminate_backend(pid)"))
            await until(lambda: not execute(url, CONNECTIONS))
            await store.take(lease, "ann")


async def test_a_call_that_times_out_leaves_no_thread_and_no_write(url):
    async with open_store(url) as owner, open_store(url, timeout=SHORT_TIMEOUT) as store:
        await owner.create(Lease("s", Checkpoint.LATEST))
        with locked(url):
            for _ in range(6):  # more calls than connections
                with pytest.raises(LeaseStoreUnavailableError, match=r"no response within 0\.5 s|statement timeout"):
                    await store.take(Lease("s", Checkpoint.LATEST), "ann")
            await wait_until_idle(store)
        assert (await owner.take(Lease("s", Checkpoint.LATEST), "ann")).counter == 1


async def wait_until_idle(store):
    """Wait until the store uses no thread. The threads of aborted calls end by themselves."""
    await until(lambda: store._pool._threads.borrowed_tokens == 0)


async def test_a_cancelled_call_returns_at_once_and_ends_its_thread(url):
    async with open_store(url) as store:
        await store.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
        (lease,) = await store.list()
        with locked(url):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.checkpoint, lease, Checkpoint("5"))
                await until(lambda: execute(url, WAITING))
                nursery.cancel_scope.cancel()
            await wait_until_idle(store)  # although the server still executes the statement
        (after,) = await store.list()
        assert after in {lease, Lease("s", Checkpoint("5"), owner="ann", counter=2)}
        await store.renew(after)


async def test_concurrent_calls_share_the_connections(url):
    async with PostgresLeaseStore(url, "app", "stream", timeout=CALL_TIMEOUT, connections=2) as store:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(store.create, Lease(f"s{number}", Checkpoint.LATEST))
        assert len(await store.list()) == 20
        assert 1 <= len(execute(url, CONNECTIONS)) <= 2


async def test_a_closed_store_is_unavailable_and_has_no_connection(url):
    store = open_store(url)
    async with store:
        await store.list()
    with pytest.raises(LeaseStoreUnavailableError, match="not open"):
        await store.list()
    await until(lambda: not execute(url, CONNECTIONS))


def test_a_missing_driver_is_reported_with_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "efo.leases.stores.postgres.pool", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'efo\[postgres\]'"):
        PostgresLeaseStore("postgresql://db/efo", "application", "stream")


async def test_an_inspection_creates_no_table_and_counts_the_leases_of_its_scope(url):
    assert await open_store(url).inspect() == Inspection(exists=False)
    assert execute(url, "SELECT to_regclass('efo_lease')") == [(None,)]
    async with open_store(url) as store, open_store(url, stream="other") as other:
        await store.create(Lease("s", Checkpoint.LATEST))
        await other.create(Lease("t", Checkpoint.LATEST))
        await other.create(Lease("u", Checkpoint.LATEST))
    assert await open_store(url).inspect() == Inspection(exists=True, leases=1, version=VERSION)


async def test_an_inspection_names_the_permissions_that_the_role_lacks(url):
    execute(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    assert (await open_store(role(url)).inspect()).denied == ("CREATE on the schema",)
    async with open_store(url):
        pass
    restricted = role(url, "GRANT SELECT, INSERT ON efo_lease TO {role}", "GRANT SELECT ON efo_lease_version TO {role}")
    assert (await open_store(restricted).inspect()).denied == ("UPDATE", "DELETE")


async def test_an_inspection_closes_its_connection(url):
    await open_store(url).inspect()
    await until(lambda: execute(url, CONNECTIONS) == [])
