"""What an assignment strategy sees, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from efo.checks import shown
from efo.errors import ConfigurationError
from efo.model import Lease


@dataclass(frozen=True, slots=True)
class AssignmentPlan:
    """What to do now: `take` leases that no worker keeps, or else `steal` leases from others; the first ones first."""

    take: tuple[Lease, ...] = ()
    steal: tuple[Lease, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentView:
    """The lease table, as one worker sees it in a lease scan. All leases are rows of `leases`.

    `worker`: the id of this worker.
    `leases`: all leases of the table, finished ones too.
    `held`: the unfinished leases that a worker keeps, by worker; this worker is always among them. A lease in a
    graceful hand-off counts as its next owner's.
    `free`: the leases that this worker may take: no worker keeps them.
    `neglected`: the keys of leases that no worker has kept or taken for a long time.
    `may_take`: whether this worker may take a lease now: it reads the shard, whose parents are finished.
    `max_leases`: the most leases that a worker owns; None: no limit.
    `by_throughput`: balance the throughput of shards, not their number: `ConsumerSettings.balance`.
    """

    worker: str
    leases: Sequence[Lease]
    held: Mapping[str, Sequence[Lease]]
    free: Sequence[Lease]
    neglected: frozenset[str] = frozenset()
    may_take: Callable[[Lease], bool] = lambda _lease: True
    max_leases: int | None = None
    by_throughput: bool = False

    @property
    def stealable(self) -> list[Lease]:
        """The leases of other workers that this worker may steal: those that are not in a graceful hand-off already."""
        return [
            lease for owner, leases in self.held.items() if owner != self.worker for lease in self.stealable_of(leases)
        ]

    def stealable_of(self, leases: Sequence[Lease]) -> list[Lease]:
        """Return those of these leases that this worker may steal."""
        return [lease for lease in leases if lease.checkpoint_owner is None and self.may_take(lease)]


class Assignment(Protocol):
    """Decides which leases a worker takes: a pure function, with which all workers of an application decide.

    It takes leases of `view.free`, or steals leases of `view.stealable`. What it steals must end: if all workers follow
    it, and no worker comes or goes, the moves stop. `efo.testing.check_assignment` checks this.
    """

    def __call__(self, view: AssignmentView, /) -> AssignmentPlan:
        """Return what the worker takes or steals now."""
        ...


def check_plan(plan: object, view: AssignmentView) -> AssignmentPlan:
    """Check what a strategy returned. Raises ConfigurationError."""
    if not isinstance(plan, AssignmentPlan):
        raise ConfigurationError(f"assignment returned {shown(plan)}: expected an AssignmentPlan")
    free = {lease.key for lease in view.free}
    _check_each(plan.take, "take", free, "it is not in view.free")
    if plan.steal:
        stealable = {lease.key for lease in view.stealable}
        _check_each(plan.steal, "steal", stealable, "it is not in view.stealable")
    return plan


def _check_each(leases: object, name: str, allowed: set[str], reason: str) -> None:
    if not isinstance(leases, tuple) or not all(isinstance(lease, Lease) for lease in leases):
        raise ConfigurationError(f"assignment returned {name}={shown(leases)}: expected a tuple of leases")
    seen: set[str] = set()
    for lease in leases:
        if lease.key not in allowed or lease.key in seen:
            why = "it is there twice" if lease.key in seen else reason
            raise ConfigurationError(f"assignment returned {lease.key} to {name}, but {why}")
        seen.add(lease.key)
