"""Observers of several streams in one process: each is exported."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from efo import events
from efo.health import LeaseCounts
from efo.telemetry import instruments
from efo.telemetry.observer import OtelObserver
from tests.readings import FakeReadings


def workers_by_stream(reader: InMemoryMetricReader) -> dict[str, int]:
    """Return the values of one gauge by stream."""
    data = reader.get_metrics_data()
    return {
        point.attributes["messaging.destination.name"]: point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == instruments.WORKER_COUNT.name
        for point in metric.data.data_points
    }


def observer(provider: MeterProvider, stream: str, workers: int) -> OtelObserver:
    observer = OtelObserver(stream=stream, application="app", meter_provider=provider)
    readings = FakeReadings(counts=LeaseCounts({}, workers, {}))
    observer(events.ConsumerOpened(readings))
    return observer


def test_the_gauges_of_every_stream_are_exported():
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    observer(provider, "orders", 1)
    observer(provider, "clicks", 2)
    assert workers_by_stream(reader) == {"orders": 1, "clicks": 2}


def test_a_later_observer_of_the_same_stream_takes_the_place_of_the_first():
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    observer(provider, "orders", 1)
    observer(provider, "orders", 3)
    assert workers_by_stream(reader) == {"orders": 3}


def test_providers_do_not_share_their_observers():
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    for number, reader in enumerate(readers, 1):
        provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
        observer(provider, "orders", number)
    assert [workers_by_stream(reader) for reader in readers] == [{"orders": 1}, {"orders": 2}]
