from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from efo.model import Batch, Checkpoint, Record
from efo_service.relay.errors import SinkFullError
from efo_service.relay.measured import NAME, MeasuredSink

BATCH = Batch("s", "s-0", (Record("1", 1.0, b"a", "k"), Record("2", 1.0, b"b", "k")), "3", 0, 0)


class FakeSink:
    """A sink with one shard that discards all records."""

    position = Checkpoint.TRIM_HORIZON
    pending_bytes = 4

    def __init__(self) -> None:
        self.pending_records = 0
        self.full = False

    @asynccontextmanager
    async def open(self, stream, shard_id, checkpoint=None):
        yield self

    def write(self, batch):
        self.pending_records += len(batch.records)

    async def commit(self):
        self.pending_records = 0
        if self.full:
            raise SinkFullError("no room")
        self.write(BATCH)  # the write buffer fills again during the commit


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def sink(reader):
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    fake = FakeSink()
    yield fake, MeasuredSink(fake, system="efo_log", topic="orders", meter_provider=provider)
    provider.shutdown()


def counted(reader):
    data = reader.get_metrics_data()
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == NAME
    return {point.attributes.get("error.type"): point.value for point in metric.data.data_points}


async def test_each_commit_counts_its_records(sink, reader):
    _, measured = sink
    async with measured.open("orders", "s-0") as shard:
        shard.write(BATCH)
        assert (shard.position, shard.pending_records, shard.pending_bytes) == (Checkpoint.TRIM_HORIZON, 2, 4)
        await shard.commit()
        await shard.commit()
    assert counted(reader) == {None: 4}


async def test_a_failed_commit_is_counted_with_its_error_type(sink, reader):
    fake, measured = sink
    fake.full = True
    async with measured.open("orders", "s-0") as shard:
        shard.write(BATCH)
        with pytest.raises(SinkFullError):
            await shard.commit()
    assert counted(reader) == {"sink_full": 2}


async def test_each_commit_is_a_span_and_a_failed_one_has_its_error_type():
    exporter = InMemorySpanExporter()
    tracing = TracerProvider(shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    fake = FakeSink()
    measured = MeasuredSink(
        fake,
        system="kafka",
        topic="orders",
        meter_provider=NoOpMeterProvider(),
        tracer=tracing.get_tracer("efo"),
    )
    async with measured.open("orders", "s-0") as shard:
        shard.write(BATCH)
        await shard.commit()
        fake.full = True
        with pytest.raises(SinkFullError):
            await shard.commit()
    good, bad = exporter.get_finished_spans()
    assert (good.name, good.kind) == ("send orders", SpanKind.CLIENT)
    assert good.attributes == {
        "messaging.system": "kafka",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 2,
    }
    assert (bad.attributes["error.type"], bad.status.status_code) == ("sink_full", StatusCode.ERROR)
