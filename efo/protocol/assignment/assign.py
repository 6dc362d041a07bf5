"""One lease scan's decision: what a worker takes, by its strategy and within its limits (rule R10).

`assign` decides from the lease table what this worker takes now. `default_scan_interval` is how often it reads the
table. The store makes every take conditional: if two workers decide to take the same lease, one of them succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from efo.model import Lease
from efo.protocol.assignment.balance import balanced_assignment
from efo.protocol.assignment.view import Assignment, AssignmentPlan, AssignmentView, check_plan

SCANS_PER_FAILOVER_TIME: Final = 100
"""Approximate number of lease scans by all workers together in one fail-over time: by default ten per second. The scans
then cost about a fifth of the renewals, for any number of leases and workers (DynamoDB's prices)."""


def default_scan_interval(failover_seconds: float, workers: int) -> float:
    """Return the lease scan interval in seconds. A released lease waits about this long for its next owner.

    It is a twentieth of the fail-over time for up to five workers. It grows with the number of workers, up to half
    the fail-over time.
    """
    return failover_seconds * min(max(0.05, workers / SCANS_PER_FAILOVER_TIME), 0.5)


def assign(
    leases: Sequence[Lease],
    worker: str,
    *,
    expired: Collection[str] = (),
    previously_held: Collection[str] = (),
    neglected: Collection[str] = (),
    eligible: Callable[[Lease], bool] = lambda _lease: True,
    max_leases: int | None = None,
    max_leases_per_scan: int | None = None,
    by_throughput: bool = False,
    strategy: Assignment = balanced_assignment,
) -> AssignmentPlan:
    """Return the leases that `worker` takes or steals now.

    `leases`: all leases of the table.
    `expired`: keys of leases whose holder did not renew them in time.
    `previously_held`: keys of leases whose row names `worker` as the holder, from before a restart.
    `neglected`: keys of leases that no worker has kept or taken for a long time.
    `eligible`: whether a lease may be taken now.
    `max_leases`: the most leases that a worker owns. `max_leases_per_scan`: the most that it takes or steals now.
    `by_throughput`: see `AssignmentView`. `strategy`: what decides; see `Assignment`.

    - The worker takes its former leases back at once, whatever the strategy and the limits say: they already count as
      its own.
    - Of what the strategy takes, neglected leases come first.
    - Nothing is stolen while there is something to take.

    Raises ConfigurationError if the strategy returns what it must not.
    """
    former = [lease for lease in leases if not lease.is_finished and lease.key in previously_held]
    held: dict[str, list[Lease]] = {worker: []}
    free: list[Lease] = []
    for lease in leases:
        if lease.is_finished:
            continue
        if lease.owner is not None and (lease.key not in expired or lease.key in previously_held):
            held.setdefault(worker if lease.key in previously_held else lease.owner, []).append(lease)
        elif eligible(lease):
            free.append(lease)
    view = AssignmentView(
        worker=worker,
        leases=leases,
        held=held,
        free=free,
        neglected=frozenset(neglected),
        may_take=eligible,
        max_leases=max_leases,
        by_throughput=by_throughput,
    )
    plan = check_plan(strategy(view), view)
    limits = [
        limit for limit in (max_leases_per_scan, max_leases and max_leases - len(held[worker])) if limit is not None
    ]
    room = max(0, min(limits, default=len(leases)))
    take = sorted(plan.take, key=lambda lease: lease.key not in neglected)[:room]
    if former or take:
        return AssignmentPlan(take=(*former, *take))
    return AssignmentPlan(steal=plan.steal[:room])
