"""Readiness as a metric, for alerts, and in the log: what /readyz responds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import structlog
import trio
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from efo.telemetry.instruments import SCHEMA_URL

NAME: Final = "efo.worker.ready"
LOOK_EVERY: Final = 2.0
"""Seconds between two looks: a worker that flaps is a line at every other one."""
_LOGGED: Final = 5
"""How many problems a line of the log has."""


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


async def log_readiness(obstacles: Callable[[], Sequence[str]], is_draining: Callable[[], bool]) -> None:
    """Log when the worker becomes ready, and when it no longer is, with the reasons; until it drains, or is cancelled.

    `obstacles`: returns why it is not ready.
    """
    log, was_ready = structlog.get_logger(), False
    while not is_draining():
        problems = obstacles()
        if was_ready and problems:
            log.warning("not_ready", problems=[*problems[:_LOGGED]], count=len(problems))
        elif not (was_ready or problems):
            log.info("ready")
        was_ready = not problems
        await trio.sleep(LOOK_EVERY)
