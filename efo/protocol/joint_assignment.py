"""Joint assignment: balances the leases of several tables between workers as if they were one table.

A consumer of many streams has a lease table for each. A fair share of each table would not be a fair share of all: of a
hundred streams with one shard each, the worker that is first would keep every lease. So each table plans for all of
them, and makes the moves that are its own. Every table makes the same plan from what all of them last read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from efo.model import Lease
from efo.protocol.assignment.assign import assign
from efo.protocol.assignment.view import AssignmentPlan

_SEPARATOR: Final = "/"
"""Neither the name of a stream nor the id of a shard contains it."""


class JointAssignment:
    """The leases of all tables, as each was last read. The tables must have the same worker ids."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._version = 0

    def table(self, name: str) -> TableAssignment:
        """Return the assignment of one table. `name`: of its stream."""
        return TableAssignment(name, self)

    def leave(self, name: str) -> None:
        """Forget a table that is not read any more: its leases no longer count."""
        if self._tables.pop(name, None) is not None:
            self._version += 1

    def version(self) -> int:
        """Return a number that changes when a table gains or loses a lease, or one changes its owner or expires."""
        return self._version

    def observe(self, name: str, found: _Table) -> None:
        """Replace what is known of one table."""
        known = self._tables.get(name)
        if known is None or known.ownership() != found.ownership():
            self._version += 1
        self._tables[name] = found

    def take(self, name: str, keys: Collection[str], worker: str) -> None:
        """Count leases of a table as the worker's, which takes them now. The next observation corrects it."""
        table = self._tables[name]
        leases = tuple(replace(lease, owner=worker) if lease.key in keys else lease for lease in table.leases)
        self._tables[name] = replace(table, leases=leases, expired=table.expired.difference(keys))
        self._version += bool(keys)

    def plan(self, worker: str, **options: Any) -> AssignmentPlan:
        """Return what the worker takes and steals now, of all tables. The keys are qualified by their table."""
        tables = self._tables
        return assign(
            [lease for table in tables.values() for lease in table.leases],
            worker,
            expired={key for table in tables.values() for key in table.expired},
            previously_held={key for table in tables.values() for key in table.previously_held},
            neglected={key for table in tables.values() for key in table.neglected},
            eligible=lambda lease: tables[lease.key.partition(_SEPARATOR)[0]].is_eligible(lease),
            **options,
        )


class TableAssignment:
    """The part of a joint assignment that is one table's: it is used in place of `assign`."""

    def __init__(self, name: str, joint: JointAssignment) -> None:
        self._name = name
        self._joint = joint
        self._planned_at = -1
        self._known: dict[str, tuple[Lease, Lease]] = {}

    @property
    def is_outdated(self) -> bool:
        """Whether another table has changed since the last plan, so that there may be more to do."""
        return self._planned_at != self._joint.version()

    def leave(self) -> None:
        """Forget this table."""
        self._joint.leave(self._name)

    def assign(
        self,
        leases: Sequence[Lease],
        worker: str,
        *,
        expired: Collection[str] = (),
        previously_held: Collection[str] = (),
        neglected: Collection[str] = (),
        eligible: Callable[[Lease], bool] = lambda _lease: True,
        max_leases_per_scan: int | None = None,
        **options: Any,
    ) -> AssignmentPlan:
        """Return what the worker takes and steals of this table. The arguments are those of `assign`.

        `max_leases_per_scan`: of this table's scan, so that a table that is not read now takes nothing from the others.
        `options`: the others, such as `max_leases`, are those of all tables together.
        """
        self._known = {lease.key: self._qualified(lease) for lease in leases}
        originals = {qualified.key: lease for lease, qualified in self._known.values()}
        self._joint.observe(
            self._name,
            _Table(
                tuple(qualified for _, qualified in self._known.values()),
                frozenset(map(self._key, expired)),
                frozenset(map(self._key, previously_held)),
                frozenset(map(self._key, neglected)),
                lambda lease: eligible(originals[lease.key]),
            ),
        )
        plan = self._joint.plan(worker, **options)
        own = [lease for lease in plan.take if lease.key in originals]
        former = [lease for lease in own if originals[lease.key].key in previously_held]
        free = [lease for lease in own if lease not in former][:max_leases_per_scan]
        taken = {lease.key: originals[lease.key] for lease in (*former, *free)}
        self._joint.take(self._name, taken.keys(), worker)
        self._planned_at = self._joint.version()
        return AssignmentPlan(
            take=tuple(taken.values()),
            steal=tuple(originals[lease.key] for lease in plan.steal if lease.key in originals)[:max_leases_per_scan],
        )

    def observe(self, leases: Sequence[Lease], expired: Collection[str]) -> None:
        """Take note of the leases of this table, which takes no more, as while its stream is drained.

        Those that are still held count, and no plan takes or steals any of them.
        """
        self._known = {lease.key: self._qualified(lease) for lease in leases}
        self._joint.observe(
            self._name,
            _Table(
                tuple(qualified for _, qualified in self._known.values()),
                frozenset(map(self._key, expired)),
                frozenset(),
                frozenset(),
                lambda _lease: False,
            ),
        )
        self._planned_at = self._joint.version()

    def _key(self, key: str) -> str:
        return f"{self._name}{_SEPARATOR}{key}"

    def _qualified(self, lease: Lease) -> tuple[Lease, Lease]:
        """Return the lease, and the same with qualified keys. A store returns the same Lease while it is unchanged."""
        known = self._known.get(lease.key)
        if known is not None and known[0] is lease:
            return known
        return lease, replace(lease, key=self._key(lease.key), parents=tuple(map(self._key, lease.parents)))


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as it was last read. All keys are qualified."""

    leases: tuple[Lease, ...]
    expired: frozenset[str]
    previously_held: frozenset[str]
    neglected: frozenset[str]
    is_eligible: Callable[[Lease], bool] = field(compare=False)

    def ownership(self) -> tuple[object, ...]:
        """Return what other tables plan by: the owners of the leases, and which have expired."""
        owners = [(lease.key, lease.owner, lease.checkpoint_owner, lease.is_finished) for lease in self.leases]
        return sorted(owners, key=lambda owner: owner[0]), self.expired, self.neglected
