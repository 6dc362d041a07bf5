"""Whether the service is ready. Events update this state, so that a probe neither waits nor costs anything."""

from __future__ import annotations

from collections.abc import Callable

import trio

from efo.events import ConsumerReady, Event, LeasesCounted, LeaseStoreCalled


class Health:
    """An observer that determines whether the service is ready.

    `stale_after`: seconds without a lease scan after which the lease store counts as unreachable; workers scan several
    times per fail-over time. `clock`: monotonic time in seconds.
    """

    def __init__(self, *, stale_after: float, clock: Callable[[], float] = trio.current_time) -> None:
        self.draining = False
        self._stale_after = stale_after
        self._clock = clock
        self._registered = False
        self._scanned_at: float | None = None
        self._store_error: str | None = None

    def __call__(self, event: Event) -> None:
        """Update the state from one event."""
        match event:
            case ConsumerReady():
                self._registered = True
            case LeasesCounted():
                self._scanned_at = self._clock()
                self._store_error = None
            # A lease that another worker took is not an error of the store.
            case LeaseStoreCalled(error_type=str() as error_type) if error_type != "lease_lost":
                self._store_error = error_type
            case _:
                pass

    def start_draining(self) -> None:
        """Report the service as not ready from now on."""
        self.draining = True

    def problems(self) -> tuple[str, ...]:
        """Return why the service is not ready; empty if it is ready."""
        problems = []
        if self.draining:
            problems.append("draining")
        if not self._registered:
            problems.append("the fan-out consumer is not registered and ACTIVE yet")
        if self._scanned_at is None:
            problems.append("the leases have not been read yet")
        elif (age := self._clock() - self._scanned_at) > self._stale_after:
            reason = f": {self._store_error}" if self._store_error else ""
            problems.append(f"the leases were last read {age:.0f} s ago{reason}")
        return tuple(problems)
