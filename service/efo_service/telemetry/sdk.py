"""Sets up the OpenTelemetry SDK: metrics for Prometheus, and by OTLP if an endpoint is configured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import CollectorRegistry, ProcessCollector

from efo_service.version import VERSION

_OTLP_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_FLUSH_MILLISECONDS: Final = 3000
"""Time-out of the last export. It follows the drain, within Kubernetes' grace period of 30 s."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The provider of instruments, and the registry that /metrics reads."""

    meter_provider: MeterProvider
    registry: CollectorRegistry


@contextmanager
def telemetry(worker_id: str, environ: Mapping[str, str] = os.environ) -> Iterator[Telemetry]:
    """Set up the SDK for the duration of the context. Leaving it flushes in this thread, for at most three seconds.

    The SDK's own `OTEL_*` variables set endpoint, headers, temporality and intervals of the OTLP export. Exports run
    in the SDK's thread, never in trio's.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    # Scope info would add three labels to every series. Histograms must keep explicit buckets here, because an
    # exponential histogram breaks the whole scrape: choose it in the OTLP reader, never by a View.
    readers: list[MetricReader] = [PrometheusMetricReader(scope_info_enabled=False, registry=registry)]
    if any(environ.get(name) for name in _OTLP_ENDPOINTS):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - slow, only if it is used
            OTLPMetricExporter,
        )

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    provider = MeterProvider(metric_readers=readers, resource=_resource(worker_id), shutdown_on_exit=False)
    try:
        yield Telemetry(provider, registry)
    finally:
        provider.shutdown(timeout_millis=_FLUSH_MILLISECONDS)


def _resource(worker_id: str) -> Resource:
    """Return the resource of this worker. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it."""
    defaults = {"service.name": "efo", "service.version": VERSION, "service.instance.id": worker_id}
    return Resource.create(defaults).merge(OTELResourceDetector().detect())
