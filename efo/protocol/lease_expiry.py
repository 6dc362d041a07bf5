"""Detects expired leases with local monotonic time only (rule R10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from efo.model import Lease

NEGLECTED_AFTER: Final = 3
"""After this many fail-over times without a taker, a lease is neglected and taken beyond the fair share, as in KCL."""


@dataclass(frozen=True, slots=True)
class _Observation:
    lease: Lease
    holder: str | None
    since: float
    is_renewed: bool  # it changed while this worker looked


class LeaseExpiry:
    """Observes the counters of leases. It never compares the clocks of different machines.

    A lease is valid while its counter changes. A lease that has a holder when it is first observed counts as valid,
    until its counter has not changed for `failover_seconds` seconds.
    """

    def __init__(self, failover_seconds: float) -> None:
        self._failover_time = failover_seconds
        self._observed: dict[str, _Observation] = {}
        self._sent_at = 0.0

    def observe(self, leases: Iterable[Lease], *, sent_at: float, received_at: float) -> None:
        """Record a lease scan that was sent at `sent_at` and returned at `received_at` (monotonic seconds).

        A change counts from `received_at`, the latest time at which it can have happened. The age of a lease counts
        until `sent_at`, the earliest time at which its row can have been read. The holder counts from before its last
        renewal. So a lease expires here only after it has expired for its holder.
        """
        observed: dict[str, _Observation] = {}
        for lease in leases:
            known = self._observed.get(lease.key)
            if known is None or (known.lease is not lease and not _is_same(known, lease)):
                known = _Observation(lease, lease.holder, received_at, is_renewed=known is not None)
            observed[lease.key] = known
        self._observed = observed
        self._sent_at = sent_at

    def expired(self) -> set[str]:
        """Return the keys of leases whose holder has not renewed them for the fail-over time."""
        return {key for key in self._unchanged(self._failover_time) if self._observed[key].holder is not None}

    def is_alive(self, key: str) -> bool:
        """Return whether the holder of a lease was seen to renew it, and it has not expired since."""
        seen = self._observed.get(key)
        return seen is not None and seen.is_renewed and seen.since + self._failover_time > self._sent_at

    def neglected(self) -> set[str]:
        """Return the keys of leases that no worker has renewed or taken for `NEGLECTED_AFTER` fail-over times."""
        return self._unchanged(NEGLECTED_AFTER * self._failover_time)

    def next_expiry(self, keys: Iterable[str]) -> float | None:
        """Return the time at which the first of these leases expires without a renewal. Expired leases do not count."""
        expiries = (self._observed[key].since + self._failover_time for key in keys if key in self._observed)
        return min((expiry for expiry in expiries if expiry > self._sent_at), default=None)

    def _unchanged(self, duration: float) -> set[str]:
        return {key for key, observation in self._observed.items() if observation.since + duration <= self._sent_at}


def _is_same(known: _Observation, lease: Lease) -> bool:
    return (known.lease.counter, known.holder) == (lease.counter, lease.holder)
