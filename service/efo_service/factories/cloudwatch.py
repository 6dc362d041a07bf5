"""KCL's metrics in CloudWatch, from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from efo.arn import parse_stream
from efo.events import Observer, ignore_events
from efo.telemetry.cloudwatch.kcl_metrics import KclMetrics
from efo.telemetry.cloudwatch.publisher import publishing
from efo_service.config.section import proxy_text
from efo_service.config.settings import Settings
from efo_service.telemetry.logs import log_outage


@asynccontextmanager
async def open_metrics(settings: Settings) -> AsyncIterator[Observer]:
    """Yield an observer that publishes to CloudWatch, if [cloudwatch] says so. Raises ConfigurationError."""
    chosen, kinesis = settings.cloudwatch, settings.kinesis
    if chosen.level == "none":
        yield ignore_events
        return
    opening = publishing(
        KclMetrics(chosen.level, worker_dimension=chosen.worker_dimension),
        chosen.namespace or settings.consumer.application,
        log_outage,
        region=chosen.region or kinesis.region or parse_stream(kinesis.stream)[1],
        endpoint_url=chosen.endpoint_url,
        ca_file=str(chosen.ca_file) if chosen.ca_file else None,
        profile=chosen.profile or kinesis.profile,
        proxy_url=proxy_text(chosen.proxy_url, kinesis.proxy_url),
    )
    async with opening as publisher:
        yield publisher
