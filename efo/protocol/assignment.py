"""Who takes which lease: fair shares without a leader, each worker deciding for itself (rule R10).

`Expiry` tells which leases nobody keeps alive. `assign` decides from the table what this worker takes now. It is
only a wish: every take is conditional in the store, so that of two workers with the same wish one gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from efo.model import Lease

NEGLECT: Final = 3
"""After this many fail-over times without a taker a lease is taken beyond the fair share, as in KCL."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: `take` leases that nobody keeps, or `steal` at most one that somebody does."""

    take: tuple[Lease, ...] = ()
    steal: tuple[Lease, ...] = ()


def assign(
    leases: Iterable[Lease],
    worker: str,
    *,
    expired: Collection[str] = (),
    former: Collection[str] = (),
    neglected: Collection[str] = (),
    eligible: Callable[[Lease], bool] = lambda _lease: True,
) -> Plan:
    """Return what `worker` shall take of `leases`, all leases of the table.

    `expired`: keys of leases whose owner gave no sign of life. `former`: keys of leases that show `worker` as their
    owner from an earlier life. `neglected`: keys of leases free for so long that it must be somebody's.
    `eligible`: whether a lease may be taken now at all. Finished leases are no work and are never taken.

    - Former leases are taken back at once: they count as the worker's already.
    - The fair share is work / workers, rounded up; workers are the owners of leases, and this one. Up to that, free
      and expired leases are taken, and neglected ones beyond it.
    - With nothing free, one lease is stolen from the busiest worker if he has at least two more. Each such move
      brings the two closer and none can be undone by the next, so the workers come to rest.
    """
    work = [lease for lease in leases if not lease.is_finished]
    back = [lease for lease in work if lease.key in former]
    free: list[Lease] = []
    held: dict[str, list[Lease]] = {worker: []}
    for lease in work:
        if lease.owner is not None and (lease.key not in expired or lease.key in former):
            held.setdefault(lease.owner, []).append(lease)
        elif eligible(lease):
            free.append(lease)
    if not back and not free:
        return Plan(steal=_steal(worker, held, eligible))
    share = -(-(len(free) + sum(map(len, held.values()))) // len(held))
    urgent = [lease for lease in free if lease.key in neglected]
    others = _shuffled(worker, (lease for lease in free if lease.key not in neglected))
    room = max(0, share - len(held[worker]) - len(urgent))
    return Plan(take=(*back, *urgent, *others[:room]))


def _steal(worker: str, held: Mapping[str, list[Lease]], eligible: Callable[[Lease], bool]) -> tuple[Lease, ...]:
    busiest = max(held, key=lambda owner: (len(held[owner]), _weight(worker, owner)))
    if len(held[busiest]) - len(held[worker]) < 2:  # noqa: PLR2004 - with one more it would only change hands
        return ()
    return tuple(_shuffled(worker, filter(eligible, held[busiest]))[:1])


def _shuffled(worker: str, leases: Iterable[Lease]) -> list[Lease]:
    """Return the leases in an order of the worker's own, so that workers seldom wish for the same."""
    return sorted(leases, key=lambda lease: (_weight(worker, lease.key), lease.key))


def _weight(worker: str, name: str) -> int:
    return crc32(f"{worker} {name}".encode())


@dataclass(frozen=True, slots=True)
class _Sighting:
    counter: int
    owner: str | None
    since: float


class Expiry:
    """Tells which leases show no sign of life, by local monotonic time alone (rule R10).

    A lease lives while its counter changes. One that we see for the first time with an owner lives until proven
    dead. Clocks of different machines are never compared.
    """

    def __init__(self, failover_time: float) -> None:
        self._failover_time = failover_time
        self._seen: dict[str, _Sighting] = {}
        self._asked = 0.0

    def observe(self, leases: Iterable[Lease], *, asked: float, answered: float) -> None:
        """Take note of the table, read between the times `asked` and `answered` (monotonic, seconds).

        A change counts as of `answered`, the latest that it can have been. Age is counted until `asked`, the
        earliest that its absence is known for. So a lease expires here only after it did for its owner, who
        counts from before his last renewal.
        """
        seen: dict[str, _Sighting] = {}
        for lease in leases:
            known = self._seen.get(lease.key)
            same = known is not None and (known.counter, known.owner) == (lease.counter, lease.owner)
            seen[lease.key] = known if known and same else _Sighting(lease.counter, lease.owner, answered)
        self._seen = seen
        self._asked = asked

    def expired(self) -> set[str]:
        """Return the keys of leases whose owner gave no sign of life for the fail-over time."""
        return {key for key in self._unchanged(self._failover_time) if self._seen[key].owner is not None}

    def neglected(self) -> set[str]:
        """Return the keys of leases that nobody kept or took for `NEGLECT` fail-over times."""
        return self._unchanged(NEGLECT * self._failover_time)

    def _unchanged(self, duration: float) -> set[str]:
        return {key for key, sighting in self._seen.items() if self._asked - sighting.since >= duration}
