"""Which leases show no sign of life, by local monotonic time alone (rule R10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from efo.model import Lease

NEGLECT: Final = 3
"""After this many fail-over times without a taker a lease is taken beyond the fair share, as in KCL."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    counter: int
    holder: str | None
    since: float


class Expiry:
    """Watches the counters of leases. Clocks of different machines are never compared.

    A lease lives while its counter changes. One that we see for the first time with a holder lives until proven dead.
    """

    def __init__(self, failover_time: float) -> None:
        self._failover_time = failover_time
        self._seen: dict[str, _Sighting] = {}
        self._asked = 0.0

    def observe(self, leases: Iterable[Lease], *, asked: float, answered: float) -> None:
        """Take note of the table, read between the times `asked` and `answered` (monotonic, seconds).

        A change counts as of `answered`, the latest that it can have been. Age is counted until `asked`, the
        earliest that its absence is known for. So a lease expires here only after it did for its holder, who
        counts from before his last renewal.
        """
        seen: dict[str, _Sighting] = {}
        for lease in leases:
            known = self._seen.get(lease.key)
            same = known is not None and (known.counter, known.holder) == (lease.counter, lease.holder)
            seen[lease.key] = known if known and same else _Sighting(lease.counter, lease.holder, answered)
        self._seen = seen
        self._asked = asked

    def expired(self) -> set[str]:
        """Return the keys of leases whose holder gave no sign of life for the fail-over time."""
        return {key for key in self._unchanged(self._failover_time) if self._seen[key].holder is not None}

    def neglected(self) -> set[str]:
        """Return the keys of leases that nobody kept or took for `NEGLECT` fail-over times."""
        return self._unchanged(NEGLECT * self._failover_time)

    def next_expiry(self, keys: Iterable[str]) -> float | None:
        """Return when the first of these leases expires if it shows no sign of life, of those that have not yet."""
        dues = (self._seen[key].since + self._failover_time for key in keys if key in self._seen)
        return min((due for due in dues if due > self._asked), default=None)

    def _unchanged(self, duration: float) -> set[str]:
        return {key for key, sighting in self._seen.items() if sighting.since + duration <= self._asked}
