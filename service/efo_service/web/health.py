"""What is wrong with the service, and whether it is ready: computed when asked; readiness as a metric, in the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import structlog
import trio
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from efo.events import (
    ConsumerOpened,
    ConsumerReady,
    Event,
    LeasesCounted,
    LeaseStoreCalled,
    PollAttempted,
    ReadModeChanged,
    RecordsExpired,
    ShardsListed,
    StartDelayed,
    SubscribeAttempted,
)
from efo.health import Readings
from efo.telemetry.filtering import Filtering
from efo.telemetry.instruments import SCHEMA_URL
from efo.telemetry.outages import Outages
from efo_service.web.problems import (
    LastError,
    Problem,
    dropped_problem,
    expired_problem,
    fan_out_problem,
    filtering_problem,
    isolated_problems,
    last_error,
    outage_problem,
    shard_problems,
)

_CHANGES: Final = frozenset({
    ConsumerOpened, ConsumerReady, ReadModeChanged, LeasesCounted, LeaseStoreCalled, SubscribeAttempted, PollAttempted,
    StartDelayed, ShardsListed, RecordsExpired,
})  # fmt: skip
EXPIRED_SHOWN_FOR: Final = 86_400.0
"""Seconds for which it is reported that records expired unread: nothing ends it, and nothing brings them back."""


class Health:
    """An observer that knows what is wrong. The service is ready if it reads its shards, or none are to be read.

    `unsaved_after`: seconds after which a checkpoint that does not move is a problem. `keeps_positions`: whether the
    sink does (rule R12). `clock`: monotonic seconds. `outages`, `filtering`: what another observer, the log, finds in
    the events.
    """

    def __init__(
        self,
        *,
        unsaved_after: float = 60.0,
        keeps_positions: bool = False,
        clock: Callable[[], float] = trio.current_time,
        outages: Outages | None = None,
        filtering: Filtering | None = None,
    ) -> None:
        self.draining = False
        self._outages = outages
        self._filtering = filtering
        self._unsaved_after = unsaved_after
        self._keeps_positions = keeps_positions
        self._clock = clock
        self._registered = False
        self._is_polled = False
        self._fan_out: ReadModeChanged | None = None
        self._readings: Readings | None = None
        self._scanned_at: float | None = None
        self._store_error: str | None = None
        self._subscribe_error: tuple[str, str] | None = None
        self._expired: dict[
            str, tuple[float, RecordsExpired]
        ] = {}  # until when it is reported, and the last of each shard
        self._delayed: StartDelayed | None = None
        self.of_sink: Callable[[], Iterable[str]] = tuple
        """What is wrong with the sink beside commits that fail."""
        self._has_listed = False

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type changes the state (see `combine_observers`)."""
        return event_type in _CHANGES

    def __call__(self, event: Event) -> None:
        """Update the state from one event."""
        match event:
            case ConsumerOpened(readings=readings):
                self._readings = readings
            case ConsumerReady():
                self._registered = True
            case StartDelayed():
                self._delayed = event
            case ShardsListed():
                self._delayed, self._has_listed = None, True
            case RecordsExpired(shard_id=shard_id):
                known = {shard: reported for shard, reported in self._expired.items() if reported[0] > self._clock()}
                self._expired = {**known, shard_id: (self._clock() + EXPIRED_SHOWN_FOR, event)}
            case ReadModeChanged(mode=mode):
                self._is_polled = mode == "polling"
                self._fan_out = event
            case LeasesCounted():
                self._scanned_at = self._clock()
                self._store_error = None
            # A lease that another worker took is not an error of the store.
            case LeaseStoreCalled(error_type=str() as error_type) if error_type != "lease_lost":
                self._store_error = error_type
            case (
                SubscribeAttempted(error_type=error_type, detail=detail)
                | PollAttempted(error_type=error_type, detail=detail)
            ):
                self._subscribe_error = None if error_type is None else (error_type, detail)

    def start_draining(self) -> None:
        """Report the service as not ready from now on."""
        self.draining = True

    def problems(self) -> tuple[str, ...]:
        """Return everything that is wrong, in sentences with their remedies; empty if nothing is."""
        return tuple(problem.text for problem in self._problems())

    def obstacles(self) -> tuple[str, ...]:
        """Return why the service is not ready, a part of the problems; empty if it is ready."""
        return tuple(problem.text for problem in self._problems() if problem.stops_reading)

    def last_errors(self) -> tuple[LastError, ...]:
        """Return the last error of Kinesis, the lease store and the sink."""
        now = time.time()
        return () if self._outages is None else tuple(last_error(outage, now) for outage in self._outages.last())

    def _problems(self) -> Iterator[Problem]:
        if self.draining:
            yield Problem("draining", stops_reading=True)
        if self._is_polled and self._fan_out is not None and self._fan_out.error_type is not None:
            yield fan_out_problem(self._fan_out.error_type, self._fan_out.detail)
        yield from self._missing()
        if self._outages is not None:
            yield from map(outage_problem, self._outages.ongoing())
        readings = self._readings
        if readings is not None:
            shards = readings.shards()
            yield from shard_problems(
                shards, readings.now(), unsaved_after=self._unsaved_after, subscribe_error=self._subscribe_error
            )
            yield from isolated_problems(readings.isolated(), shards, keeps_positions=self._keeps_positions)
            if self._filtering is not None and (filtered := self._filtering.recent()):
                yield filtering_problem(filtered, len(shards))
            yield from self._dropped(len(shards))

        yield from (Problem(text, stops_reading=False) for text in self.of_sink())
        if expired := [event for until, event in self._expired.values() if until > self._clock()]:
            yield expired_problem(expired)

    def _dropped(self, shards: int) -> Iterator[Problem]:
        if self._filtering is None:
            return
        if old := self._filtering.recent("too_old"):
            yield dropped_problem(old, shards, is_old=True)
        if skipped := self._filtering.recent("behind"):
            yield dropped_problem(skipped, shards, is_old=False)

    def _missing(self) -> Iterator[Problem]:
        """Yield what must be known before the worker can read."""
        if self._delayed is not None:
            system = "the lease store" if self._delayed.call == "leases" else "Kinesis"
            yield Problem(f"the start waits for {system}: {self._delayed.detail}", stops_reading=True)
        if not self._registered and not self._is_polled:
            yield Problem("the fan-out consumer is not registered and ACTIVE yet", stops_reading=True)
        counts = None if self._readings is None else self._readings.counts()
        if counts is None:
            yield Problem(self._unknown_table(), stops_reading=True)
        elif not self._has_listed and not any(counts.leases.values()):
            yield Problem("the shards have not been listed yet", stops_reading=True)

    def _unknown_table(self) -> str:
        if self._scanned_at is None:
            return f"the leases have not been read yet{self._store_reason()}"
        return (
            f"the leases were last read {self._clock() - self._scanned_at:.0f} s ago{self._store_reason()}, so which "
            "shards are to be read is unknown: make the lease store reachable from this worker"
        )

    def _store_reason(self) -> str:
        return f" ({self._store_error})" if self._store_error else ""


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
