"""The Redis lease store: servers and data that it rejects, and failures that it survives."""

import json
import socket
import sys
from dataclasses import replace
from itertools import count

import msgspec
import pytest
import redis
import trio

from efo.errors import (
    ConfigurationError,
    LeaseStoreCorruptError,
    LeaseStoreUnavailableError,
    MissingExtraError,
)
from efo.leases.lease_row import LeaseRow
from efo.leases.store import Inspection
from efo.leases.stores.redis.store import VERSION, RedisLeaseStore
from efo.leases.writes import RenewLease
from efo.model import Checkpoint, Lease
from proofs.local_servers.redis import PASSWORD, serve_redis
from tests.efo.leases.stores.all_stores import CALL_TIMEOUT, check_leases_are_separate, check_leases_persist
from tests.loopback import refused_port
from tests.waiting import until

NUMBERS = count(1)
SHORT_TIMEOUT = 0.5
"""Maximum seconds per call to a server that does not respond."""


@pytest.fixture
def url(servers):
    return servers.url(serve_redis)


@pytest.fixture
def client(url):
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def application():
    """The name of a new application."""
    return f"test{next(NUMBERS)}"


@pytest.fixture
def key(application):
    return f"efo:leases:{{{application}/stream}}"


@pytest.fixture
def open_store(url, application):
    def open_store(url=url, application=application, stream="stream", timeout=CALL_TIMEOUT):
        return RedisLeaseStore(url, application, stream, timeout=timeout)

    return open_store


async def error_of_opening(store, kind):
    with pytest.raises(kind) as caught:
        async with store:
            pytest.fail("the store opened")
    message = str(caught.value)
    assert PASSWORD not in message
    assert "lease store redis://127.0.0.1:" in message
    return message


async def test_leases_persist_after_close(open_store):
    await check_leases_persist(open_store)


async def test_applications_and_streams_in_one_database_are_separate(open_store, application):
    await check_leases_are_separate(open_store, f"{application}-other")


async def test_the_key_has_no_expiry(open_store, client, key):
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    assert client.ttl(key) == -1


@pytest.mark.parametrize("version", [VERSION + 1, "banana"])
async def test_another_version_is_rejected(open_store, client, key, version):
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    client.hset(key, "#version", version)
    assert f"version is {version}" in await error_of_opening(open_store(), LeaseStoreCorruptError)


def first_version(lease):
    """Return the value of a lease as the first version wrote it: without its times."""
    row = json.loads(msgspec.json.encode(LeaseRow.of(lease)))
    return json.dumps({name: value for name, value in row.items() if name not in {"stream_created_at", "unread_since"}})


async def test_a_hash_of_the_first_version_is_read_and_becomes_newer_with_the_first_write(open_store, client, key):
    held = Lease("s", Checkpoint("7"), owner="ann", counter=4)
    client.hset(key, mapping={"#version": 1, "s": first_version(held)})
    assert (await open_store().inspect()).version == 1
    async with open_store() as store, open_store() as other:
        assert await store.list() == await other.list() == [held]
        assert client.hget(key, "#version") == b"1"
        lease = await store.renew(replace(held, stream_created_at=1000.0))
        assert client.hget(key, "#version") == b"%d" % VERSION
        assert await other.list() == [lease]
        await other.create(Lease("t", Checkpoint.LATEST))
        assert client.hget(key, "#version") == b"%d" % VERSION
    found = await open_store().inspect()
    assert (found.version, found.created_at) == (VERSION, (1000.0,))


@pytest.mark.parametrize("write", ["create", "write_many", "delete and create"])
async def test_each_kind_of_write_makes_a_hash_of_the_first_version_newer(open_store, client, key, write):
    held = Lease("s", Checkpoint("7"), owner="ann", counter=4)
    client.hset(key, mapping={"#version": 1, "s": first_version(held)})
    async with open_store() as store:
        await store.list()
        match write:
            case "create":
                await store.create(Lease("t", Checkpoint.LATEST, stream_created_at=1000.0))
            case "write_many":
                await store.write_many([RenewLease(replace(held, unread_since=1.0))], lambda _index, _result: None)
            case _:
                await store.delete("s")
                await store.create(held)
    assert client.hget(key, "#version") == b"%d" % VERSION


