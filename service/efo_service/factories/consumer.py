"""The settings, spans and CloudWatch metrics of a consumer, from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Final

from efo.arn import parse_stream
from efo.events import Observer, ignore_events
from efo.protocol.assignment.balance import balanced_assignment, weighted_assignment
from efo.protocol.assignment.placement import zone_assignment
from efo.protocol.assignment.view import Assignment
from efo.settings import ConsumerSettings
from efo.telemetry.cloudwatch.kcl_metrics import KclMetrics
from efo.telemetry.cloudwatch.publisher import publishing
from efo.telemetry.spans import OtelTracing
from efo_service.config.leases import LeaseSettings
from efo_service.config.relay import RelaySettings
from efo_service.config.section import proxy_text
from efo_service.config.settings import Settings
from efo_service.relay.mapping import from_tags, load_extractor
from efo_service.telemetry.logs import log_outage
from efo_service.telemetry.sdk import Telemetry

_NAMES: Final = frozenset(one.name for one in fields(ConsumerSettings))


def consumer_settings(settings: Settings) -> ConsumerSettings:
    """Return how the stream is read: what [consumer], [leases] and [relay] have under the names of the library."""
    chosen = {
        name: getattr(section, name)
        for section in (settings.consumer, settings.leases, settings.relay)
        for name in _NAMES.intersection(type(section).model_fields)
    }
    name, assignment = settings.consumer.fan_out_consumer, _assignment(settings.leases)
    return ConsumerSettings(**{**chosen, "consumer_name": name, "assignment": assignment})


def _assignment(leases: LeaseSettings) -> Assignment:
    shares = weighted_assignment(leases.worker_weights) if leases.worker_weights else balanced_assignment
    return zone_assignment(leases.zones, within=shares) if leases.zones else shares


def open_tracing(telemetry: Telemetry, relay: RelaySettings) -> OtelTracing:
    """Return how the service makes spans: with the provider that the environment configures, if it does.

    Process spans are linked to the trace contexts that [relay] trace_extractor finds, or else those of KPL tags. Raises
    ConfigurationError.
    """
    extract = load_extractor(relay.trace_extractor) if relay.trace_extractor else from_tags
    return OtelTracing(tracer_provider=telemetry.tracer_provider, extract=extract)


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
