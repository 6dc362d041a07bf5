"""A log on an object store: conditional writes, owners, and what is missing. Nothing stays of the probe."""

import pytest

from efo_service.object_store.memory import MemoryStore
from efo_service.object_store.store import Version
from efo_service.object_store.url import parse_url
from efo_service.operations.doctor.object_store import object_log_checks
from efo_service.operations.doctor.running import run_checks
from tests.efo_service.log.objects.logs import Log

URL = parse_url("s3://logs/efo")


async def found(store, stream="orders"):
    checks = object_log_checks(URL, {"log topic": "orders"}, stream, store)
    return {finding.name: finding.outcome for finding in await run_checks(checks, 5.0)}


@pytest.fixture
def store():
    return MemoryStore()


async def test_a_new_log_passes_and_nothing_is_written(store):
    outcomes = await found(store)
    assert "honours conditional writes" in outcomes["log store"].detail
    assert "does not exist: `efo run` creates it" in outcomes["log topic"].detail
    assert not store.objects


async def test_the_proxy_of_the_store_is_named(store, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@proxy.test:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    detail = (await found(store))["log store"].detail
    assert detail.endswith("; s3.amazonaws.com is called through the proxy proxy.test:3128 (HTTPS_PROXY)")


async def test_a_log_of_another_stream_fails(store):
    Log(store).writer()
    assert "has 1 partitions" in (await found(store))["log topic"].detail
    assert "belongs to the stream 'orders', not to 'clicks'" in (await found(store, "clicks"))["log topic"].detail


async def test_a_log_without_a_head_fails(store):
    Log(store).writer()
    del store.objects["orders/0/head.json"]
    assert "head.json does not exist" in (await found(store))["log topic"].detail


async def test_a_store_without_conditional_writes_fails_and_its_topics_are_not_looked_at(store, monkeypatch):
    monkeypatch.setattr(store, "create", lambda _key, _content: Version("1"))
    outcomes = await found(store)
    assert "creates an object that exists" in outcomes["log store"].detail
    assert "log store" in outcomes["log topic"].detail
