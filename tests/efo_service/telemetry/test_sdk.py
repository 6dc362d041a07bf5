"""None"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Event, Thread

import pytest
import structlog
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from efo.errors import ConfigurationError
from efo.telemetry import instruments
from efo.telemetry.observer import OtelObserver
from efo.telemetry.spans import tracer_of
from efo_service.errors import UnavailableError
from efo_service.telemetry import logs
from efo_service.telemetry.sdk import check_sampler, chosen_exporters, make_exporters, telemetry
from tests.efo.telemetry.test_observer import EVERY_EVENT

REQUESTS = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


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
    "efo_build_info",
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
    "efo_record_dropped",
    "efo_record_expired_time_seconds",
    "efo_record_inflight",
    "efo_record_failures",
    "efo_record_unacked_age_seconds",
    "efo_record_filtered",
    "efo_record_skipped_time_seconds",
    "efo_consumer_read_lag_seconds",
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
    "efo_telemetry_series",
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
    assert len(NAMES) == len(instruments.ALL) + 2
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
def collector(monkeypatch) -> Iterator[dict[str, list]]:
    """Serve an OTLP collector, and set its URL as the endpoint; yield the requests that it received, by path."""
    received: dict[str, list] = {path: [] for path in REQUESTS}

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received[self.path].append(REQUESTS[self.path].FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield received
        server.shutdown()
        thread.join()


def test_leaving_the_context_exports_metrics_by_otlp_if_an_endpoint_is_configured(collector):
    with telemetry("w-1") as sdk:
        observe_everything(sdk)
        assert collector["/v1/metrics"] == []
    scopes = [
        scope
        for request in collector["/v1/metrics"]
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
    ]
    assert {metric.name for scope in scopes for metric in scope.metrics} >= {i.name for i in instruments.ALL}


def test_leaving_the_context_exports_spans_and_the_log_lines_of_their_time(collector, monkeypatch):
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
    handlers, level = logging.root.handlers[:], logging.root.level
    logs.configure("info", io.StringIO())
    try:
        with telemetry("w-1") as sdk, sdk.tracer_provider.get_tracer("test").start_as_current_span("work") as span:
            structlog.get_logger().warning("refused", shard_id="s-0", seconds=1.5, parts=("a", "b"))
            logging.getLogger("opentelemetry.exporter").warning("an export failed, which must not cause another")
        assert logs._OTLP.logger is None
        structlog.get_logger().warning("after the end")
    finally:
        structlog.reset_defaults()
        logging.captureWarnings(capture=False)
        logging.root.handlers, logging.root.level = handlers, level
    ((spans,),) = [request.resource_spans for request in collector["/v1/traces"]]
    ((lines,),) = [request.resource_logs for request in collector["/v1/logs"]]
    (record,) = lines.scope_logs[0].log_records
    assert [span.name for span in spans.scope_spans[0].spans] == ["work"]
    assert record.trace_id == span.get_span_context().trace_id.to_bytes(16)
    assert (record.body.string_value, record.severity_text) == ("refused", "warning")
    assert {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes} == {
        "shard_id": "s-0",
        "seconds": 1.5,
        "parts": "('a', 'b')",
    }
    assert {a.key: a.value.string_value for a in lines.resource.attributes}["service.instance.id"] == "w-1"


def test_without_an_exporter_of_traces_there_are_no_spans():
    with telemetry("w-1") as sdk:
        assert tracer_of(sdk.tracer_provider) is None


def test_a_sampler_that_samples_nothing_exports_nothing(collector, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with telemetry("w-1") as sdk:
        sdk.tracer_provider.get_tracer("test").start_span("work").end()
    assert collector["/v1/traces"] == []


def test_an_exporter_that_hangs_delays_the_end_by_a_bounded_time(monkeypatch):
    """The time-out is shortened: what is shown is that the end does not wait for the collector."""
    released = Event()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setattr("efo_service.telemetry.sdk._FLUSH_SECONDS", 0.05)
    monkeypatch.setattr("opentelemetry.sdk.trace.export.ConsoleSpanExporter.export", lambda *_: released.wait())
    with telemetry("w-1") as sdk:
        sdk.tracer_provider.get_tracer("test").start_span("work").end()
    assert not released.is_set()
    released.set()


@pytest.mark.parametrize(("variable", "value"), [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_TRACES_SAMPLER", "often")])
def test_a_wrong_variable_is_an_error_at_the_start(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=f"{variable}='{value}'"), telemetry("w-1"):
        pass


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environ", "traces", "metrics", "logs"),
    [
        ({}, (), (), ()),
        (ENDPOINT, ("otlp",), ("otlp",), ()),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, (), ("otlp",), ()),
        (ENDPOINT | {"OTEL_LOGS_EXPORTER": "otlp"}, ("otlp",), ("otlp",), ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://127.0.0.1:4318"}, (), (), ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318"}, (), ("otlp",), ()),
        ({"OTEL_TRACES_EXPORTER": "otlp, console,otlp"}, ("otlp", "console"), (), ()),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, (), ("prometheus",), ()),
        (ENDPOINT | {"OTEL_LOGS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, (), (), ()),
    ],
)
def test_the_environment_chooses_the_exporters(environ, traces, metrics, logs):
    chosen = tuple(chosen_exporters(signal, environ) for signal in ("traces", "metrics", "logs"))
    assert chosen == (traces, metrics, logs)


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "OTEL_TRACES_EXPORTER='jaeger': expected otlp, console or none"),
        ({"OTEL_TRACES_EXPORTER": "otlp,none"}, "none cannot be combined"),
        (
            ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL='http/json': expected http/protobuf or grpc",
        ),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "udp"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL='udp'"),
    ],
)
def test_a_wrong_variable_is_refused_with_what_is_expected(environ, text):
    with pytest.raises(ConfigurationError, match="OTEL") as error:
        make_exporters("traces", environ)
    assert text in str(error.value)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_each_signal_is_exported_by_the_chosen_protocol(signal, protocol):
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    (exporter,) = make_exporters(signal, {variable: "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol})
    try:
        assert protocol.partition("/")[0] in type(exporter).__module__
    finally:
        exporter.shutdown()


def test_what_is_printed_goes_to_stderr_because_stdout_has_the_log():
    for signal in ("traces", "metrics", "logs"):
        (exporter,) = make_exporters(signal, {f"OTEL_{signal.upper()}_EXPORTER": "console"})
        assert exporter.out is sys.stderr


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(UnavailableError, match=r"pip install 'efo\[service,grpc\]'"):
        make_exporters("traces", ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_SAMPLER": "always_on"},
        {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"},
        {"OTEL_TRACES_SAMPLER": "traceidratio"},
    ],
)
def test_samplers_of_the_sdk_are_accepted(environ):
    check_sampler(environ)


@pytest.mark.parametrize(
    ("sampler", "argument"),
    [("often", ""), ("traceidratio", "1 %"), ("parentbased_traceidratio", "1.5"), ("traceidratio", "nan")],
)
def test_a_wrong_sampler_is_refused_since_the_sdk_would_sample_everything(sampler, argument):
    with pytest.raises(ConfigurationError, match="OTEL_TRACES_SAMPLER"):
        check_sampler({"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument})
