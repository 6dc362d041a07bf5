"""The log on an object store, from the configuration: its probe, its defaults, its metrics, its refusals."""

from __future__ import annotations

import threading

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from efo.events import SinkRecovered, SinkRetried
from efo.model import Batch
from efo_service.config.settings import Settings
from efo_service.factories import object_log
from efo_service.factories.sinks import open_sink
from efo_service.object_store.memory import MemoryStore
from efo_service.object_store.store import Version
from efo_service.relay import doubt
from efo_service.relay.errors import LogError, LogOwnerError, StoreDeniedError, StoreUnavailableError, StoreUnfitError
from tests.efo_service.log.objects.logs import SHARD, STREAM, Log, make_records
from tests.efo_service.relay.relaying import relay_all


def settings(**relay: object) -> Settings:
    return Settings(
        kinesis={"stream": STREAM},
        consumer={"application": "test"},
        relay={"directory": "s3://logs/efo", **relay},
        _env_file=None,
    )


@pytest.fixture
def store(monkeypatch) -> MemoryStore:
    store = MemoryStore()
    monkeypatch.setattr(object_log, "open_store", lambda _url: store)
    return store


def batch(count: int) -> Batch:
    return Batch("s", SHARD, make_records(count), str(count), 0, 0)


async def test_the_sink_of_a_url_writes_to_the_store_and_counts_its_requests(store) -> None:
    reader = InMemoryMetricReader()
    async with open_sink(settings(), meter_provider=MeterProvider([reader])) as destination:
        await relay_all(destination, batch(3))
    requests = store.requests
    Log(store).check(3)
    data = reader.get_metrics_data()
    metrics = {m.name: m.data.data_points for s in data.resource_metrics[0].scope_metrics for m in s.metrics}
    assert sum(point.value for point in metrics["efo.object_store.requests"]) == requests
    kinds = {point.attributes["efo.object_store.operation"] for point in metrics["efo.object_store.requests"]}
    assert kinds == {"get", "put", "list", "delete"}
    sent = [p.value for p in metrics["efo.object_store.io"] if p.attributes["network.io.direction"] == "transmit"]
    assert sum(sent) > len(store.objects["orders/0/commits/00000000000000000001"].content)


def test_commits_and_maintenance_are_rarer_where_each_request_has_a_price() -> None:
    on_store, on_disk = settings().relay, settings(directory="var/log").relay
    assert (on_store.commit_interval, on_store.maintenance_interval) == (5.0, 300.0)
    assert (on_disk.commit_interval, on_disk.maintenance_interval) == (0.05, 30.0)
    chosen = settings(commit_seconds=0.07, maintenance_seconds=9).relay
    assert (chosen.commit_interval, chosen.maintenance_interval) == (0.07, 9.0)


@pytest.mark.parametrize(
    ("relay", "message"),
    [
        ({"directory": "ftp://logs/efo"}, "expected s3://bucket/prefix"),
        ({"store_options": {"secret_access_key": "x"}}, "Credentials come from the environment"),
        ({"directory": "var/log", "store_options": {"region": "x"}}, "are for a log on an object store"),
    ],
)
def test_wrong_settings_are_refused(relay, message) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**relay)


async def test_a_store_without_conditional_writes_is_refused_before_anything_is_written(
    store, monkeypatch, autojump_clock
) -> None:
    monkeypatch.setattr(store, "create", lambda _key, _content: Version("1"))
    with pytest.raises(StoreUnfitError, match="creates an object that exists"):
        async with open_sink(settings()):
            pass
    assert not store.objects


async def test_the_store_is_opened_in_a_thread_since_that_looks_for_credentials(store, monkeypatch) -> None:
    threads = []
    monkeypatch.setattr(object_log, "open_store", lambda _url: threads.append(threading.current_thread()) or store)
    async with open_sink(settings()):
        pass
    assert threads
    assert threading.current_thread() not in threads


async def test_a_topic_of_another_stream_is_refused_at_the_start(store) -> None:
    Log(store).writer(stream="clicks")
    with pytest.raises(LogOwnerError, match="belongs to the stream 'clicks', not to 'orders'"):
        async with open_sink(settings()):
            pass


async def test_the_start_waits_for_a_store_that_does_not_answer(store, autojump_clock) -> None:
    failing = iter(["refused"] * 100)
    store.fault = lambda _operation, _key: next(failing, None)
    async with open_sink(settings()):
        pass
    store.fault = lambda _operation, _key: "refused"
    with pytest.raises(StoreUnavailableError, match="503"):
        async with open_sink(settings(retry_seconds=60)):
            pass


@pytest.fixture
def no_threads(monkeypatch) -> None:
    """Call what is blocking in the event loop: a virtual clock does not wait for a thread."""

    async def run_sync(work, *arguments, **_options):
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    monkeypatch.setattr(trio.from_thread, "check_cancelled", lambda: None)


PAGE = b"<html><body>Sign in to the network</body></html>"


@pytest.mark.parametrize("name", ["catalog.json", "head.json", "commits"])
async def test_what_looks_damaged_at_the_start_is_waited_for(store, name, no_threads, autojump_clock) -> None:
    log = Log(store)
    log.append(log.writer(), 3)
    store.spoil = lambda key, content: PAGE if name in key and trio.current_time() < until else content
    until = trio.current_time() + 20
    seen = []
    async with open_sink(settings(), seen.append) as destination:
        await relay_all(destination)
    *retried, recovered = seen
    assert {type(event) for event in retried} == {SinkRetried}
    assert isinstance(recovered, SinkRecovered)
    assert retried[0].detail.startswith("perhaps one damaged answer, so it is read again for 30 s: ")
    until = trio.current_time() + 1000
    began = trio.current_time()
    with pytest.raises(LogError, match=name):
        async with open_sink(settings()) as destination:
            await relay_all(destination)
    assert trio.current_time() - began >= doubt.SECONDS


async def test_a_store_whose_probe_was_lied_to_is_probed_again(store, no_threads, autojump_clock) -> None:
    lies = iter([PAGE] * 3)
    store.spoil = lambda key, content: next(lies, content) if "probe" in key else content
    async with open_sink(settings()):
        pass


async def test_a_partition_that_looks_damaged_when_it_is_opened_is_waited_for(
    store, no_threads, autojump_clock
) -> None:
    log = Log(store)
    log.append(log.writer(), 3)
    async with open_sink(settings()) as destination:
        until = trio.current_time() + 20
        store.spoil = lambda _key, content: PAGE if trio.current_time() < until else content
        await relay_all(destination, Batch("s", SHARD, make_records(2, 3), "9", 0, 0))
    log.check(5)


async def test_missing_rights_end_the_start(store, monkeypatch) -> None:
    def denied(*_: object) -> None:
        raise StoreDeniedError("403: no rights")

    monkeypatch.setattr(store, "create", denied)
    with pytest.raises(StoreDeniedError, match="no rights"):
        async with open_sink(settings()):
            pass


async def test_a_versioned_bucket_is_a_warning(store, monkeypatch, capsys) -> None:
    monkeypatch.setattr(MemoryStore, "_version", staticmethod(lambda one: Version(f'"{one.generation}"', "v1")))
    async with open_sink(settings()):
        pass
    assert "bucket_keeps_versions" in capsys.readouterr().out
