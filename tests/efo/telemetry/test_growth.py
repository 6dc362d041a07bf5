"""A consumer that runs for months meets thousands of shards, and no observer grows."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from efo import events
from efo.health import ShardReading
from efo.model import Checkpoint
from efo.telemetry.cloudwatch.kcl_metrics import KclMetrics
from efo.telemetry.combined import combine_observers
from efo.telemetry.filtering import Filtering
from efo.telemetry.log import LoggingObserver
from efo.telemetry.observer import OtelObserver
from efo.telemetry.outages import Outages
from efo.telemetry.shard_series import MAX_SHARDS, OTHER
from tests.growth import items_held, life_of
from tests.readings import NOW, FakeReadings


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def quiet(clock):
    logger = logging.getLogger("quiet")
    logger.setLevel(logging.CRITICAL)
    return LoggingObserver(logger, clock=clock)


def outages(clock):
    found = Outages(clock)
    return lambda event: list(found.observe(event)) and None


def filtering(clock):
    found = Filtering(clock)
    return lambda event: found.observe(event) and None


@pytest.mark.parametrize(
    "make",
    [
        quiet,
        outages,
        filtering,
        lambda _clock: KclMetrics("detailed"),
        lambda clock: OtelObserver(stream="s", application="a", clock=clock),
        lambda clock: OtelObserver(stream="s", application="a", clock=clock, max_shards=None),
    ],
    ids=["log", "outages", "filtering", "kcl", "otel", "otel without a limit"],
)
def test_no_observer_grows_with_the_shards_that_come_and_go(make):
    clock = Clock()
    observer = make(clock)
    observe = combine_observers(observer)
    held = []
    for number in range(2 * MAX_SHARDS + 400):
        clock.now += 30
        for event in life_of(f"shardId-{number:012}"):
            observe(event)
        if isinstance(observer, KclMetrics):
            observer.take(clock.now)
        if number in (MAX_SHARDS + 200, 2 * MAX_SHARDS + 399):
            held.append(items_held(observer))
    assert held[1] <= held[0] + 5


class Exported:
    """An observer with OpenTelemetry's SDK, and what it exports."""

    def __init__(self, max_shards):
        self.clock = Clock()
        self._reader = InMemoryMetricReader()
        provider = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)
        self.observe = OtelObserver(
            stream="s", application="a", meter_provider=provider, max_shards=max_shards, clock=self.clock
        )

    def points(self, name):
        data = self._reader.get_metrics_data()
        return {
            point.attributes.get("messaging.destination.partition.id"): point.value
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        }


def test_beyond_the_limit_the_counters_of_all_other_shards_are_one_that_never_falls():
    exported = Exported(2)
    totals = []
    for number in range(40):
        exported.clock.now += 100
        shard = f"s-{number}"
        for event in life_of(shard)[:13]:
            exported.observe(event)
        points = exported.points("messaging.client.consumed.messages")
        if number < 2:
            assert points[shard] == 2
        else:
            assert set(points) <= {"s-0", "s-1", OTHER}
            totals.append(points[OTHER])
        exported.observe(events.ShardFinished(shard, ()))
    assert totals == [2 * (number + 1) for number in range(38)]


def test_a_shard_that_is_named_is_named_for_ever():
    exported = Exported(1)
    for shard in ("s-0", "s-1", "s-0"):
        for event in life_of(shard)[:13]:
            exported.observe(event)
        exported.observe(events.ShardStopped(shard))
    assert exported.points("efo.record.filtered") == {"s-0": 2, OTHER: 1}


def test_beyond_the_limit_a_gauge_tells_the_highest_value_of_all_other_shards():
    exported = Exported(1)
    shards = [
        ShardReading(f"s-{n}", Checkpoint("1"), "live", 0.0, NOW, 0.0, NOW, 0, unsaved_since=NOW - seconds)
        for n, seconds in enumerate((50, 3, 20, 7))
    ]
    exported.observe(events.ConsumerOpened(FakeReadings(*shards)))
    assert exported.points("efo.checkpoint.age") == {"s-0": 50, OTHER: 20}
    assert exported.points("efo.shard.status") == {"s-0": 1, OTHER: 3}


@pytest.mark.parametrize("limit", [0, -1, 1.5, "many"])
def test_a_wrong_limit_is_refused(limit):
    with pytest.raises(Exception, match="max_shards"):
        OtelObserver(stream="s", application="a", max_shards=limit)
