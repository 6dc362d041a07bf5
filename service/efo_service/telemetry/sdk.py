"""Sets up the OpenTelemetry SDK: metrics for Prometheus; metrics, traces and logs for the configured exporters.

OTEL_{TRACES,METRICS,LOGS}_EXPORTER      otlp, console, none; by default otlp if an endpoint is set
    OTEL_EXPORTER_OTLP_[SIGNAL_]PROTOCOL     http/protobuf (the default), grpc

The SDK's own exporters read all others: endpoints, headers, certificates, compression, time-outs. /metrics needs none.
Logs are on stdout already, so only a variable of their own exports them.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import Any, Final, Literal

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.trace import NoOpTracerProvider, TracerProvider
from prometheus_client import CollectorRegistry, ProcessCollector

from efo.errors import ConfigurationError
from efo.protocol.native import DECODER
from efo_service.errors import UnavailableError
from efo_service.telemetry.logs import exporting
from efo_service.telemetry.observed import (
    Observed,
    ObservedMeterProvider,
    ObservedPeriodicReader,
    ObservedPrometheusReader,
)
from efo_service.version import VERSION, commit

_FLUSH_SECONDS: Final = 3.0
"""Time-out of the last exports, together. They follow the drain, within Kubernetes' grace period of 30 s."""

_Shutdown = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The providers of instruments and spans, and the registry that /metrics reads."""

    meter_provider: ObservedMeterProvider
    registry: CollectorRegistry
    tracer_provider: TracerProvider


@contextmanager
def telemetry(worker_id: str, environ: Mapping[str, str] = os.environ) -> Iterator[Telemetry]:
    """Set up the SDK for the duration of the context. Leaving it flushes in this thread, for at most three seconds.

    The SDK's own `OTEL_*` variables choose exporters (see `exporters`), and set endpoints, headers, sampler,
    temporality and intervals. Exports run in the SDK's threads, never in trio's. Without an exporter of traces, the
    provider makes no spans. Raises ConfigurationError and UnavailableError.
    """
    resource = _resource(worker_id)
    shutdowns: list[_Shutdown] = []
    with ExitStack() as stack:
        stack.callback(_shut_down, shutdowns)
        provider, registry = _metrics(resource, environ, shutdowns)
        traces = _traces(resource, environ, shutdowns)
        _export_logs(resource, environ, shutdowns, stack)
        yield Telemetry(provider, registry, traces)


def _metrics(
    resource: Resource, environ: Mapping[str, str], shutdowns: list[_Shutdown]
) -> tuple[ObservedMeterProvider, CollectorRegistry]:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    observed = Observed()
    readers: list[MetricReader] = [ObservedPrometheusReader(observed, registry)]
    readers += [ObservedPeriodicReader(observed, exporter) for exporter in make_exporters("metrics", environ)]
    provider = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
    shutdowns.append(lambda: provider.shutdown(timeout_millis=_FLUSH_SECONDS * 1000))
    observed_provider = ObservedMeterProvider(provider, observed)
    built = {"version": VERSION, "commit": commit(), "python": platform.python_version(), "decoder": DECODER.name}
    observed_provider.get_meter("efo.service").create_observable_gauge(
        "efo.build.info", [lambda _: [Observation(1, built)]], "", "1, with the version and the commit of efo."
    )
    return observed_provider, registry


def _traces(resource: Resource, environ: Mapping[str, str], shutdowns: list[_Shutdown]) -> TracerProvider:
    check_sampler(environ)
    if not (exporters := make_exporters("traces", environ)):
        return NoOpTracerProvider()
    # Imported only if they are used, as are the exporters.
    from opentelemetry.sdk import trace  # noqa: PLC0415 - as above
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

    provider = trace.TracerProvider(resource=resource, shutdown_on_exit=False)
    shutdowns.append(provider.shutdown)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _export_logs(resource: Resource, environ: Mapping[str, str], shutdowns: list[_Shutdown], stack: ExitStack) -> None:
    if not (exporters := make_exporters("logs", environ)):
        return
    from opentelemetry.sdk._logs import LoggerProvider  # noqa: PLC0415 - only if it is used
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor  # noqa: PLC0415 - only if it is used

    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    shutdowns.append(provider.shutdown)
    for exporter in exporters:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    stack.enter_context(exporting(provider.get_logger("efo", VERSION)))


def _shut_down(shutdowns: list[_Shutdown]) -> None:
    """Flush and shut down all providers at the same time. Those that take too long are left behind.

    The SDK's processors of spans and logs wait for 30 s if an exporter hangs, and take no time-out.
    """
    deadline = time.monotonic() + _FLUSH_SECONDS
    threads = [Thread(target=shutdown, daemon=True) for shutdown in shutdowns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _resource(worker_id: str) -> Resource:
    """Return the resource of this worker. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it."""
    defaults = {"service.name": "efo", "service.version": VERSION, "service.instance.id": worker_id}
    return Resource.create(defaults).merge(OTELResourceDetector().detect())


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
