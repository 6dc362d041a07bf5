"""Lease assignment: fair shares without a leader; each worker decides for itself (rule R10).

`assign` decides from the lease table what this worker takes now. `default_scan_interval` is how often it reads the
table. The store makes every take conditional: if two workers decide to take the same lease, one of them succeeds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Final
from zlib import crc32

from efo.model import Lease

DAMPING: Final = 0.1
"""Assignment by throughput ignores load differences below this fraction of a fair share: measurements always vary."""
SCANS_PER_FAILOVER_TIME: Final = 100
"""Approximate number of lease scans by all workers together in one fail-over time: by default ten per second. The scans
then cost about a fifth of the renewals, for any number of leases and workers (DynamoDB's prices)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: `take` leases that no worker keeps, or `steal` leases from other workers."""

    take: tuple[Lease, ...] = ()
    steal: tuple[Lease, ...] = ()


def default_scan_interval(failover_time: float, workers: int) -> float:
    """Return the lease scan interval in seconds. A released lease waits about this long for its next owner.

    It is a twentieth of the fail-over time for up to five workers. It grows with the number of workers, up to half
    the fail-over time.
    """
    return failover_time * min(max(0.05, workers / SCANS_PER_FAILOVER_TIME), 0.5)


def assign(
    leases: Sequence[Lease],
    worker: str,
    *,
    expired: Collection[str] = (),
    previously_held: Collection[str] = (),
    neglected: Collection[str] = (),
    eligible: Callable[[Lease], bool] = lambda _lease: True,
    max_leases: int | None = None,
    by_throughput: bool = False,
) -> Plan:
    """Return the leases that `worker` takes or steals now.

    `leases`: all leases of the table.
    `expired`: keys of leases whose holder did not renew them in time.
    `former`: keys of leases whose row names `worker` as the holder, from before a restart.
    `neglected`: keys of leases that no worker has kept or taken for a long time.
    `eligible`: whether a lease may be taken now.
    `max_leases`: the most leases that a worker owns.
    `by_throughput`: a lease weighs the throughput of its shard, see `_weights`; otherwise all leases weigh the same.

    Finished leases are never taken. A lease in a graceful hand-off counts as its next owner's.

    - The worker takes its former leases back at once: they already count as its own.
    - The fair share is total weight / workers. The workers are this one and all owners of leases. The worker takes free
      and expired leases up to its share, and neglected leases beyond it.
    - Children of shards that this worker read come first. Children of shards that another worker read come last: that
      worker has the first chance to continue with their keys.
    - If no lease is free, the worker steals from the busiest workers, see `_steal`.
    """
    work = [lease for lease in leases if not lease.is_finished]
    former_leases = [lease for lease in work if lease.key in previously_held]
    free: list[Lease] = []
    held: dict[str, list[Lease]] = {worker: []}
    for lease in work:
        if lease.owner is not None and (lease.key not in expired or lease.key in previously_held):
            held.setdefault(worker if lease.key in previously_held else lease.owner, []).append(lease)
        elif eligible(lease):
            free.append(lease)
    weights = _weights(work, by_throughput=by_throughput)
    loads = {owner: sum(weights[lease.key] for lease in owned) for owner, owned in held.items()}
    limit = len(work) if max_leases is None else max_leases
    if not former_leases and not free:
        slack = DAMPING * sum(loads.values()) / len(loads) if by_throughput else 0.0
        return Plan(steal=_steal(worker, _Shares(held, loads, weights, limit, slack), eligible))
    share = (sum(loads.values()) + sum(weights[lease.key] for lease in free)) / len(loads)
    ranks = _ranks(worker, leases, held, neglected)
    take: list[Lease] = []
    for lease in sorted(free, key=lambda lease: (ranks(lease), _hash(worker, lease.key), lease.key)):
        if len(held[worker]) + len(take) >= limit or (loads[worker] >= share and lease.key not in neglected):
            break
        take.append(lease)
        loads[worker] += weights[lease.key]
    return Plan(take=(*former_leases, *take))


def _weights(work: Sequence[Lease], *, by_throughput: bool) -> dict[str, float]:
    """Return the weight of each lease: 1, or 1 + its throughput relative to the mean.

    The constant 1 distributes idle shards evenly too. A shard without a measurement counts as an average one.
    """
    known = [lease.throughput_kbps for lease in work if lease.throughput_kbps is not None]
    if not by_throughput or not any(known):
        return dict.fromkeys((lease.key for lease in work), 1.0)
    mean = sum(known) / len(known)
    return {lease.key: 1 + (mean if lease.throughput_kbps is None else lease.throughput_kbps) / mean for lease in work}


def _ranks(
    worker: str, leases: Sequence[Lease], held: Mapping[str, object], neglected: Collection[str]
) -> Callable[[Lease], tuple[bool, bool, bool]]:
    """Return the sort key for free leases: a lease of a lower rank is taken first."""
    owners = {lease.key: lease.owner for lease in leases if lease.is_finished}

    def rank(lease: Lease) -> tuple[bool, bool, bool]:
        readers = {owners.get(parent) for parent in lease.parents}
        return lease.key not in neglected, worker not in readers, not readers.isdisjoint(held)

    return rank


# --- stealing ---------------------------------------------------------------------------------------------------

_Stealable = dict[str, list[tuple[float, int, str, Lease]]]
"""The leases that may be stolen, by owner. All workers sort them alike: by weight, hash, key."""


@dataclass(frozen=True, slots=True)
class _Shares:
    """The current shares of all workers.

    `held`: leases by owner.
    `loads`: total weight by owner.
    `weights`: weight by lease key.
    `limit`: the most leases that a worker owns.
    `slack`: a lease moves only if the load difference exceeds its weight by more than this.
    """

    held: Mapping[str, Sequence[Lease]]
    loads: Mapping[str, float]
    weights: Mapping[str, float]
    limit: int
    slack: float


def _steal(worker: str, shares: _Shares, eligible: Callable[[Lease], bool]) -> tuple[Lease, ...]:
    """Return the leases to steal from other workers, to balance all loads.

    The worker simulates all moves that would balance the workers, in an order that is the same for every worker, and
    makes the moves to itself. So workers that read the same table do not steal the same leases.

    - A worker that owns no lease steals only one. This makes it visible to the others, so that all workers know their
      number before one of them steals many.
    - Another worker may not make the moves that were simulated for it. So a worker without a move to itself steals one
      lease if another worker has clearly more.
    """
    if max(shares.loads.values()) - shares.loads[worker] <= min(shares.weights.values(), default=0.0):
        return ()  # the usual case: the loads are balanced
    stealable: _Stealable = {
        owner: sorted(
            (shares.weights[lease.key], crc32(lease.key.encode()), lease.key, lease)
            for lease in owned
            if lease.checkpoint_owner is None and eligible(lease)
        )
        for owner, owned in shares.held.items()
        if owner != worker
    }
    mine: list[Lease] = []
    if shares.loads[worker] < sum(shares.loads.values()) / len(shares.loads):
        mine = [lease for receiver, lease in _moves(shares, stealable, set(shares.loads)) if receiver == worker]
    if mine and shares.held[worker]:
        return tuple(mine)
    candidates = mine or [lease for _, lease in _moves(shares, stealable, {worker})]
    # The hash makes different workers choose different leases.
    return tuple(sorted(candidates, key=lambda lease: _hash(worker, lease.key))[:1])


def _moves(shares: _Shares, stealable: _Stealable, receivers: set[str]) -> Iterator[tuple[str, Lease]]:
    """Simulate moves from the busiest to the idlest worker, while each one reduces the difference of the two.

    Each move reduces the sum of the squared loads. So no move undoes an earlier one, and the moves converge. A lease
    that weighs about half the difference moves first.

    No worker both gives and receives: it may not take a simulated lease, and could then not give it. For a worker that
    has given stays among the receivers with the load that it had, which no other exceeds any more, and one that has
    received stays among the givers with the load that it had, below which none is.
    """
    remaining = {owner: list(leases) for owner, leases in stealable.items()}
    counts = {owner: len(owned) for owner, owned in shares.held.items()}
    busiest = [(-shares.loads[owner], owner) for owner in remaining]
    idlest = [(shares.loads[owner], owner) for owner in receivers if counts[owner] < shares.limit]
    heapify(busiest)
    heapify(idlest)
    while busiest and idlest:
        (negative_load, donor), (load, receiver) = busiest[0], idlest[0]
        if counts[receiver] >= shares.limit:
            heappop(idlest)
            continue
        gap = -negative_load - load
        index = max(0, bisect_right(remaining[donor], gap / 2, key=itemgetter(0)) - 1)
        if not remaining[donor] or gap - remaining[donor][index][0] <= shares.slack:
            heappop(busiest)
            continue
        weight, *_, lease = remaining[donor].pop(index)
        yield receiver, lease
        heapreplace(busiest, (negative_load + weight, donor))
        heapreplace(idlest, (load + weight, receiver))
        counts[receiver] += 1


def _hash(worker: str, name: str) -> int:
    """Return a sort key for names that differs per worker, so that workers seldom choose the same lease."""
    return crc32(f"{worker} {name}".encode())
