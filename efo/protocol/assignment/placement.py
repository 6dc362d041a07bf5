"""Strategies that prefer a worker for a shard: those of its zone, or one that is named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from efo.checks import check_callable, check_text, shown
from efo.errors import ConfigurationError
from efo.model import MAX_HASH_KEY, Lease
from efo.protocol.assignment.balance import balanced_assignment, longest_prefix
from efo.protocol.assignment.view import Assignment, AssignmentPlan, AssignmentView


def zone_assignment(
    zones: Sequence[str],
    *,
    zone_of_worker: Callable[[str], str | None] | None = None,
    zone_of_shard: Callable[[Lease], str] | None = None,
    within: Assignment = balanced_assignment,
) -> Assignment:
    """Return a strategy in which workers read the shards of their own zone, such as their availability zone.

    `zones`: all zones, in the same order for all workers. `zone_of_worker`: the zone of the worker with this id; by
    default the longest zone with which the id begins, as in "eu-west-1a-worker-3". `zone_of_shard`: the zone of a
    lease's shard; by default the hash keys are divided evenly among the zones, so that a key stays in its zone when
    shards split and merge. `within`: how the workers of a zone share its shards.

    While no worker of a zone owns a lease, the next zone that has one reads its shards too. Leases that no worker takes
    for a long time are taken by any zone. Raises ConfigurationError, at the first lease scan also if this worker is in
    none of the zones.
    """
    order = _checked_zones(zones)
    if zone_of_worker is not None:
        check_callable("zone_of_worker", zone_of_worker, "a function from a worker's id to its zone", "worker")
    if zone_of_shard is not None:
        check_callable("zone_of_shard", zone_of_shard, "a function from a lease to its shard's zone", "lease")
    check_callable("within", within, "an assignment strategy", "view")
    return _Zoned(order, zone_of_worker, zone_of_shard, within)


@dataclass(frozen=True)
class _Zoned:
    zones: tuple[str, ...]
    zone_of_worker: Callable[[str], str | None] | None
    zone_of_shard: Callable[[Lease], str] | None
    within: Assignment

    def __call__(self, view: AssignmentView, /) -> AssignmentPlan:
        own = self._worker_zone(view.worker)
        if own not in self.zones:
            raise ConfigurationError(
                f"the worker {view.worker!r} is in none of the zones {', '.join(self.zones)}: begin its id with one of"
                " them, or pass zone_of_worker"
            )
        zones = {worker: self._worker_zone(worker) for worker in view.held}
        alive = set(zones.values())
        mates = {worker for worker, zone in zones.items() if zone == own}
        return _among(view, self.within, mates, lambda lease: self._zone_in_charge(lease, alive) == own)

    def _worker_zone(self, worker: str) -> str | None:
        return longest_prefix(self.zones, worker) if self.zone_of_worker is None else self.zone_of_worker(worker)

    def _shard_zone(self, lease: Lease) -> str:
        if self.zone_of_shard is not None:
            return self.zone_of_shard(lease)
        keys, count = lease.hash_key_range, len(self.zones)
        if keys is None:  # in rows that other libraries wrote
            return self.zones[crc32(lease.key.encode()) % count]
        return self.zones[int(keys.starting_hash_key) * count // (MAX_HASH_KEY + 1)]

    def _zone_in_charge(self, lease: Lease, alive: set[str | None]) -> str:
        """Return the zone whose workers read a shard: its own, or the next one that has workers."""
        zone = self._shard_zone(lease)
        if zone not in self.zones:
            raise ConfigurationError(f"zone_of_shard returned {shown(zone)}: expected one of {', '.join(self.zones)}")
        first = self.zones.index(zone)
        return next(one for one in (*self.zones[first:], *self.zones[:first]) if one in alive)


def _checked_zones(zones: object) -> tuple[str, ...]:
    if isinstance(zones, str) or not isinstance(zones, Sequence) or not zones:
        raise ConfigurationError(f"zones={shown(zones)}: expected the names of zones, such as ['eu-west-1a', ...]")
    for zone in zones:
        check_text("zones", zone, "names of zones")
    if len(set(zones)) < len(zones):
        raise ConfigurationError(f"zones={shown(zones)}: a zone is there twice")
    return tuple(zones)


def manual_assignment(
    worker_of: Mapping[str, str] | Callable[[Lease], str | None], *, otherwise: Assignment = balanced_assignment
) -> Assignment:
    """Return a strategy in which a shard is read by the worker that is named for it, and by no other one.

    `worker_of`: the id of the worker by shard id, or a function of the shard's lease; without a worker for a shard, all
    share it. In a consumer of many streams, the ids and the keys of leases are "STREAM/SHARD". Children of shards are
    new shards with new ids: a mapping does not have them, a function may look at their hash keys. `otherwise`: how
    workers share the shards without one. A shard waits while its worker is not there. To read only some shards, and
    leave the others to anybody, see `ConsumerSettings.shards`. Raises ConfigurationError.
    """
    if isinstance(worker_of, Mapping):
        return ManualAssignment(lambda lease: worker_of.get(lease.key), otherwise, frozenset(worker_of))
    return ManualAssignment(worker_of, otherwise)


class ManualAssignment:
    """The strategy of `manual_assignment`. `find`: the worker of a lease. `named`: keys that are named one by one."""

    def __init__(
        self, find: Callable[[Lease], str | None], otherwise: Assignment, named: Collection[str] = frozenset()
    ) -> None:
        check_callable("worker_of", find, "a mapping from shard ids to worker ids, or a function of a lease", "lease")
        check_callable("otherwise", otherwise, "an assignment strategy", "view")
        self._find = find
        self._otherwise = otherwise
        self.named = named

    def __call__(self, view: AssignmentView, /) -> AssignmentPlan:
        """Return what this worker takes."""
        take = [lease for lease in view.free if self._find(lease) == view.worker]
        steal = [lease for lease in view.stealable if self._find(lease) == view.worker]
        rest = replace(
            view,
            free=[lease for lease in view.free if self._find(lease) is None],
            held=_only(view.held, view.held, lambda lease: self._find(lease) is None),
        )
        shared = self._otherwise(rest)
        return AssignmentPlan(take=(*take, *shared.take), steal=(*steal, *shared.steal))


def _among(
    view: AssignmentView, within: Assignment, mates: set[str], is_mine: Callable[[Lease], bool]
) -> AssignmentPlan:
    """Let some workers share some shards among themselves. They take those that others read as if these were free.

    A worker without a lease takes only one from others, so that it is seen before it takes more.
    """
    strays = [lease for owner, leases in view.held.items() if owner not in mates for lease in leases if is_mine(lease)]
    stray = {lease.key: lease for lease in view.stealable_of(strays)}
    part = replace(
        view,
        free=[*(lease for lease in view.free if is_mine(lease) or lease.key in view.neglected), *stray.values()],
        held=_only(view.held, mates, is_mine),
    )
    plan = within(part)
    take = tuple(lease for lease in plan.take if lease.key not in stray)
    steal = (*(lease for lease in plan.take if lease.key in stray), *plan.steal)
    return AssignmentPlan(take=take, steal=steal if view.held[view.worker] else steal[:1])


def _only(
    held: Mapping[str, Sequence[Lease]], workers: Iterable[str], wanted: Callable[[Lease], bool]
) -> dict[str, Sequence[Lease]]:
    return {worker: [lease for lease in held[worker] if wanted(lease)] for worker in workers}
