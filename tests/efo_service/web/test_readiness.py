from __future__ import annotations

import threading

import structlog
import trio
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from efo.events import ConsumerOpened, ConsumerReady, LeasesCounted, ShardsListed
from efo_service.telemetry.sdk import telemetry
from efo_service.web.health import Health
from efo_service.web.readiness import WorkerReadiness, log_readiness, measure_readiness
from tests.readings import FakeReadings


def ready(sdk) -> list[tuple[str, float]]:
    families = text_string_to_metric_families(generate_latest(sdk.registry).decode())
    return [
        (sample.labels["messaging_destination_name"], sample.value)
        for family in families
        if family.name == "efo_worker_ready"
        for sample in family.samples
    ]


def measure(health, sdk) -> None:
    measure_readiness(lambda: [WorkerReadiness("orders", "billing", not health.obstacles())], sdk.meter_provider)


def test_the_metric_is_1_while_the_worker_is_ready():
    readings = FakeReadings(counts=None)
    health = Health(clock=readings.now)
    with telemetry("w-1") as sdk:
        measure(health, sdk)
        assert ready(sdk) == [("orders", 0)]
        health(ConsumerOpened(readings))
        health(ConsumerReady("fan", "arn", registered=False))
        readings.counted = FakeReadings().counted
        assert ready(sdk) == [("orders", 0)]
        health(ShardsListed(1))
        assert ready(sdk) == [("orders", 1)]
        health.start_draining()
        assert ready(sdk) == [("orders", 0)]


async def test_the_metric_is_read_in_another_thread_when_the_leases_are_unknown():
    health = Health(clock=trio.lowlevel.current_clock().current_time)
    health(LeasesCounted({"held": 1}, 1))  # since then, the lease table has not been read
    with telemetry("w-1") as sdk:
        measure(health, sdk)
        found = []
        thread = threading.Thread(target=lambda: found.extend(ready(sdk)))
        thread.start()
        thread.join()
    assert found == [("orders", 0)]


async def test_the_log_tells_when_the_worker_becomes_ready_and_when_it_is_not_with_the_reasons(autojump_clock):
    problems: list[str] = ["starting"]
    is_draining = False
    with structlog.testing.capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_readiness, lambda: problems, lambda: is_draining)
            await trio.sleep(10)
            assert lines == []  # it was never ready
            problems = []
            await trio.sleep(10)
            problems = ["s-0: not committed", *["more"] * 7]
            await trio.sleep(10)
            is_draining = True
    assert [line["event"] for line in lines] == ["ready", "not_ready"]
    assert (lines[1]["problems"][0], len(lines[1]["problems"]), lines[1]["count"]) == ("s-0: not committed", 5, 8)
