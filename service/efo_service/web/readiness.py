"""The metric of readiness: what /readyz responds, for alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from efo.telemetry.instruments import SCHEMA_URL

NAME: Final = "efo.worker.ready"


class WorkerReadiness(NamedTuple):
    """Whether the worker is ready for one of its streams."""

    stream: str
    application: str
    is_ready: bool


def measure_readiness(readiness: Callable[[], Iterable[WorkerReadiness]], provider: MeterProvider) -> None:
    """Export whether the worker is ready, for each of its streams.

    `readiness` is called in threads of exporters, so the clocks that it reads must work in any thread.
    """

    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(
                int(found.is_ready),
                {"messaging.destination.name": found.stream, "messaging.consumer.group.name": found.application},
            )
            for found in readiness()
        ]

    provider.get_meter("efo.service", schema_url=SCHEMA_URL).create_observable_up_down_counter(
        NAME, [observe], "{worker}", "1 if the worker is ready, as /readyz says, otherwise 0."
    )