async def test_a_hash_without_a_version_is_rejected(open_store, client, key):
    client.hset(key, "s", "x")
    assert "version is missing" in await error_of_opening(open_store(), LeaseStoreCorruptError)


async def test_a_key_of_another_program_is_rejected_and_not_changed(open_store, client, key):
    client.set(key, "theirs")
    assert "another program" in await error_of_opening(open_store(), LeaseStoreCorruptError)
    assert client.get(key) == b"theirs"


async def test_a_newer_version_is_rejected_while_the_store_is_open(open_store, client, key):
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        client.hset(key, "#version", VERSION + 1)
        with pytest.raises(LeaseStoreCorruptError, match="newer"):
            await store.list()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b'{"lease_key": "s"', "truncated"),
        (b'{"lease_key": "s"}', "missing required field"),
        (b"\xff\xfe", "malformed"),
    ],
)
async def test_an_invalid_lease_is_rejected_with_its_key(open_store, client, key, value, message):
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        client.hset(key, "s", value)
        for call in (store.list(), store.get("s"), store.take(Lease("s", Checkpoint.LATEST), "ann")):
            with pytest.raises(LeaseStoreCorruptError, match="lease 's': ") as caught:
                await call
            assert key in str(caught.value)
            assert message in str(caught.value)


async def test_an_invalid_checkpoint_is_rejected(open_store, client, key):
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        client.hset(key, "s", client.hget(key, "s").replace(b"LATEST", b"banana"))
        with pytest.raises(LeaseStoreCorruptError, match="'banana' is not a checkpoint"):
            await store.list()


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace(PASSWORD, "hunter2"),
        lambda url: url.replace(f":{PASSWORD}@", ""),
        lambda url: url.replace("://:", "://nobody:"),
    ],
    ids=["wrong password", "no password", "unknown user"],
)
async def test_wrong_credentials_are_reported_without_the_password(open_store, url, change):
    message = await error_of_opening(open_store(change(url)), LeaseStoreUnavailableError)
    assert "check user and password" in message
    assert "hunter2" not in message


