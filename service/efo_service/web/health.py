"""Whether the service is ready: kept from events, so that a probe waits for nobody and costs nothing."""

from __future__ import annotations

from collections.abc import Callable

import trio

from efo.events import ConsumerReady, Event, LeasesCounted, LeaseStoreCalled


class Health:
    """An observer that knows why the service is not ready.

    `stale_after`: seconds without a look at the leases after which the lease store counts as unreachable;
    workers look several times per fail-over time. `clock`: seconds, monotonic.
    """

    def __init__(self, *, stale_after: float, clock: Callable[[], float] = trio.current_time) -> None:
        self.draining = False
        self._stale_after = stale_after
        self._clock = clock
        self._registered = False
        self._looked_at: float | None = None
        self._store_error: str | None = None

    def __call__(self, event: Event) -> None:
        """Take one event."""
        match event:
            case ConsumerReady():
                self._registered = True
            case LeasesCounted():
                self._looked_at = self._clock()
                self._store_error = None
            # Losing a lease to another worker is the store at work.
            case LeaseStoreCalled(error_type=str() as error_type) if error_type != "lease_lost":
                self._store_error = error_type
            case _:
                pass

    def start_draining(self) -> None:
        """Be not ready any more, for good."""
        self.draining = True

    def problems(self) -> tuple[str, ...]:
        """Return why the service is not ready; nothing when it is."""
        problems = []
        if self.draining:
            problems.append("draining")
        if not self._registered:
            problems.append("the fan-out consumer is not registered and ACTIVE yet")
        if self._looked_at is None:
            problems.append("the leases were not read yet")
        elif (age := self._clock() - self._looked_at) > self._stale_after:
            reason = f": {self._store_error}" if self._store_error else ""
            problems.append(f"the leases were last read {age:.0f} s ago{reason}")
        return tuple(problems)
