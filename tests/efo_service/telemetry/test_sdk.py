from __future__ import annotations

import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from efo.telemetry import instruments
from efo.telemetry.observer import OtelObserver
from efo_service.telemetry.sdk import telemetry
from tests.efo.telemetry.test_observer import EVERY_EVENT


@pytest.fixture(autouse=True)
def no_otel_variables(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def observe_everything(sdk) -> None:
    observe = OtelObserver(stream="s", application="a", consumer="c", meter_provider=sdk.meter_provider)
    for event in EVERY_EVENT:
        observe(event)


# Dashboards and alerts use these names: a change here breaks them.
NAMES = {
    "efo_backpressure_time_seconds",
    "efo_checkpoint_age_seconds",
    "efo_consumer_lag_seconds",
    "efo_decode_errors",
    "efo_http2_connection_active",
    "efo_http2_resets",
    "efo_leases",
    "efo_lease_losses",
    "efo_lease_operation_duration_seconds",
    "efo_lease_operations",
    "efo_record_age_seconds",
    "efo_record_inflight",
    "efo_record_failures",
    "efo_shards",
    "efo_shard_isolations",
    "efo_shard_status",
    "efo_subscription_active",
    "efo_subscription_attempts",
    "efo_subscription_duration_seconds",
    "efo_subscription_event_age_seconds",
    "efo_subscription_event_interval_seconds",
    "efo_subscription_io_bytes",
    "efo_subscription_wait_duration_seconds",
    "efo_workers",
    "messaging_client_consumed_messages",
    "messaging_client_operation_duration_seconds",
    "messaging_process_duration_seconds",
}


def test_prometheus_exports_every_instrument_with_its_name_and_help():
    with telemetry("w-1") as sdk:
        observe_everything(sdk)
        families = list(text_string_to_metric_families(generate_latest(sdk.registry).decode()))
    assert {family.name for family in families if family.name.startswith(("efo_", "messaging_"))} == NAMES
    assert len(NAMES) == len(instruments.ALL)
    assert [family.name for family in families if not family.documentation] == []
    assert [sample for family in families for sample in family.samples if "otel_scope_name" in sample.labels] == []


def resource(sdk) -> dict[str, str]:
    """Return the resource attributes in /metrics, which appear with the first measurement."""
    observe_everything(sdk)
    (family,) = (family for family in sdk.registry.collect() if family.name.startswith("target"))
    return dict(family.samples[0].labels)


def test_the_environment_overrides_resource_attributes(monkeypatch):
    with telemetry("w-1") as sdk:
        assert resource(sdk).items() >= {"service_name": "efo", "service_instance_id": "w-1"}.items()
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders-relay")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with telemetry("w-1") as sdk:
        assert (
            resource(sdk).items()
            >= {
                "service_name": "orders-relay",
                "service_instance_id": "w-1",
                "deployment_environment_name": "test",
            }.items()
        )


def test_two_sdks_in_one_process_are_independent():
    with telemetry("w-1") as one, telemetry("w-2") as two:
        assert resource(one)["service_instance_id"] == "w-1"
        assert resource(two)["service_instance_id"] == "w-2"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportMetricsServiceRequest]]]:
    """Serve an OTLP collector; yield its URL and the requests that it received."""
    received = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/metrics"
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def test_leaving_the_context_exports_metrics_by_otlp_if_an_endpoint_is_configured(collector, monkeypatch):
    url, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    with telemetry("w-1") as sdk:
        observe_everything(sdk)
        assert received == []
    scopes = [
        scope for request in received for resource in request.resource_metrics for scope in resource.scope_metrics
    ]
    assert {metric.name for scope in scopes for metric in scope.metrics} >= {i.name for i in instruments.ALL}