async def test_a_missing_permission_is_reported_until_it_is_granted(open_store, client, url, application):
    user = f"user-{application}"
    client.acl_setuser(user, enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+hget", "+hgetall"])
    try:
        async with open_store(url.replace("://:", f"://{user}:")) as store:
            with pytest.raises(LeaseStoreUnavailableError, match="no permissions"):
                await store.create(Lease("s", Checkpoint.LATEST))
            client.acl_setuser(user, enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@all"])
            assert await store.create(Lease("s", Checkpoint.LATEST))
    finally:
        client.acl_deluser(user)


async def test_the_documented_permissions_are_sufficient(open_store, client, url, application):
    user = f"user-{application}"
    commands = ["+hget", "+hgetall", "+hdel", "+hset", "+hsetnx", "+evalsha", "+script|load"]
    client.acl_setuser(user, enabled=True, passwords=[f"+{PASSWORD}"], keys=["efo:leases:*"], commands=commands)
    client.script_flush()
    try:
        async with open_store(url.replace("://:", f"://{user}:")) as store:
            assert await store.create(Lease("s", Checkpoint.LATEST))
            assert (await store.take(Lease("s", Checkpoint.LATEST), "ann")).counter == 1
            await store.delete("s")
            assert await store.list() == []
    finally:
        client.acl_deluser(user)


async def test_a_refused_connection_is_unavailable(open_store):
    with refused_port() as port:
        message = await error_of_opening(
            open_store(f"redis://:{PASSWORD}@127.0.0.1:{port}/0"), LeaseStoreUnavailableError
        )
    assert "refused" in message
    assert str(port) in message


async def test_a_server_that_does_not_respond_is_unavailable_and_blocks_no_thread(open_store):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = open_store(f"redis://:{PASSWORD}@127.0.0.1:{listener.getsockname()[1]}/0", timeout=SHORT_TIMEOUT)
        message = await error_of_opening(silent, LeaseStoreUnavailableError)
        assert "no response within" in message or "Timeout" in message
        await until(lambda: silent._client._threads.borrowed_tokens == 0)


@pytest.mark.parametrize(
    "url",
    [
        "hunter2 hunter2",
        "redis://:hunter2@[::1/0",
        "redis://:hunter2@h:99999/0",
        "postgresql://efo:hunter2@host/efo",
        "redis://:hunter2@h/0?ssl_ca_certs=x",
        "redis://:hunter2@h/0?pasword=hunter2",
        "redis://:hunter2@h/0?protocol=9",
        "redis://:hunter2@h/0?maint_notifications_config=x",
    ],
)
async def test_an_invalid_url_is_rejected_without_showing_it(url):
    with pytest.raises(ConfigurationError, match="redis://:PASSWORD@HOST:PORT/DATABASE") as caught:
        RedisLeaseStore(url, "app", "stream")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


async def test_options_of_redis_py_in_the_url_are_accepted(open_store, url):
    async with open_store(f"{url}?health_check_interval=5&decode_responses=yes") as store:
        assert await store.create(Lease("s", Checkpoint.LATEST))
        assert await store.list() == [Lease("s", Checkpoint.LATEST)]


def test_ssl_options_in_a_rediss_url_are_accepted():
    RedisLeaseStore("rediss://h/0?ssl_ca_certs=x", "app", "stream")


@pytest.fixture
def own_server(servers):
    """The URL and a client of a server that only this test uses."""
    servers.url(serve_redis)  # skips the test if Redis is not installed
    with serve_redis() as url, redis.Redis.from_url(url) as client:
        yield url, client


async def test_a_replica_is_rejected(open_store, url, own_server):
    replica, client = own_server
    primary = redis.connection.parse_url(url)
    client.config_set("masterauth", PASSWORD)
    client.replicaof(primary["host"], primary["port"])
    assert "read-only replica" in await error_of_opening(open_store(replica), LeaseStoreUnavailableError)


async def test_a_primary_that_becomes_a_replica_is_reported_and_its_connections_are_closed(open_store, url, own_server):
    replica, client = own_server
    primary = redis.connection.parse_url(url)
    async with open_store(replica) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        client.config_set("masterauth", PASSWORD)
        client.replicaof(primary["host"], primary["port"])
        with pytest.raises(LeaseStoreUnavailableError, match="read-only replica"):
            await store.create(Lease("t", Checkpoint.LATEST))
        # So that the next call resolves the host name again.
        connections = store._client.redis.connection_pool._available_connections
        assert connections
        assert not any(connection.is_connected for connection in connections)


async def test_a_server_that_may_evict_leases_is_rejected(open_store, own_server):
    evicting, client = own_server
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert "maxmemory-policy allkeys-lru" in await error_of_opening(open_store(evicting), LeaseStoreUnavailableError)
    client.config_set("maxmemory-policy", "volatile-lru")
    async with open_store(evicting):
        pass


async def test_a_server_without_free_memory_is_unavailable_until_it_has_some(open_store, own_server):
    full, client = own_server
    async with open_store(full) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        client.config_set("maxmemory", "1")
        with pytest.raises(LeaseStoreUnavailableError, match="memory"):
            await store.take(Lease("s", Checkpoint.LATEST), "ann")
        client.config_set("maxmemory", "0")
        assert (await store.take(Lease("s", Checkpoint.LATEST), "ann")).counter == 1


async def test_a_cluster_node_is_unavailable_until_it_has_the_key(open_store, servers):
    servers.url(serve_redis)
    with serve_redis("--cluster-enabled", "yes") as url, redis.Redis.from_url(url) as client:
        with pytest.raises(LeaseStoreUnavailableError, match=r"CLUSTERDOWN|not served"):
            async with open_store(url) as store:
                pytest.fail("the store opened")
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True))
        async with open_store(url) as store:
            await store.create(Lease("s", Checkpoint.LATEST))
            assert (await store.take(Lease("s", Checkpoint.LATEST), "ann")).counter == 1


