"""Samples are read from what the service really serves."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from efo.events import ConsumerOpened, ConsumerReady, EventReceived, RecordsProcessed, ShardsListed, ShardStarted
from efo.model import Checkpoint
from efo.telemetry.observer import OtelObserver
from efo_service.errors import UnavailableError
from efo_service.telemetry.sdk import telemetry
from efo_service.top.sample import Counters, Samples, fetch, parse_counters, parse_status, refreshes
from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.probe import ServiceAddress
from efo_service.web.server import serve
from efo_service.web.status import Status
from efo_service.workers.endpoints import merge_metrics
from tests.efo_service.top.samples import sample
from tests.readings import FakeReadings


def metrics(shard: str, records: int, size: int) -> str:
    """Return /metrics of a worker that has read one shard."""
    with telemetry("w-1", {}) as sdk:
        observer = OtelObserver(stream="orders", application="billing", meter_provider=sdk.meter_provider)
        observer(ShardStarted(shard, Checkpoint("1")))
        observer(EventReceived(shard, records, size, 0, None))
        observer(RecordsProcessed(shard, records, 0.1, 1.0, 1.0))
        return generate_latest(sdk.registry).decode()


def test_the_counters_of_a_worker_are_those_of_its_instruments():
    assert parse_counters(metrics("s-0", 7, 900)) == Counters({(None, "s-0"): 7}, {(None, "s-0"): 900})


def test_the_counters_of_several_workers_are_kept_apart():
    reported = {worker: list(text_string_to_metric_families(metrics("s-0", 7, 900))) for worker in ("w-1", "w-2")}

    class Merged(CollectorRegistry):
        def collect(self):
            return merge_metrics(reported)

    found = parse_counters(generate_latest(Merged()).decode())
    assert found.records == {("w-1", "s-0"): 7, ("w-2", "s-0"): 7}
    assert found.bytes == {("w-1", "s-0"): 900, ("w-2", "s-0"): 900}


def test_a_worker_without_shards_has_no_counters():
    assert parse_counters("") == Counters({}, {})


def test_the_status_of_a_worker_before_its_consumer_is_open_is_read():
    status = parse_status(json.dumps(Status({"worker_id": "w-1"}, Health(clock=lambda: 0.0))()))
    assert (status.worker_id, status.lease_table, status.shards, status.workers) == ("w-1", "unknown", (), None)
    assert "the leases have not been read yet" in status.problems


@pytest.mark.parametrize("body", ["<h1>It works!</h1>", "[]", "{}", '{"status": "UP"}'])
def test_the_status_of_another_program_is_refused(body):
    with pytest.raises(ValueError, match=r"JSON|Expected|missing"):
        parse_status(body)


def test_the_shards_of_several_streams_are_reported_apart():
    shard = {"shard_id": "s-0", "condition": "current", "subscription": "live", "lag_seconds": 1.0}
    shard |= {"last_event_age_seconds": 0.5, "checkpoint_age_seconds": 0.0}
    streams = [
        {"name": name, "stream": name, "application": "app", "lease_table": table, "shards": [shard]}
        for name, table in (("orders", "known"), ("clicks", "unknown"))
    ]
    status = parse_status(json.dumps({"version": "1", "worker_id": "w", "problems": ["p"], "streams": streams}))
    assert [(shard.stream, shard.shard_id) for shard in status.shards] == [("orders", "s-0"), ("clicks", "s-0")]
    assert (status.lease_table, status.worker_id, status.problems) == ("unknown", "w", ("p",))
    labels = 'messaging_destination_name="{}",messaging_consumer_group_name="app"'
    name, shard_label = "messaging_client_consumed_messages_total", 'messaging_destination_partition_id="s-0"'
    text = "".join(
        f"{name}{{{labels.format(stream)},{shard_label}}} {count}\n" for stream, count in (("orders", 3), ("clicks", 4))
    )
    counters = parse_counters(text, has_streams=status.has_streams)
    assert [counters.records[shard.key] for shard in status.shards] == [3, 4]


async def fetched(nursery, app):
    url = await nursery.start(serve, app, "127.0.0.1", 0)
    port = int(url.rpartition(":")[2])
    return await trio.to_thread.run_sync(partial(fetch, ServiceAddress("127.0.0.1", port), clock=lambda: 12.5))


async def test_a_sample_has_what_the_endpoints_tell(nursery):
    health, registry = Health(clock=lambda: 0.0), CollectorRegistry()
    records = Counter(
        "messaging_client_consumed_messages", ".", ["messaging_destination_partition_id"], registry=registry
    )
    records.labels("s-0").inc(3)
    app = create_app(health, registry, Status({"application": "billing", "worker_id": "w-1"}, health))
    first = await fetched(nursery, app)
    assert (first.at, first.ready, first.counters.records) == (12.5, False, {(None, "s-0"): 3})
    assert (first.status.application, first.status.worker_id) == ("billing", "w-1")
    health(ConsumerReady("fan", "arn", registered=True))
    health(ConsumerOpened(FakeReadings()))
    health(ShardsListed(1))
    assert (await fetched(nursery, app)).ready


async def test_an_endpoint_of_another_program_is_refused(nursery):
    async def up(_request):
        return JSONResponse({"status": "UP"})

    for path in ("/status", "/other"):
        with pytest.raises(UnavailableError, match=r"the program at http://127.0.0.1:\d+ is not efo"):
            await fetched(nursery, Starlette(routes=[Route(path, up)]))


FIRST, SECOND, THIRD = (sample(at) for at in (1.0, 2.0, 3.0))
GONE = UnavailableError("no response")


def asked(*answers):
    rest = list(answers)

    def ask():
        answer = rest.pop(0)
        if isinstance(answer, UnavailableError):
            raise answer
        return answer

    return ask, lambda: not rest


def test_each_sample_comes_with_the_one_before_it():
    found = list(refreshes(*asked(FIRST, SECOND, THIRD), keep_trying=False))
    assert found == [Samples(FIRST, None), Samples(SECOND, FIRST), Samples(THIRD, SECOND)]


def test_a_sample_after_an_outage_has_none_before_it():
    found = list(refreshes(*asked(GONE, FIRST, GONE, SECOND, THIRD), keep_trying=True))
    assert found == [GONE, Samples(FIRST, None), GONE, Samples(SECOND, None), Samples(THIRD, SECOND)]


def test_an_outage_is_an_error_unless_it_keeps_trying():
    found = refreshes(*asked(FIRST, GONE), keep_trying=False)
    assert next(found) == Samples(FIRST, None)
    with pytest.raises(UnavailableError, match="no response"):
        next(found)
