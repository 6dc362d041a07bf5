from __future__ import annotations

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from efo_service.relay.errors import SinkFullError
from efo_service.relay.measured import NAME, SinkMeter


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def meter(reader):
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    yield SinkMeter("efo_log", "orders", provider)
    provider.shutdown()


def counted(reader, name=NAME):
    data = reader.get_metrics_data()
    [metric] = [metric for metric in data.resource_metrics[0].scope_metrics[0].metrics if metric.name == name]
    return {point.attributes.get("error.type"): point.value for point in metric.data.data_points}


def test_each_commit_counts_its_records(meter, reader):
    for _ in range(2):
        with meter.commit(2):
            pass
    assert counted(reader) == {None: 4}


def test_a_failed_commit_is_counted_with_its_error_type(meter, reader):
    with pytest.raises(SinkFullError), meter.commit(2):
        raise SinkFullError("no room")
    assert counted(reader) == {"sink_full": 2}


def test_failures_that_are_tried_again_are_counted_apart(meter, reader):
    meter.retried(SinkFullError("no room"))
    assert counted(reader, "efo.sink.retries") == {"sink_full": 1}


def test_each_commit_is_a_span_and_a_failed_one_has_its_error_type():
    exporter = InMemorySpanExporter()
    tracing = TracerProvider(shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    meter = SinkMeter("kafka", "orders", NoOpMeterProvider(), tracing.get_tracer("efo"))
    with meter.commit(2):
        pass
    with pytest.raises(SinkFullError), meter.commit(2):
        raise SinkFullError("no room")
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
