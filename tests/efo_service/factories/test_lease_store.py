"""[leases], and a server that is unavailable when the service starts."""

import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs

from efo.errors import ConfigurationError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.stores.postgres.store import PostgresLeaseStore
from efo.leases.stores.redis.store import RedisLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo_service.config.loading import load
from efo_service.config.rendering import resolved, to_toml
from efo_service.errors import UnavailableError
from efo_service.factories import lease_store as module
from efo_service.factories.lease_store import open_leases

URLS = {"postgres": "postgresql://efo:hunter2@db/efo", "redis": "rediss://:hunter2@cache:6380/3"}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")


@pytest.fixture
def configured(monkeypatch):
    """Return a function that sets the keys of [leases] in the environment, and returns the settings."""

    def configured(**settings):
        for name, value in settings.items():
            monkeypatch.setenv(f"EFO_LEASES__{name.upper()}", str(value))
        return load(None)

    return configured


@pytest.mark.parametrize("store", URLS)
def test_a_server_requires_a_url(configured, store):
    with pytest.raises(ConfigurationError, match=rf'store = "{store}" needs the URL of a server: set EFO_LEASES__URL='):
        configured(store=store)


@pytest.mark.parametrize(("store", "other"), [("postgres", "redis"), ("redis", "postgres")])
def test_the_url_of_another_server_is_refused_without_showing_it(configured, store, other):
    with pytest.raises(ConfigurationError, match="needs the URL of a server") as caught:
        configured(store=store, url=URLS[other])
    assert "hunter2" not in str(caught.value)


def test_the_url_is_masked_and_refused_in_the_file(configured, tmp_path):
    settings = configured(store="postgres", url=URLS["postgres"])
    tables = resolved(settings)
    assert "hunter2" not in json.dumps(tables) + to_toml(tables) + repr(settings)
    file = tmp_path / "efo.toml"
    file.write_text(f'[leases]\nurl = "{URLS["postgres"]}"')
    with pytest.raises(ConfigurationError, match="set EFO_LEASES__URL in the environment instead") as caught:
        load(file)
    assert "hunter2" not in str(caught.value)


async def test_the_default_is_sqlite_and_its_directory_is_created(configured, tmp_path):
    path = tmp_path / "a" / "b" / "leases.sqlite"
    async with open_leases(configured(path=path)) as store:
        assert isinstance(store, SqliteLeaseStore)
    assert path.exists()


async def test_a_directory_that_cannot_be_created_is_unavailable(configured, tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(UnavailableError, match="cannot create the directory"):
        async with open_leases(configured(path=tmp_path / "a" / "b" / "leases.sqlite")):
            pytest.fail("it opened")


@pytest.mark.parametrize(
    ("store", "kind", "failover", "timeout"),
    [("postgres", PostgresLeaseStore, 60, 5), ("redis", RedisLeaseStore, 3, 1), ("redis", RedisLeaseStore, 60, 5)],
)
def test_the_timeout_of_a_server_is_at_most_a_third_of_the_failover_time(configured, store, kind, failover, timeout):
    opened = module._server(configured(store=store, url=URLS[store], failover_seconds=failover))
    assert isinstance(opened, kind)
    assert (opened._pool if store == "postgres" else opened._client)._timeout == timeout


@pytest.mark.parametrize(("store", "driver"), [("postgres", "psycopg"), ("redis", "redis")])
def test_a_missing_driver_is_reported_with_the_install_command(configured, store, driver, monkeypatch):
    monkeypatch.setitem(sys.modules, driver, None)
    module_of = {"postgres": "efo.leases.stores.postgres.pool", "redis": "efo.leases.stores.redis.client"}
    monkeypatch.delitem(sys.modules, module_of[store], raising=False)
    with pytest.raises(UnavailableError, match=rf'store = "{store}": .* pip install'):
        module._server(configured(store=store, url=URLS[store]))


class Server:
    """A server that is available from `up_at` on, and raises `error` before."""

    def __init__(self, up_at, error=LeaseStoreUnavailableError):
        self.up_at = up_at
        self.error = error
        self.left_at = None

    @asynccontextmanager
    async def open(self):
        if trio.current_time() < self.up_at:
            raise self.error("lease store there: refused")
        yield MemoryLeaseStore()
        self.left_at = trio.current_time()


async def opened(server, seconds):
    started = trio.current_time()
    async with AsyncExitStack() as stack:
        assert isinstance(await module._retry_until_open(stack, server.open, seconds), MemoryLeaseStore)
        waited = trio.current_time() - started
        await trio.sleep(1)
    assert server.left_at == started + waited + 1
    return waited


async def test_an_available_server_is_opened_at_once(autojump_clock):
    assert await opened(Server(0), seconds=30) == 0


async def test_a_server_that_starts_late_is_retried_with_one_warning_at_the_beginning_and_one_at_the_end(
    autojump_clock,
):
    with capture_logs() as logs:
        waited = await opened(Server(trio.current_time() + 7.5), seconds=30)
    assert 7.5 <= waited <= 8.5
    assert [line["event"] for line in logs] == ["lease_store_outage_began", "lease_store_outage_ended"]
    assert "refused" in logs[0]["detail"]
    assert (logs[1]["duration"], logs[1]["failures"]) == (waited, 8)


async def test_a_server_that_does_not_start_is_an_error_after_a_while(autojump_clock):
    started = trio.current_time()
    with pytest.raises(LeaseStoreUnavailableError, match=r"retried for 30 s"):
        await opened(Server(float("inf")), seconds=30)
    assert 29 <= trio.current_time() - started <= 30


async def test_an_error_that_is_not_temporary_is_raised_at_once(autojump_clock):
    started = trio.current_time()
    with pytest.raises(LeaseStoreCorruptError):
        await opened(Server(float("inf"), LeaseStoreCorruptError), seconds=30)
    assert trio.current_time() == started
