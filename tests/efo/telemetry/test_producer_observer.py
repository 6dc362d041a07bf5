"""The OpenTelemetry observer of a producer: which instruments each event feeds, and with which attributes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import efo
from efo import events
from efo.telemetry import instruments, producer_instruments
from efo.telemetry.producer_instruments import ALL, BUFFERED
from efo.telemetry.producer_observer import OtelProducerObserver
from efo.testing import FakeKinesis

COMMON = {"messaging.system": "aws.kinesis", "messaging.destination.name": "orders"}
EVERY_EVENT = (
    events.ProducerOpened(SimpleNamespace(buffered_bytes=7000, buffered_records=3)),
    events.ConnectionOpened("host:443"),
    events.PutRecordsCalled(500, 3, 0.2, 50_000, "throttled", "slow down"),
    events.RecordsDelivered("s-0", 900, 400, 0.3, 2),
    events.RecordsNotDelivered(5, "kms", "off"),
    events.ShardMapChanged(4, 2),
    events.StreamReset("host:443", "CANCEL"),
    events.WorkerStarted("w-1"),
)


class Telemetry:
    def __init__(self):
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)

    def observer(self, stream="orders"):
        return OtelProducerObserver(stream=stream, server_address="kinesis.test", meter_provider=self.provider)

    def points(self):
        """Return the values, or sums, by instrument and attributes beyond the common ones."""
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        self.metrics = {metric.name: metric for scope in scopes for metric in scope.metrics}
        return {
            (name, *sorted(v for k, v in point.attributes.items() if k not in COMMON)): getattr(
                point, "value", getattr(point, "sum", None)
            )
            for name, metric in self.metrics.items()
            for point in metric.data.data_points
        }


@pytest.fixture
def telemetry():
    telemetry = Telemetry()
    yield telemetry
    telemetry.provider.shutdown()


def test_every_instrument_is_fed_with_its_unit_description_and_buckets(telemetry):
    observe = telemetry.observer()
    for event in EVERY_EVENT:
        observe(event)
    telemetry.points()
    assert set(telemetry.metrics) == {instrument.name for instrument in ALL}
    for instrument in ALL:
        metric = telemetry.metrics[instrument.name]
        assert (metric.unit, metric.description) == (instrument.unit, instrument.description)
        if instrument.buckets:
            assert {point.explicit_bounds for point in metric.data.data_points} == {instrument.buckets}


def test_what_the_events_say_is_what_is_measured(telemetry):
    observe = telemetry.observer()
    for event in EVERY_EVENT:
        observe(event)
    assert telemetry.points() == {
        (instruments.OPERATION_DURATION.name, "kinesis.test", "send", "send", "throttled"): 0.2,
        (instruments.CONNECTION_ACTIVE.name, "host:443"): 1,
        (instruments.HTTP2_RESETS.name, "CANCEL", "host:443"): 1,
        (producer_instruments.SENT.name, "send"): 900,
        (producer_instruments.SENT.name, "kms", "send"): 5,
        (producer_instruments.KINESIS_RECORDS.name,): 400,
        (producer_instruments.RETRIES.name, "throttled"): 3,
        (producer_instruments.PUT_IO.name,): 50_000,
        (producer_instruments.DELIVERY_DURATION.name,): 0.3,
        (producer_instruments.DELIVERY_ATTEMPTS.name,): 2,
        (BUFFERED.name,): 7000,
    }


def test_a_closed_connection_is_not_counted(telemetry):
    observe = telemetry.observer()
    observe(events.ConnectionOpened("host:443"))
    observe(events.ConnectionClosed("host:443"))
    assert telemetry.points()[instruments.CONNECTION_ACTIVE.name, "host:443"] == 0


def test_producers_of_two_streams_have_a_gauge_each(telemetry):
    for stream, size in (("orders", 1), ("clicks", 2)):
        telemetry.observer(stream)(events.ProducerOpened(SimpleNamespace(buffered_bytes=size)))
    telemetry.points()
    found = telemetry.metrics[BUFFERED.name].data.data_points
    assert {point.attributes["messaging.destination.name"]: point.value for point in found} == {
        "orders": 1,
        "clicks": 2,
    }


async def test_a_producer_feeds_it(telemetry, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("orders", 1)
        async with efo.open_producer(fake.kinesis("orders"), observer=telemetry.observer()) as producer:
            for _ in range(3):
                await producer.put(b"x" * 10, "key")
            assert telemetry.points()[(BUFFERED.name,)] == 3 * (10 + 3 + 256)
            await trio.sleep(1)
    points = telemetry.points()
    assert points[producer_instruments.SENT.name, "send"] == 3
    assert points[(BUFFERED.name,)] == 0
