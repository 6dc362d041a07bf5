"""Who takes which lease: fair shares without a leader, each worker deciding for itself (rule R10).

`assign` decides from the table what this worker takes now. `default_scan_interval` says how often it reads the table.
The decision is only a wish: every take is conditional in the store, so that of two workers with the same wish one wins.
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
"""Where throughput is the measure, loads that differ by less than this part of a share are left as they are: it is
measured anew all the time."""
LOOKS: Final = 100
"""In one fail-over time all workers together look at the table about so often: ten times a second by default. However
many leases and workers there are, the looks then cost about a fifth of what the renewals cost (DynamoDB's prices)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: `take` leases that nobody keeps, or `steal` some that other workers do."""

    take: tuple[Lease, ...] = ()
    steal: tuple[Lease, ...] = ()


def default_scan_interval(failover_time: float, workers: int) -> float:
    """Return the seconds between two looks at the table: about so long does a released lease wait.

    A twentieth of the fail-over time for up to five workers; the more there are, the less often each of them has to
    look, up to half the fail-over time.
    """
    return failover_time * min(max(0.05, workers / LOOKS), 0.5)


def assign(
    leases: Sequence[Lease],
    worker: str,
    *,
    expired: Collection[str] = (),
    former: Collection[str] = (),
    neglected: Collection[str] = (),
    eligible: Callable[[Lease], bool] = lambda _lease: True,
    max_leases: int | None = None,
    by_throughput: bool = False,
) -> Plan:
    """Return what `worker` shall take of `leases`, all leases of the table.

    `expired`: keys of leases whose holder gave no sign of life. `former`: keys of leases that show `worker` as their
    holder from an earlier life. `neglected`: keys of leases free for so long that it must be somebody's.
    `eligible`: whether a lease may be taken now at all. `max_leases`: no worker shall own more. `by_throughput`: a
    lease weighs what its shard brings, see `_weights`; otherwise all weigh the same. Finished leases are no work and
    are never taken. A lease that is being handed over counts as its next owner's.

    - Former leases are taken back at once: they count as the worker's already.
    - The fair share is work / workers; workers are the owners of leases, and this one. Free and expired leases are
      taken until that is reached, and neglected ones beyond it. The children of a shard that this worker read come
      first and those of a shard that another one reads last: he has the first chance to go on with their keys.
    - With nothing free, leases are stolen from the busiest, see `_steal`.
    """
    work = [lease for lease in leases if not lease.is_finished]
    back = [lease for lease in work if lease.key in former]
    free: list[Lease] = []
    held: dict[str, list[Lease]] = {worker: []}
    for lease in work:
        if lease.owner is not None and (lease.key not in expired or lease.key in former):
            held.setdefault(worker if lease.key in former else lease.owner, []).append(lease)
        elif eligible(lease):
            free.append(lease)
    weights = _weights(work, by_throughput=by_throughput)
    loads = {owner: sum(weights[lease.key] for lease in theirs) for owner, theirs in held.items()}
    limit = len(work) if max_leases is None else max_leases
    if not back and not free:
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
    return Plan(take=(*back, *take))


def _weights(work: Sequence[Lease], *, by_throughput: bool) -> dict[str, float]:
    """Return what each lease weighs: 1, or its throughput in parts of the mean, and 1 for being a shard at all.

    So idle shards are shared out too, and one that nobody has measured counts as an average one.
    """
    known = [lease.throughput_kbps for lease in work if lease.throughput_kbps is not None]
    mean = sum(known) / len(known) if known else 0.0
    if not by_throughput or mean <= 0:
        return dict.fromkeys((lease.key for lease in work), 1.0)
    return {lease.key: 1 + (mean if lease.throughput_kbps is None else lease.throughput_kbps) / mean for lease in work}


def _ranks(
    worker: str, leases: Sequence[Lease], held: Mapping[str, object], neglected: Collection[str]
) -> Callable[[Lease], int]:
    """Return which free leases are taken before others."""
    owners = {lease.key: lease.owner for lease in leases if lease.is_finished}

    def rank(lease: Lease) -> int:
        readers = {owners.get(parent) for parent in lease.parents}
        if lease.key in neglected:
            return 0
        if worker in readers:
            return 1
        return 3 if readers & held.keys() else 2

    return rank


# --- stealing ---------------------------------------------------------------------------------------------------

_Stock = dict[str, list[tuple[float, int, str, Lease]]]
"""By owner the leases that may be stolen, in an order that is the same for everyone: weight, hash, key."""


@dataclass(frozen=True, slots=True)
class _Shares:
    """What each worker owns, how much that weighs, how many leases he may own, and what difference does not matter."""

    held: Mapping[str, Sequence[Lease]]
    loads: Mapping[str, float]
    weights: Mapping[str, float]
    limit: int
    slack: float


def _steal(worker: str, shares: _Shares, eligible: Callable[[Lease], bool]) -> tuple[Lease, ...]:
    """Return what to take from others so that all loads come together.

    All moves that would balance the workers are made in thought, in an order that is the same for everyone; this worker
    makes those that go to itself. So workers who look at the same table do not wish for the same leases.

    - A worker that owns nothing takes one only: by that the others see it, and so all know how many they are before
      anybody takes many.
    - It may be that another worker does not take what it is thought to take. So with nothing for this one although
      somebody has clearly more, it takes one from him.
    """
    if max(shares.loads.values()) - shares.loads[worker] <= min(shares.weights.values(), default=0.0):
        return ()  # as it is nearly always
    stock: _Stock = {
        owner: sorted(
            (shares.weights[lease.key], crc32(lease.key.encode()), lease.key, lease)
            for lease in theirs
            if lease.checkpoint_owner is None and eligible(lease)
        )
        for owner, theirs in shares.held.items()
        if owner != worker
    }
    mine: list[Lease] = []
    if shares.loads[worker] < sum(shares.loads.values()) / len(shares.loads):
        mine = [lease for receiver, lease in _moves(shares, stock, set(shares.loads)) if receiver == worker]
    if mine and shares.held[worker]:
        return tuple(mine)
    some = mine or [lease for _, lease in _moves(shares, stock, {worker})]
    return tuple(sorted(some, key=lambda lease: _hash(worker, lease.key))[:1])  # each of us another, if possible


def _moves(shares: _Shares, stock: _Stock, receivers: set[str]) -> Iterator[tuple[str, Lease]]:
    """Make moves from the busiest to the idlest in thought, while that brings the two closer to each other.

    So the sum of the squares of the loads falls with each move, and none is undone by the next: the workers come to
    rest. A lease of about half the difference goes first.
    """
    rest = {owner: list(theirs) for owner, theirs in stock.items()}
    counts = {owner: len(theirs) for owner, theirs in shares.held.items()}
    busiest = [(-shares.loads[owner], owner) for owner in rest]
    idlest = [(shares.loads[owner], owner) for owner in receivers if counts[owner] < shares.limit]
    heapify(busiest)
    heapify(idlest)
    gave: set[str] = set()
    got: set[str] = set()
    while busiest and idlest:
        (minus, donor), (load, receiver) = busiest[0], idlest[0]
        # Nobody gives and gets: what one gets in thought he may not take in fact, and then he has nothing to give.
        if receiver in gave or counts[receiver] >= shares.limit:
            heappop(idlest)
            continue
        gap = -minus - load
        index = max(0, bisect_right(rest[donor], gap / 2, key=itemgetter(0)) - 1)
        if donor in got or not rest[donor] or gap - rest[donor][index][0] <= shares.slack:
            heappop(busiest)
            continue
        weight, *_, lease = rest[donor].pop(index)
        yield receiver, lease
        heapreplace(busiest, (minus + weight, donor))
        heapreplace(idlest, (load + weight, receiver))
        counts[receiver] += 1
        gave.add(donor)
        got.add(receiver)


def _hash(worker: str, name: str) -> int:
    """Return a number that orders names in the worker's own way, so that workers seldom wish for the same."""
    return crc32(f"{worker} {name}".encode())
