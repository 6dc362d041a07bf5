"""The spans of the service, from the configuration."""

from __future__ import annotations

from efo.telemetry.spans import OtelTracing
from efo_service.config.relay import RelaySettings
from efo_service.relay.mapping import from_tags, load_extractor
from efo_service.telemetry.sdk import Telemetry


def open_tracing(telemetry: Telemetry, relay: RelaySettings) -> OtelTracing:
    """Return how the service makes spans: with the provider that the environment configures, if it does.

    Process spans are linked to the trace contexts that [relay] trace_extractor finds, or else those of KPL tags. Raises
    ConfigurationError.
    """
    extract = load_extractor(relay.trace_extractor) if relay.trace_extractor else from_tags
    return OtelTracing(tracer_provider=telemetry.tracer_provider, extract=extract)
