"""Checks of an assignment strategy by properties: `check_assignment`, for the tests of an application.

Hypothesis makes lease tables, workers and the order in which they decide, from the same table or from newer ones. What
fails is shrunk to a small table. The fake is not needed, and no time passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from efo.checks import check_callable, check_count, check_type
from efo.errors import ConfigurationError, MissingExtraError
from efo.leases.transitions import released, taken
from efo.model import MAX_HASH_KEY, Checkpoint, HashKeyRange, Lease
from efo.protocol.assignment.assign import assign
from efo.protocol.assignment.view import Assignment, AssignmentPlan

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

WORKERS: Final = ("worker-0", "worker-1", "worker-2", "worker-3", "worker-4")
MAX_LEASES: Final = 12


def check_assignment(
    strategy: Assignment, *, workers: Sequence[str] = WORKERS, takes_all: bool = True, examples: int = 100
) -> None:
    """Check what must hold for a strategy with which all workers decide. Raises AssertionError, with a small example.

    - It takes only leases of `view.free` and steals only those of `view.stealable`, each once.
    - It is a pure function: the same view gives the same plan, and is not changed.
    - Its moves stop: after any table and any order of decisions, from old tables or new ones; and again after a worker
      has gone and after it has come back.
    - It does not move leases to and fro: while each worker decides from the table as it is, no move leads back to
      owners that the leases had before.
    - Then each lease has a worker, unless `takes_all` is false.

    `workers`: the ids of workers, as your strategy expects them. `examples`: how many tables are tried. Raises
    MissingExtraError without Hypothesis, and ConfigurationError.
    """
    try:
        import hypothesis  # noqa: PLC0415 - only for this
        from hypothesis import strategies as st  # noqa: PLC0415 - the same
    except ImportError as error:
        raise MissingExtraError("check_assignment needs Hypothesis: pip install 'efo[testing]'") from error
    check_callable("strategy", strategy, "an assignment strategy", "view")
    check_type("workers", workers, Sequence, "a list of worker ids")
    check_count("examples", examples)

    phases = (hypothesis.Phase.generate, hypothesis.Phase.shrink)

    @hypothesis.settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, report_multiple_bugs=False, phases=phases
    )
    @hypothesis.given(
        rows=_tables(workers),
        alive=st.lists(st.sampled_from(workers), min_size=1, unique=True),
        is_stale=st.booleans(),
        by_throughput=st.booleans(),
        seed=st.integers(min_value=0, max_value=2**32),
    )
    def check(rows: list[Lease], alive: list[str], *, is_stale: bool, by_throughput: bool, seed: int) -> None:
        world = _World(strategy, {row.key: row for row in rows}, alive, is_stale, by_throughput, Random(seed))
        world.settle("it starts")
        if len(alive) > 1:
            world.leave(alive[0])
            world.settle(f"{alive[0]} has gone")
            world.alive.append(alive[0])
            world.settle(f"{alive[0]} has come back")
        if takes_all:
            world.check_that_all_are_owned()

    check()


@dataclass
class _World:
    """Workers that decide with one strategy. `is_stale`: in each round, all of them decide from the same table.

    `alive`: the workers that are there. The leases of others have expired.
    """

    strategy: Assignment
    rows: dict[str, Lease]
    alive: list[str]
    is_stale: bool
    by_throughput: bool
    random: Random
    seen: set[tuple[str | None, ...]] = field(default_factory=set)
    """The owners of all leases after each move, since the workers changed."""

    def settle(self, situation: str) -> None:
        """Let the workers decide until none of them moves a lease."""
        self.seen = {self._state()}
        for _ in range(2 * (len(self.rows) + len(self.alive)) + 4):
            table = list(self.rows.values())
            moves = 0
            for worker in self.random.sample(self.alive, len(self.alive)):
                moves += self._decide(worker, table if self.is_stale else list(self.rows.values()))
            if not moves:
                return
        raise AssertionError(f"the moves never stop: after {situation}, workers still take leases: {self._owners()}")

    def leave(self, worker: str) -> None:
        """Let a worker release its leases and stop."""
        self.alive = [other for other in self.alive if other != worker]
        for key, row in self.rows.items():
            if row.owner == worker and not row.is_finished:
                self.rows[key] = released(row)

    def check_that_all_are_owned(self) -> None:
        """Check that each lease has a worker that is there."""
        left = [row.key for row in self.rows.values() if not row.is_finished and row.owner not in self.alive]
        if left:
            raise AssertionError(f"no worker takes {', '.join(left)}, although all have decided: {self._owners()}")

    def _decide(self, worker: str, table: list[Lease]) -> int:
        plan = self._plan(worker, table)
        moves = 0
        for lease in (*plan.take, *plan.steal):
            row = self.rows[lease.key]
            if row.counter != lease.counter:
                continue  # another worker was first: the store refuses the take
            self.rows[lease.key] = taken(row, worker)
            moves += 1
            state = self._state()
            if not self.is_stale and state in self.seen:
                raise AssertionError(f"leases move to and fro: {worker} takes {row.key}, as it was: {self._owners()}")
            self.seen.add(state)
        return moves

    def _plan(self, worker: str, table: list[Lease]) -> AssignmentPlan:
        decide = partial(
            assign,
            worker=worker,
            expired={row.key for row in table if row.owner not in self.alive},
            by_throughput=self.by_throughput,
            strategy=self.strategy,
        )
        try:
            plan, again = decide(table), decide([*table])
        except ConfigurationError as error:
            raise AssertionError(str(error)) from error
        if plan != again:
            raise AssertionError(f"the same view gives different plans for {worker}: {plan} and {again}")
        return plan

    def _state(self) -> tuple[str | None, ...]:
        return tuple(row.owner for row in self.rows.values())

    def _owners(self) -> str:
        return ", ".join(f"{row.key}: {row.owner}" for row in self.rows.values() if not row.is_finished)


def _tables(workers: Sequence[str]) -> SearchStrategy[list[Lease]]:
    """Return tables: each shard has a range of hash keys; some are finished, free, or children of others."""
    from hypothesis import strategies as st  # noqa: PLC0415 - only for this

    row = st.tuples(
        st.sampled_from([None, *workers]),
        st.sampled_from([None, 0.0, 1.0, 10.0, 100.0]),
        st.booleans(),
    )
    return st.lists(row, max_size=MAX_LEASES).map(_leases)


def _leases(rows: list[tuple[str | None, float | None, bool]]) -> list[Lease]:
    leases: list[Lease] = []
    width = (MAX_HASH_KEY + 1) // max(1, len(rows))
    for number, (owner, throughput, is_child) in enumerate(rows):
        lease = Lease(
            f"shardId-{number:012}",
            Checkpoint.LATEST,
            owner=owner,
            hash_key_range=HashKeyRange(str(number * width), str((number + 1) * width - 1)),
            throughput_kbps=throughput,
        )
        if is_child and leases:
            leases[-1] = replace(leases[-1], checkpoint=Checkpoint.SHARD_END)
            lease = replace(lease, parents=(leases[-1].key,))
        leases.append(lease)
    return leases
