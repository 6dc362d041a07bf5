"""[leases] store = "log": what it needs, what it opens, and the commands of operators on a real server."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from structlog.testing import capture_logs

from efo.errors import ConfigurationError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.model import Checkpoint, Lease
from efo_service.cli import call
from efo_service.config.loading import load
from efo_service.errors import UnavailableError
from efo_service.factories import lease_store
from efo_service.factories.lease_store import inspectable_leases, open_leases
from efo_service.object_store.memory import MemoryStore
from proofs.local_servers.object_stores import BUCKET, ENVIRONMENT, running, serve_versitygw

HEAD = '[kinesis]\nstream = "orders"\n\n[consumer]\napplication = "billing"\n\n[leases]\nstore = "log"\n'
ON_STORE = '\n[relay]\ndirectory = "s3://logs/efo"\n'


@pytest.fixture
def configured(tmp_path):
    def configured(text: str):
        path = tmp_path / "efo.toml"
        path.write_text(HEAD + text)
        return load(path)

    return configured


@pytest.fixture
def opened(monkeypatch) -> list:
    """Return the URLs of the stores that are opened, which are one store in memory."""
    objects, urls = MemoryStore(), []

    def open_store(url):
        urls.append(url)
        return objects

    monkeypatch.setattr(lease_store, "open_store", open_store)
    return urls


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r'\[relay\] directory is .*/var/log, on a local disk: use store = "sqlite"'),
        ('[relay]\ndirectory = "/var/lib/efo"', r"\[relay\] directory is /var/lib/efo, on a local disk"),
        ('[relay]\nsink = "kafka"', r'\[relay\] sink is "kafka": use sqlite, dynamodb, postgres or redis'),
        ('[relay]\nsink = "jsonl"\ndirectory = "s3://logs/efo"', r'\[relay\] sink is "jsonl"'),
    ],
)
def test_leases_beside_a_log_need_a_log_on_an_object_store(configured, text, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        configured(text)


async def test_the_leases_are_below_the_root_of_the_log_and_their_requests_are_counted(configured, opened) -> None:
    reader = InMemoryMetricReader()
    settings = configured(ON_STORE)
    async with open_leases(settings, MeterProvider([reader])) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    async with open_leases(settings) as store:
        assert [lease.key for lease in await store.list()] == ["s"]
    assert opened == [settings.relay.log_root] * 2
    [metric, _] = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    requests = {point.attributes["efo.object_store.operation"]: point.value for point in metric.data.data_points}
    assert metric.name == "efo.object_store.requests"
    assert requests["put"] == 1


@pytest.mark.parametrize(
    ("failover", "options", "seconds"),
    [(10.0, "", 10 / 3), (3.0, "", 1.0), (60.0, "", 5.0), (60.0, "[relay.store_options]\ntimeout_seconds = 2", 2.0)],
)
async def test_a_request_ends_in_a_third_of_the_failover_time(configured, opened, failover, options, seconds) -> None:
    settings = configured(f"failover_seconds = {failover}\n{ON_STORE}{options}")
    async with open_leases(settings):
        assert opened[0].options["timeout_seconds"] == pytest.approx(seconds)


async def test_leases_are_inspected_without_creating_them(configured, opened) -> None:
    settings = configured(ON_STORE)
    assert not (await inspectable_leases(settings).inspect()).exists
    async with open_leases(settings) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    assert (await inspectable_leases(settings).inspect()).leases == 1


@pytest.fixture
def objects(monkeypatch) -> MemoryStore:
    """Return the store that is opened, which is called without threads, since a virtual clock does not wait for one."""
    objects = MemoryStore()
    monkeypatch.setattr(lease_store, "open_store", lambda _url: objects)

    async def run_sync(work, *arguments, **_options):
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    return objects


async def test_a_document_that_looks_damaged_is_read_again_and_believed_after_a_while(
    configured, objects, autojump_clock
) -> None:
    settings = configured(ON_STORE)
    until = -1.0
    objects.spoil = lambda _key, content: content[:-7] if trio.current_time() < until else content
    async with open_leases(settings) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    until = trio.current_time() + 15  # at the start
    async with open_leases(settings) as store:
        assert [lease.key for lease in await store.list()] == ["s"]
        for seconds in (0.1, 15):  # and while it is read
            until = trio.current_time() + seconds
            with suppress(LeaseStoreUnavailableError):
                await store.list()
            await trio.sleep(seconds)
            objects.replace(KEY, objects.objects[KEY].content, objects.get(KEY).version)
            assert [lease.key for lease in await store.list()] == ["s"]
        until = trio.current_time() + 1000
        objects.replace(KEY, objects.objects[KEY].content, objects.get(KEY).version)
        with pytest.raises(LeaseStoreUnavailableError, match=r"is damaged .*; it is read again for 30 s"):
            await store.list()
        await trio.sleep(30)
        with pytest.raises(LeaseStoreCorruptError, match="is damaged"):
            await store.list()


KEY = ".efo-leases/application=billing/stream=orders.json"


async def test_a_store_that_does_not_answer_at_the_start_is_waited_for(configured, objects, autojump_clock) -> None:
    objects.fault = lambda _operation, _key: "refused"
    settings = configured(ON_STORE)
    with (
        capture_logs() as logs,
        pytest.raises(LeaseStoreUnavailableError, match=r"503 Slow Down: retried for 30 s"),
    ):
        async with open_leases(settings):
            pytest.fail("it opened")
    assert [line["event"] for line in logs] == ["lease_store_outage_began"]
    objects.fault = lambda _operation, _key: None
    async with open_leases(settings) as store:
        assert await store.list() == []


async def test_without_its_package_the_store_says_what_to_install(configured, monkeypatch) -> None:
    def open_store(url):
        raise UnavailableError(f"{url} needs a client of object stores: pip install 'efo[service,object-store]'")

    monkeypatch.setattr(lease_store, "open_store", open_store)
    with pytest.raises(UnavailableError, match="pip install"):
        async with open_leases(configured(ON_STORE)):
            pytest.fail("it opened")


def test_operators_see_and_change_leases_on_a_real_server(servers, tmp_path, monkeypatch, capsys) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server = running(servers.url(serve_versitygw))
    options = "\n".join(f"{name} = {json.dumps(value)}" for name, value in server.options().items())
    config = tmp_path / "efo.toml"
    config.write_text(
        f'{HEAD}\n[relay]\ndirectory = "s3://{BUCKET}/operators/log"\n\n[relay.store_options]\n{options}\n'
    )

    def efo(*arguments: str) -> str:
        assert call([*arguments, "--config", str(config)]) == 0
        return capsys.readouterr().out

    async def create() -> None:
        async with open_leases(load(config)) as store:
            await store.create(Lease("shardId-000000000000", Checkpoint("7"), owner="gone", counter=4))

    trio.run(create)
    assert "shardId-000000000000" in efo("leases", "list")
    exported = efo("leases", "export")
    efo("leases", "delete", "shardId-000000000000", "--yes", "--force")
    assert "shardId" not in efo("leases", "list")
    copy = tmp_path / "leases.json"
    copy.write_text(exported)
    efo("leases", "import", str(copy), "--yes")
    assert "shardId-000000000000" in efo("leases", "list")