async def test_connections_that_the_server_closed_are_reopened_without_an_error(open_store, client):
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        for lease in (Lease("s", Checkpoint.LATEST), Lease("s", Checkpoint.LATEST, owner="ann", counter=1)):
            client.client_kill_filter(_type="normal", skipme=True)
            await store.take(lease, "ann")


async def test_scripts_that_the_server_flushed_are_loaded_again(open_store, client):
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        client.script_flush()
        await store.create(Lease("t", Checkpoint.LATEST))
        client.script_flush()
        assert (await store.take(Lease("s", Checkpoint.LATEST), "ann")).counter == 1


@pytest.fixture
def paused_writes(client):
    """Pause all writes on the server until the test calls the returned function."""
    client.client_pause(int(CALL_TIMEOUT * 1000), all=False)
    yield client.client_unpause
    client.client_unpause()


async def test_a_call_that_times_out_leaves_no_thread_and_no_partial_write(open_store, request):
    async with open_store() as owner, open_store(timeout=SHORT_TIMEOUT) as store:
        await owner.create(Lease("s", Checkpoint.LATEST))
        resume = request.getfixturevalue("paused_writes")
        for _ in range(6):  # more calls than connections
            with pytest.raises(LeaseStoreUnavailableError, match=r"no response within 0\.5 s|Timeout"):
                await store.take(Lease("s", Checkpoint.LATEST), "ann")
        await until(lambda: store._client._threads.borrowed_tokens == 0)
        resume()
        lease = await owner.get("s")
        assert lease in {Lease("s", Checkpoint.LATEST), Lease("s", Checkpoint.LATEST, owner="ann", counter=1)}
        assert (await store.take(lease, "ann")).counter == lease.counter + 1


async def test_a_cancelled_call_returns_at_once_and_completes_in_the_background(open_store, client, request):
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
        lease = await store.get("s")
        resume = request.getfixturevalue("paused_writes")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.checkpoint, lease, Checkpoint("5"))
            await until(lambda: client.info("clients")["blocked_clients"] == 1)
            nursery.cancel_scope.cancel()
        assert store._client._threads.borrowed_tokens == 1  # the caller has returned, the thread still runs
        resume()
        await until(lambda: store._client._threads.borrowed_tokens == 0)
        after = await store.get("s")
        assert after == Lease("s", Checkpoint("5"), owner="ann", counter=2)
        await store.renew(after)


async def test_a_closed_store_is_unavailable(open_store):
    store = open_store()
    async with store:
        await store.list()
    with pytest.raises(LeaseStoreUnavailableError, match="not open"):
        await store.list()


def test_a_missing_driver_is_reported_with_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "efo.leases.stores.redis.client", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'efo\[redis\]'"):
        RedisLeaseStore("redis://db", "application", "stream")


def test_the_client_does_not_retry_writes(url):
    connection = RedisLeaseStore(url, "app", "stream")._client.redis.connection_pool.connection_kwargs
    assert connection["retry"].get_retries() == 0


async def test_an_inspection_counts_the_leases_and_writes_nothing(open_store, client, key):
    assert await open_store().inspect() == Inspection(exists=False, leases=0, denied=None)
    assert not client.exists(key)
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    assert await open_store().inspect() == Inspection(exists=True, leases=1, version=VERSION, denied=None)
