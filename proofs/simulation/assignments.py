"""The assignment strategies of worlds: efo's, and one that decides at random, as far as a strategy may."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from efo.protocol.assignment.balance import balanced_assignment, weighted_assignment
from efo.protocol.assignment.placement import zone_assignment
from efo.protocol.assignment.view import Assignment, AssignmentPlan, AssignmentView

AssignmentKind = Literal["balanced", "weighted", "zones", "random"]


def strategy_of(kind: AssignmentKind, seed: int) -> Assignment:
    """Return the strategy of all workers of a world. Their ids are w0, w1 and so on, perhaps with a suffix."""
    match kind:
        case "balanced":
            return balanced_assignment
        case "weighted":
            return weighted_assignment({"w0": 3.0, "w1": 0.5})
        case "zones":
            return zone_assignment(["even", "odd"], zone_of_worker=_zone_of)
        case "random":
            return RandomAssignment(seed)


@dataclass(frozen=True)
class RandomAssignment:
    """Takes any free leases, at least one, and steals any one from a worker that has two more.

    It is valid: the same view gives the same plan, each free lease is taken in the end, and each move makes the numbers
    of leases more even, so that the moves stop.
    """

    seed: int

    def __call__(self, view: AssignmentView, /) -> AssignmentPlan:
        """Return what the worker takes or steals now."""
        random = Random(f"{self.seed} {view.worker} {[(lease.key, lease.owner) for lease in view.leases]}")
        free = list(view.free)
        if free:
            return AssignmentPlan(take=tuple(random.sample(free, random.randint(1, len(free)))))
        own = len(view.held[view.worker])
        donors = [owner for owner, leases in view.held.items() if len(leases) - own >= 2]
        leases = [lease for owner in donors for lease in view.stealable_of(view.held[owner])]
        return AssignmentPlan(steal=(random.choice(leases),) if leases else ())


def _zone_of(worker: str) -> str:
    return ("even", "odd")[int(worker[1]) % 2]
