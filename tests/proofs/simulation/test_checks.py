"""The checks can fail: a story that is well, and each of its mutants, which must be found out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from efo.model import LATEST, SHARD_END, TRIM_HORIZON, Checkpoint
from proofs.simulation.checks import Checks, Promises
from proofs.simulation.story import (
    Acked,
    Broken,
    ChildrenSaved,
    Closed,
    Crashed,
    Created,
    Deleted,
    Exited,
    Handled,
    Held,
    Line,
    Lost,
    Opened,
    Put,
    Resharded,
    Saved,
    SetAside,
    Sought,
    StoreFailed,
)

P, L, R = "parent", "left", "right"


def handled(worker: str, shard: str, *numbers: int) -> list[Line]:
    marks = tuple((number, 0) for number in numbers)
    return [Handled(worker, shard, marks), Acked(worker, shard, marks)]


def opened(worker: str, shard: str, checkpoint: Checkpoint = TRIM_HORIZON, *, by_key: bool = False) -> list[Line]:
    return [Held(worker, worker, shard, worker), Opened(worker, worker, shard, checkpoint, by_key)]


def closed(worker: str, shard: str, error: str | None = None) -> list[Line]:
    return [Held(worker, worker, shard, None), Closed(worker, shard, is_finished=False, error=error)]


def at(number: int) -> Checkpoint:
    return Checkpoint(str(number))


PUTS: list[Line] = [Created(P, TRIM_HORIZON), *(Put(P, (n, 0), "k", n) for n in range(4))]

SPLIT: list[Line] = [
    *PUTS,
    *opened("a", P),
    *handled("a", P, 0, 1),
    Saved("a", P, at(1)),
    Resharded((P,), (L, R)),
    Put(L, (10, 0), "k", 4),
    *handled("a", P, 2),
    *handled("a", P, 3),
    Created(L, TRIM_HORIZON),
    Created(R, TRIM_HORIZON),
    ChildrenSaved(P, (L, R)),
    Saved("a", P, SHARD_END),
    Held("a", "a", P, None),
    Closed("a", P, is_finished=True),
    *opened("a", L),
    *handled("a", L, 10),
    Saved("a", L, at(10)),
    *closed("a", L),
    Exited("a"),
]
"""A worker reads four records, a split, and a record of a child."""


SERVED: list[Line] = [
    *SPLIT,
    Put(R, (11, 0), "other", 0),
    *opened("a", R),
    *handled("a", R, 11),
    Saved("a", R, at(11)),
    *closed("a", R),
]
"""Both children have begun."""


def judge(lines: list[Line], **promises: object) -> Checks:
    checks = Checks(Promises(**promises))
    for moment, line in enumerate(lines):
        checks.hear(float(moment), line)
    checks.conclude()
    return checks


def without(line: Line) -> list[Line]:
    assert line in SPLIT
    return [other for other in SPLIT if other != line]


def before(line: Line, other: Line) -> list[Line]:
    """Move `line` to just before `other`."""
    lines = without(line)
    lines.insert(lines.index(other), line)
    return lines


def test_a_story_without_fault_has_no_problem() -> None:
    checks = judge(SPLIT)
    assert checks.problems == []
    assert checks.is_complete
    assert (checks.records, checks.duplicates, checks.unexplained) == (5, 0, 0)


def test_a_lease_that_has_served_is_to_be_deleted() -> None:
    assert judge(SPLIT).uncleared() == []
    assert judge(SERVED).uncleared() == [P]
    cleared = judge([*SERVED, Deleted("a", P)])
    assert (cleared.uncleared(), cleared.problems) == ([], [])
    assert cleared.generations == 2


MUTANTS: dict[str, tuple[list[Line], str]] = {
    "a record is lost": (
        [line for line in SPLIT if line not in handled("a", L, 10)],
        "ahead of an ack: ('k', 4) is not acked",
    ),
    "a record is lost in the middle": (
        [line for line in SPLIT if line not in handled("a", P, 2)],
        "handles ('k', 3) of parent where ('k', 2) comes next",
    ),
    "two records are swapped": (
        before(Handled("a", P, ((3, 0),)), Handled("a", P, ((2, 0),))),
        "takes effect before its record 2",
    ),
    "a record is handled that nobody put": (
        [*SPLIT[:-3], *handled("a", L, 11)[:1], *SPLIT[-3:]],
        "that was not put there",
    ),
    "a checkpoint is ahead of its ack": (
        before(Saved("a", P, at(1)), Acked("a", P, ((0, 0), (1, 0)))),
        "ahead of an ack: ('k', 0)",
    ),
    "a child begins before its parent is finished": (
        before(Opened("a", "a", L, TRIM_HORIZON), Saved("a", P, SHARD_END)),
        "the child left is begun before its parent parent is finished",
    ),
    "the end is ahead of an ack": (
        before(Saved("a", P, SHARD_END), Acked("a", P, ((3, 0),))),
        "finishes parent ahead of an ack",
    ),
    "the end is there before a child": (
        before(Saved("a", P, SHARD_END), Created(R, TRIM_HORIZON)),
        "before its children ['right'] have leases",
    ),
    "the children are not saved": (without(ChildrenSaved(P, (L, R))), "finishes parent with the children ()"),
    "the end is never saved": (without(Saved("a", P, SHARD_END)), "says that parent is finished"),
    "a child begins at the latest": (
        [Created(L, LATEST) if line == Created(L, TRIM_HORIZON) else line for line in SPLIT],
        "the child left begins at LATEST",
    ),
    "the last progress is not saved": (without(Saved("a", L, at(10))), "stops reading left with ('k', 4) acked"),
    "a lease is not released": (without(Held("a", "a", L, None)), "a still holds its lease"),
    "a reading is never over": (without(Closed("a", L, is_finished=False)), "was never over"),
    "a shard is finished that is open": (
        [*SPLIT[:-4], Saved("a", L, SHARD_END), *SPLIT[-3:]],
        "finishes left, which is open",
    ),
    "a record is handled twice": (
        [*SPLIT[:-4], *handled("a", L, 10), *SPLIT[-4:]],
        "handles ('k', 4) of left twice in one reading",
    ),
    "a shard is read twice at once": ([*SPLIT[:-4], *opened("a", L), *SPLIT[-4:]], "reads left twice at once"),
    "a reading begins elsewhere": (
        [replace(line, checkpoint=at(5)) if line == Opened("a", "a", L, TRIM_HORIZON) else line for line in SPLIT],
        "begins left at 5, its lease said TRIM_HORIZON",
    ),
    "a record is skipped without need": ([*PUTS, *opened("a", P), SetAside("a", P, (0, 0))], "aside without need"),
    "a lease is deleted that has not served": ([*SPLIT, Deleted("a", L)], "deletes the lease of left, which is at 10"),
    "a lease is deleted before all that comes after has begun": (
        [*SPLIT, Deleted("a", P)],
        "deletes the lease of parent before its child right has begun",
    ),
    "a lease that has served comes again": ([*SERVED, Deleted("a", P), Created(P, TRIM_HORIZON)], "has a lease again"),
    "what the world itself found": ([*SPLIT, Broken("3 tasks are alive")], "3 tasks are alive"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_out(name: str) -> None:
    lines, problem = MUTANTS[name]
    assert any(problem in found for found in judge(lines).problems), judge(lines).problems


# --- duplicates ------------------------------------------------------------------------------------------------

FIRST: list[Line] = [*PUTS, *opened("a", P), *handled("a", P, 0, 1), Saved("a", P, at(0)), *handled("a", P, 2)]
"""A worker has acked three records and saved the first."""
SECOND: list[Line] = [*opened("b", P, at(0)), *handled("b", P, 1, 2, 3), Saved("b", P, at(3)), *closed("b", P)]
"""Another one goes on after the first."""


@pytest.mark.parametrize(
    "between",
    [
        [Crashed("a", "a")],
        [Lost("a", P, "taken"), *closed("a", P)],
        [StoreFailed("a"), *closed("a", P)],
        [StoreFailed("a"), Saved("a", P, at(0)), Closed("a", P, is_finished=False, error="HandlerError")],
    ],
    ids=["crash", "lost lease", "store", "no time for the last save"],
)
def test_a_duplicate_is_explained(between: list[Line]) -> None:
    checks = judge([*FIRST, *between, *SECOND], stale_after=100.0)
    assert checks.problems == []
    assert (checks.duplicates, checks.unexplained) == (2, 0)


def test_a_duplicate_after_a_graceful_stop_is_not() -> None:
    checks = judge([*FIRST, *closed("a", P), *SECOND])
    assert checks.unexplained == 2
    assert "duplicate at 16.000: ('k', 1) of parent by b, though a ended in order" in "".join(checks.problems)


@pytest.mark.parametrize(("pause", "error"), [(0, None), (9, "HandlerError")])
def test_nor_is_one_after_a_stop_that_had_the_time_to_save(pause: int, error: str | None) -> None:
    waited: list[Line] = [StoreFailed("nobody")] * pause
    end = Closed("a", P, is_finished=False, error=error)
    checks = judge([*FIRST, StoreFailed("a"), Saved("a", P, at(0)), *waited, end, *SECOND])
    assert "a stops reading parent with ('k', 2) acked" in "".join(checks.problems)


def test_nor_is_one_of_what_was_acked_long_before_the_crash() -> None:
    pause: list[Line] = [StoreFailed("nobody")] * 50
    checks = judge([*FIRST, *pause, Crashed("a", "a"), *SECOND], stale_after=5.0)
    assert checks.unexplained == 2
    assert "long before" in "".join(checks.problems)


def test_several_keys_at_once_may_be_ahead_of_one() -> None:
    lines: list[Line] = [
        Created(P, TRIM_HORIZON),
        Put(P, (0, 0), "slow", 0),
        Put(P, (1, 0), "quick", 0),
        *opened("a", P, by_key=True),
        *handled("a", P, 1),
        *closed("a", P),
        *opened("b", P),
        *handled("b", P, 0, 1),
        Saved("b", P, at(1)),
        *closed("b", P),
    ]
    checks = judge(lines)
    assert checks.problems == []
    assert checks.duplicates == 1


def test_a_sink_that_owns_its_position_has_nothing_twice() -> None:
    checks = judge([*FIRST, Crashed("a", "a"), *SECOND], owns_position=True, stale_after=100.0)
    assert checks.unexplained == 2
    assert "the sink has ('k', 1) of parent twice" in "".join(checks.problems)


def test_its_reader_goes_on_after_the_sinks_position() -> None:
    again: list[Line] = [
        *opened("b", P, at(0)),
        Sought("b", P, at(2)),
        *handled("b", P, 3),
        Saved("b", P, at(3)),
        *closed("b", P),
    ]
    assert judge([*FIRST, Crashed("a", "a"), *again], owns_position=True).problems == []


def test_a_worker_that_reads_on_long_after_its_lease_went_is_found_out() -> None:
    taken: list[Line] = [Held("b", "b", P, "b"), *[StoreFailed("nobody")] * 20]
    checks = judge([*FIRST, *taken, *handled("a", P, 3)], zombie_for=10.0)
    assert any("after its lease went to b" in found for found in checks.problems)


def test_a_skip_by_policy_counts_as_done() -> None:
    lines = [*PUTS, *opened("a", P), *handled("a", P, 0, 1, 2), SetAside("a", P, (3, 0)), Saved("a", P, at(3))]
    assert judge([*lines, *closed("a", P)], may_set_aside=lambda _key, number: number == 3).problems == []
