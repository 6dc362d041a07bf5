"""Sets up the OpenTelemetry SDK: metrics for Prometheus; metrics, traces and logs for the configured exporters."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Final

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.trace import NoOpTracerProvider, TracerProvider
from prometheus_client import CollectorRegistry, ProcessCollector

from efo.protocol.native import DECODER
from efo_service.telemetry.exporters import check_sampler, make_exporters
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
