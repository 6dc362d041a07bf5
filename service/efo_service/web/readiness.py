"""The metric of readiness: what /readyz responds, for alerts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from efo.telemetry.instruments import SCHEMA_URL
from efo_service.web.app import ReportsReadiness

NAME: Final = "efo.worker.ready"


def measure_readiness(health: ReportsReadiness, provider: MeterProvider, *, stream: str, application: str) -> None:
    """Export whether the worker is ready. `stream`, `application`: attributes, as those of the other metrics.

    The callback runs in threads of exporters, so the clock of `health` must work in any thread.
    """
    attributes: Mapping[str, str] = {
        "messaging.destination.name": stream,
        "messaging.consumer.group.name": application,
    }

    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(int(not health.obstacles()), attributes)]

    provider.get_meter("efo.service", schema_url=SCHEMA_URL).create_observable_up_down_counter(
        NAME, [observe], "{worker}", "1 if the worker is ready, as /readyz says, otherwise 0."
    )
