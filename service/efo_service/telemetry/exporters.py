"""Which exporters the environment chooses, by the variables of OpenTelemetry's specification.

    OTEL_{TRACES,METRICS,LOGS}_EXPORTER      otlp, console, none; by default otlp if an endpoint is set
    OTEL_EXPORTER_OTLP_[SIGNAL_]PROTOCOL     http/protobuf (the default), grpc

The SDK's own exporters read all others: endpoints, headers, certificates, compression, time-outs. /metrics needs none.
Logs are on stdout already, so only a variable of their own exports them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Literal

from efo.errors import ConfigurationError
from efo_service.errors import UnavailableError

Signal = Literal["traces", "metrics", "logs"]
"""A kind of telemetry."""

_NAMES: Final[Mapping[Signal, tuple[str, ...]]] = {
    "traces": ("otlp", "console"),
    "metrics": ("otlp", "console", "prometheus"),
    "logs": ("otlp", "console"),
}
_OTLP: Final[Mapping[Signal, tuple[str, str]]] = {
    "traces": ("trace_exporter", "OTLPSpanExporter"),
    "metrics": ("metric_exporter", "OTLPMetricExporter"),
    "logs": ("_log_exporter", "OTLPLogExporter"),
}
"""Module and class, under the package of each protocol."""
_CONSOLE: Final[Mapping[Signal, tuple[str, str]]] = {
    "traces": ("opentelemetry.sdk.trace.export", "ConsoleSpanExporter"),
    "metrics": ("opentelemetry.sdk.metrics.export", "ConsoleMetricExporter"),
    "logs": ("opentelemetry.sdk._logs.export", "ConsoleLogRecordExporter"),
}
_PROTOCOLS: Final = {"http/protobuf": "http", "grpc": "grpc"}
_SAMPLERS: Final = ("always_on", "always_off", "traceidratio")


def make_exporters(signal: Signal, environ: Mapping[str, str]) -> list[Any]:
    """Return the exporters of a signal; for Prometheus there is none, since /metrics is always served.

    Raises ConfigurationError for a variable that is wrong, UnavailableError if an extra is not installed.
    """
    return [_make(name, signal, environ) for name in chosen_exporters(signal, environ) if name != "prometheus"]


def chosen_exporters(signal: Signal, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the exporters of a signal. Raises ConfigurationError."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip() for name in environ.get(variable, "").split(",") if name.strip()]
    if not names:
        endpoints = [f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"]
        if signal != "logs":
            endpoints.append("OTEL_EXPORTER_OTLP_ENDPOINT")
        return ("otlp",) if any(environ.get(endpoint) for endpoint in endpoints) else ()
    for name in names:
        if name not in (*_NAMES[signal], "none"):
            raise ConfigurationError(f"{variable}={name!r}: expected {', '.join(_NAMES[signal])} or none")
    if "none" in names and len(names) > 1:
        raise ConfigurationError(f"{variable}={environ[variable]!r}: none cannot be combined with other exporters")
    return () if names == ["none"] else tuple(dict.fromkeys(names))


def check_sampler(environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a sampler that the SDK does not know: it would only warn, and sample everything."""
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").lower()
    if not sampler:
        return
    if sampler.removeprefix("parentbased_") not in _SAMPLERS:
        expected = ", ".join((*_SAMPLERS, *(f"parentbased_{name}" for name in _SAMPLERS)))
        raise ConfigurationError(f"OTEL_TRACES_SAMPLER={sampler!r}: expected one of {expected}")
    if sampler.endswith("traceidratio") and (ratio := environ.get("OTEL_TRACES_SAMPLER_ARG")):
        try:
            is_ratio = 0.0 <= float(ratio) <= 1.0
        except ValueError:
            is_ratio = False
        if not is_ratio:
            raise ConfigurationError(f"OTEL_TRACES_SAMPLER_ARG={ratio!r}: expected a ratio from 0 to 1, such as 0.01")


def _make(name: str, signal: Signal, environ: Mapping[str, str]) -> Any:
    # Each is imported only if it is used: they are slow to import, and one needs an extra.
    if name == "console":
        module, exporter = _CONSOLE[signal]
        return getattr(import_module(module), exporter)(out=sys.stderr)  # stdout has the log, or the records
    protocol = _protocol(signal, environ)
    module, exporter = _OTLP[signal]
    try:
        package = import_module(f"opentelemetry.exporter.otlp.proto.{_PROTOCOLS[protocol]}.{module}")
    except ImportError as error:
        raise UnavailableError(
            "OTLP over gRPC is not installed: pip install 'efo[service,grpc]', or set"
            " OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
        ) from error
    return getattr(package, exporter)()


def _protocol(signal: Signal, environ: Mapping[str, str]) -> str:
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environ.get(variable, "").strip():
            if protocol not in _PROTOCOLS:
                raise ConfigurationError(f"{variable}={protocol!r}: expected {' or '.join(_PROTOCOLS)}")
            return protocol
    return "http/protobuf"
