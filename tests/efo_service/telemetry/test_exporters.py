"""Which exporters the variables of OpenTelemetry choose."""

from __future__ import annotations

import sys

import pytest

from efo.errors import ConfigurationError
from efo_service.errors import UnavailableError
from efo_service.telemetry.exporters import check_sampler, chosen_exporters, make_exporters

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
