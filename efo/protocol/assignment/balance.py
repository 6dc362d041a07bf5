"""Fair shares without a leader: the strategy of efo, by the number of shards, their throughput, or workers' weights.

`balanced_assignment` gives each worker the same share. `weighted_assignment` gives it a share in proportion to its
weight. The workers find the same balance from the same table, without talking to each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from math import exp
from operator import itemgetter
from typing import Final
from zlib import crc32

from efo.checks import check_number, check_text, check_type
from efo.model import Lease
from efo.protocol.assignment.view import Assignment, AssignmentPlan, AssignmentView

DAMPING: Final = 0.1
"""Assignment by throughput ignores load differences below this fraction of a fair share: measurements always vary."""


def balanced_assignment(view: AssignmentView, /) -> AssignmentPlan:
    """Share the shards evenly: the default.

    - The fair share is total weight / workers. The workers are this one and all owners of leases. The worker takes free
      leases up to its share, and neglected leases beyond it.
    - By throughput, a lease weighs the throughput of its shard, see `_weights`; otherwise all leases weigh the same.
    - Children of shards that this worker read come first. Children of shards that another worker read come last: that
      worker has the first chance to continue with their keys.
    - If no lease is free, the worker steals from the busiest workers, see `_steal`.
    """
    return _balance(view, lambda _worker: 1.0)


def weighted_assignment(weights: Mapping[str, float]) -> Assignment:
    """Return a strategy that shares the shards in proportion to the weights of the workers, as with larger machines.

    `weights`: the weight of a worker by its id, or by the beginning of its id; the longest that fits counts. A worker
    that is not there weighs 1. All workers of an application need the same weights. Otherwise it is as
    `balanced_assignment`. Raises ConfigurationError.
    """
    check_type("weights", weights, Mapping, "a mapping from worker ids, or their beginnings, to weights")
    for prefix, weight in weights.items():
        check_text("weights", prefix, "the id of a worker, or its beginning")
        check_number(f"weights[{prefix!r}]", weight)
    return _Weighted(dict(weights))


@dataclass(frozen=True)
class _Weighted:
    weights: Mapping[str, float]

    def __call__(self, view: AssignmentView, /) -> AssignmentPlan:
        return _balance(view, lambda worker: self.weights.get(longest_prefix(self.weights, worker) or "", 1.0))


def longest_prefix(prefixes: Iterable[str], worker: str) -> str | None:
    """Return the longest of these with which the id of a worker begins; None if there is none."""
    return max((prefix for prefix in prefixes if worker.startswith(prefix)), key=len, default=None)


def _balance(view: AssignmentView, capacity_of: Callable[[str], float]) -> AssignmentPlan:
    worker, held = view.worker, view.held
    work = [lease for lease in view.leases if not lease.is_finished]
    weights = _weights(work, by_throughput=view.by_throughput)
    capacities = {owner: capacity_of(owner) for owner in held}
    loads = {owner: sum(weights[lease.key] for lease in owned) for owner, owned in held.items()}
    limit = len(work) if view.max_leases is None else view.max_leases
    total = sum(capacities.values())
    if not view.free:
        lightest = min(weights.values(), default=0.0)
        slack = DAMPING * sum(loads.values()) / total if view.by_throughput else 0.0
        return AssignmentPlan(steal=_steal(view, _Shares(held, loads, capacities, weights, lightest, limit, slack)))
    share = (sum(loads.values()) + sum(weights[lease.key] for lease in view.free)) * capacities[worker] / total
    ranks = _ranks(view)
    take: list[Lease] = []
    for lease in sorted(view.free, key=lambda lease: (ranks(lease), _hash(worker, lease.key), lease.key)):
        if len(held[worker]) + len(take) >= limit or (loads[worker] >= share and lease.key not in view.neglected):
            break
        take.append(lease)
        loads[worker] += weights[lease.key]
    return AssignmentPlan(take=tuple(take))


def _weights(work: Sequence[Lease], *, by_throughput: bool) -> dict[str, float]:
    """Return the weight of each lease: 1, or 1 + its throughput relative to the mean.

    The constant 1 distributes idle shards evenly too. A shard without a measurement counts as an average one.
    """
    known = [lease.throughput_kbps for lease in work if lease.throughput_kbps is not None]
    if not by_throughput or not any(known):
        return dict.fromkeys((lease.key for lease in work), 1.0)
    mean = sum(known) / len(known)
    return {lease.key: 1 + (mean if lease.throughput_kbps is None else lease.throughput_kbps) / mean for lease in work}


def _ranks(view: AssignmentView) -> Callable[[Lease], tuple[bool, bool, bool]]:
    """Return the sort key for free leases: a lease of a lower rank is taken first."""
    owners = {lease.key: lease.owner for lease in view.leases if lease.is_finished}

    def rank(lease: Lease) -> tuple[bool, bool, bool]:
        readers = {owners.get(parent) for parent in lease.parents}
        return lease.key not in view.neglected, view.worker not in readers, not readers.isdisjoint(view.held)

    return rank


# --- stealing ---------------------------------------------------------------------------------------------------

_Stealable = dict[str, list[tuple[float, int, str, Lease]]]
"""The leases that may be stolen, by owner. All workers sort them alike: by weight, hash, key."""


@dataclass(frozen=True, slots=True)
class _Shares:
    """The current shares of all workers. A worker's relative load is its load divided by its capacity.

    `held`: leases by owner.
    `loads`: total weight by owner.
    `capacities`: by owner.
    `weights`: weight by lease key. `lightest`: the least of them.
    `limit`: the most leases that a worker owns.
    `slack`: a lease moves only if the difference of the relative loads exceeds what it needs by more than this.
    """

    held: Mapping[str, Sequence[Lease]]
    loads: Mapping[str, float]
    capacities: Mapping[str, float]
    weights: Mapping[str, float]
    lightest: float
    limit: int
    slack: float

    def relative(self, owner: str, half_leases: int) -> float:
        """Return the relative load of a worker with so many halves of the lightest lease more, or less."""
        return (self.loads[owner] + half_leases * self.lightest / 2) / self.capacities[owner]


def _steal(view: AssignmentView, shares: _Shares) -> tuple[Lease, ...]:
    """Return the leases to steal from other workers, to balance all relative loads.

    The worker simulates all moves that would balance the workers, in an order that is the same for every worker, and
    makes the moves to itself. So workers that read the same table do not steal the same leases.

    - A worker that owns no lease steals only one. This makes it visible to the others, so that all workers know their
      number before one of them steals many.
    - Another worker may not make the moves that were simulated for it. So a worker without a move to itself steals one
      lease if another worker has clearly more.
    """
    worker = view.worker
    if max(shares.relative(owner, -1) for owner in shares.loads) <= shares.relative(worker, 1):
        return ()  # the usual case: the loads are balanced
    stealable: _Stealable = {
        owner: sorted(
            (shares.weights[lease.key], crc32(lease.key.encode()), lease.key, lease)
            for lease in view.stealable_of(owned)
        )
        for owner, owned in shares.held.items()
        if owner != worker
    }
    mine: list[Lease] = []
    mean = sum(shares.loads.values()) / sum(shares.capacities.values())
    if shares.relative(worker, 0) < mean:
        mine = [lease for receiver, lease in _moves(shares, stealable, set(shares.loads)) if receiver == worker]
    if mine and shares.held[worker]:
        return tuple(mine)
    candidates = mine or [lease for _, lease in _moves(shares, stealable, {worker})]
    # The hash makes different workers choose different leases.
    return tuple(sorted(candidates, key=lambda lease: _hash(worker, lease.key))[:1])


def _moves(shares: _Shares, stealable: _Stealable, receivers: set[str]) -> Iterator[tuple[str, Lease]]:
    """Simulate moves from the busiest to the idlest worker, while each one makes the loads more even.

    Each move reduces the sum of the squared loads, each divided by the worker's capacity. So no move undoes an earlier
    one, and the moves converge. The lease that reduces it most moves first: with equal capacities, that is one of about
    half the difference. The busiest worker is the one that is so with half a lease less, and the idlest with half a
    lease more: with different capacities, this shares leases of one weight as Sainte-Laguë shares seats.

    No worker both gives and receives: it may not take a simulated lease, and could then not give it. For a worker that
    has given stays among the receivers with the load that it had, which no other exceeds any more, and one that has
    received stays among the givers with the load that it had, below which none is.
    """
    remaining = {owner: list(leases) for owner, leases in stealable.items()}
    counts = {owner: len(owned) for owner, owned in shares.held.items()}
    loads = dict(shares.loads)
    half = shares.lightest / 2
    busiest = [(-shares.relative(owner, -1), owner) for owner in remaining]
    idlest = [(shares.relative(owner, 1), owner) for owner in receivers if counts[owner] < shares.limit]
    heapify(busiest)
    heapify(idlest)
    while busiest and idlest:
        (_, donor), (_, receiver) = busiest[0], idlest[0]
        if counts[receiver] >= shares.limit:
            heappop(idlest)
            continue
        # Of workers that give and receive, the heaps have the load from before: see above.
        gap = -busiest[0][0] - idlest[0][0] + half / shares.capacities[donor] + half / shares.capacities[receiver]
        cost = (1 / shares.capacities[donor] + 1 / shares.capacities[receiver]) / 2  # of a lease of weight 1
        index = max(0, bisect_right(remaining[donor], gap / (2 * cost), key=itemgetter(0)) - 1)
        if not remaining[donor] or gap - remaining[donor][index][0] * cost <= shares.slack:
            heappop(busiest)
            continue
        weight, *_, lease = remaining[donor].pop(index)
        yield receiver, lease
        loads[donor] -= weight
        loads[receiver] += weight
        heapreplace(busiest, ((half - loads[donor]) / shares.capacities[donor], donor))
        heapreplace(idlest, ((half + loads[receiver]) / shares.capacities[receiver], receiver))
        counts[receiver] += 1


def _hash(worker: str, name: str) -> int:
    """Return a sort key for names that differs per worker, so that workers seldom choose the same lease."""
    return crc32(f"{worker} {name}".encode())


SMOOTHING: Final = 30.0
"""Time constant of the average in seconds: after this time it has followed a change by about two thirds."""

DECIMALS: Final = 6


class Throughput:
    """An exponential moving average of the rate of a running total, for measurements at any intervals."""

    def __init__(self) -> None:
        self._total = 0
        self._at: float | None = None
        self._kbps: float | None = None

    def measure(self, total: int, now: float) -> float | None:
        """Return the average in KB per second, None for the first measurement.

        `total`: the bytes of the shard so far. `now`: monotonic seconds.

        The result has six decimals, as KCL writes it, so that it becomes 0 for an idle shard. Without rounding it would
        decrease below 1E-130, which DynamoDB cannot store.
        """
        previous, self._at = self._at, now
        added, self._total = total - self._total, total
        if previous is not None and now > previous:
            recent = added / (now - previous) / 1000
            weight = 1 if self._kbps is None else 1 - exp((previous - now) / SMOOTHING)
            self._kbps = (1 - weight) * (self._kbps or 0.0) + weight * recent
        return None if self._kbps is None else round(self._kbps, DECIMALS)
