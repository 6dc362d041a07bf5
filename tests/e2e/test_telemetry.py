"""A process of `efo run` that exports metrics, traces and logs by OTLP, and KCL's metrics to CloudWatch."""

from __future__ import annotations

import signal

import pytest

from efo_service.exit_codes import Exit
from tests.e2e.running import Files, relayed, running
from tests.fake_cloudwatch import serving
from tests.otlp_collector import Collector, attributes, grpc_collector, http_collector

pytestmark = pytest.mark.e2e


async def relay(fake, files: Files, **environment: str) -> None:
    fake.put_many("orders", [(f"key-{number}", b"%d" % number) for number in range(1000)])
    async with running(files, **environment) as efo:
        await efo.until(lambda: relayed(files) == 1000)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr


@pytest.mark.parametrize(("protocol", "serve"), [("http/protobuf", http_collector), ("grpc", grpc_collector)])
async def test_a_collector_gets_metrics_spans_and_logs_of_one_worker(fake, files, protocol, serve):
    with serve() as collector:
        await relay(
            fake,
            files,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_LOGS_EXPORTER="otlp",
            OTEL_SERVICE_NAME="orders-relay",
        )
    assert_spans(collector)
    assert {"messaging.client.consumed.messages", "efo.subscription.attempts"} <= collector.metric_names
    lines = [record.body.string_value for record in collector.log_records]
    assert {"started", "consumer_ready", "shard_started", "draining", "stopped"} <= set(lines)
    for kind in ("spans", "metrics", "logs"):
        resources = [attributes(one.resource) for one in collector.resources(kind)]
        assert {one["service.name"] for one in resources} == {"orders-relay"}
        assert {one["service.instance.id"] for one in resources} == {"w-1"}
    everything = str(collector.received)
    assert "key-1" not in everything
    assert "hunter2" not in everything


def assert_spans(collector: Collector) -> None:
    named = {name: [span for span in collector.spans if span.name == name] for name in
             ("process orders", "send orders", "subscribe orders", "checkpoint orders")}  # fmt: skip
    assert len(named["subscribe orders"]) == 2
    assert named["checkpoint orders"]
    for name in ("process orders", "send orders"):
        counts = [attributes(span)["messaging.batch.message_count"] for span in named[name]]
        assert sum(counts) == 1000
    parents = {span.span_id for span in named["process orders"]}
    assert {span.parent_span_id for span in named["send orders"]} == parents
    assert {attributes(span)["messaging.destination.partition.id"] for span in named["process orders"]} == {
        "shardId-000000000000",
        "shardId-000000000001",
    }


async def test_a_sampler_drops_spans_and_none_of_the_metrics(fake, files):
    with http_collector() as collector:
        await relay(
            fake,
            files,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_TRACES_SAMPLER="parentbased_traceidratio",
            OTEL_TRACES_SAMPLER_ARG="0",
        )
    assert collector.spans == []
    assert "messaging.client.consumed.messages" in collector.metric_names
    assert collector.log_records == []


async def test_cloudwatch_gets_kcls_metrics_in_the_applications_namespace(fake, files):
    with serving() as cloudwatch:
        await relay(fake, files, EFO_CLOUDWATCH__LEVEL="detailed", EFO_CLOUDWATCH__ENDPOINT_URL=cloudwatch.url)
    assert {request["Namespace"] for request in cloudwatch.requests} == {"efo"}
    metrics = cloudwatch.metrics()
    shards = [f"shardId-{number:012}" for number in range(2)]
    records = [metrics["ProcessTask", shard, "RecordsProcessed"]["StatisticValues"]["Sum"] for shard in shards]
    assert sum(records) == 1000
    assert {("RenewAllLeases", "CurrentLeases"), ("TakeLeases", "NumWorkers"), ("ShardSyncTask", "Success")} <= set(
        metrics
    )


async def test_a_wrong_variable_of_opentelemetry_is_a_wrong_configuration(files):
    async with running(files, OTEL_TRACES_EXPORTER="jaeger") as efo:
        assert await efo.ended() == Exit.CONFIGURATION
    assert "OTEL_TRACES_EXPORTER='jaeger': expected otlp, console or none" in efo.stderr
    assert "Traceback" not in efo.stderr


async def test_a_collector_and_a_cloudwatch_that_are_gone_stop_nothing(fake, files):
    gone = "http://127.0.0.1:9"
    await relay(
        fake,
        files,
        OTEL_EXPORTER_OTLP_ENDPOINT=gone,
        OTEL_LOGS_EXPORTER="otlp",
        EFO_CLOUDWATCH__LEVEL="summary",
        EFO_CLOUDWATCH__ENDPOINT_URL=gone,
    )
