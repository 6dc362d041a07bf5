"""The OpenTelemetry SDK, set up: metrics for Prometheus always, by OTLP where its endpoint is configured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import CollectorRegistry, ProcessCollector

from efo_service.version import VERSION

_OTLP_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_FLUSH_MILLISECONDS: Final = 3000
"""How long the last export may take. It comes after the drain, within Kubernetes' grace period of 30 s."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Where instruments come from, and where their figures are read for /metrics."""

    meter_provider: MeterProvider
    registry: CollectorRegistry


@contextmanager
def telemetry(worker_id: str, environ: Mapping[str, str] = os.environ) -> Iterator[Telemetry]:
    """Set up the SDK while the context lasts; leaving it flushes, in this thread, for at most three seconds.

    Endpoint, headers, temporality and intervals of the OTLP export are the SDK's own `OTEL_*` variables.
    Exports run in the SDK's thread, never in trio's.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    # The scope would be three more labels on every series. Histograms must keep explicit buckets here: an
    # exponential one breaks the whole scrape, so it may be chosen for OTLP by its reader, never by a View.
    readers: list[MetricReader] = [PrometheusMetricReader(scope_info_enabled=False, registry=registry)]
    if any(environ.get(name) for name in _OTLP_ENDPOINTS):
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    provider = MeterProvider(metric_readers=readers, resource=_resource(worker_id), shutdown_on_exit=False)
    try:
        yield Telemetry(provider, registry)
    finally:
        provider.shutdown(timeout_millis=_FLUSH_MILLISECONDS)


def _resource(worker_id: str) -> Resource:
    """Say who we are; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    ours = {"service.name": "efo", "service.version": VERSION, "service.instance.id": worker_id}
    return Resource.create(ours).merge(OTELResourceDetector().detect())
