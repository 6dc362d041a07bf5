"""The checks accept a correct story, and find the problem in each of its mutants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from efo import events
from efo.events import HandlerFailed
from efo.model import Checkpoint
from proofs.simulation.checks.checks import Checks
from proofs.simulation.checks.guarantees import Guarantees
from proofs.simulation.story import (
    Acked,
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
    Positioned,
    Put,
    Refused,
    Reported,
    Repositioned,
    Resharded,
    Saved,
    SkippedByPolicy,
    StoreFailed,
    Violation,
)

P, L, R = "parent", "left", "right"


def handled(worker: str, shard: str, *numbers: int) -> list[Line]:
    marks = tuple((number, 0) for number in numbers)
    return [Handled(worker, shard, marks), Acked(worker, shard, marks)]


def opened(
    worker: str, shard: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON, *, by_key: bool = False
) -> list[Line]:
    return [Held(worker, worker, shard, worker), Opened(worker, worker, shard, checkpoint, by_key)]


def closed(worker: str, shard: str, error: str | None = None) -> list[Line]:
    return [Held(worker, worker, shard, None), Closed(worker, shard, is_finished=False, error=error)]


def at(number: int) -> Checkpoint:
    return Checkpoint(str(number))


PUTS: list[Line] = [Created(P, Checkpoint.TRIM_HORIZON), *(Put(P, (n, 0), "k", n) for n in range(4))]

SPLIT: list[Line] = [
    *PUTS,
    *opened("a", P),
    *handled("a", P, 0, 1),
    Saved("a", P, at(1)),
    Resharded((P,), (L, R)),
    Put(L, (10, 0), "k", 4),
    *handled("a", P, 2),
    *handled("a", P, 3),
    Created(L, Checkpoint.TRIM_HORIZON),
    Created(R, Checkpoint.TRIM_HORIZON),
    ChildrenSaved(P, (L, R)),
    Saved("a", P, Checkpoint.SHARD_END),
    Held("a", "a", P, None),
    Closed("a", P, is_finished=True),
    *opened("a", L),
    *handled("a", L, 10),
    Saved("a", L, at(10)),
    *closed("a", L),
    Exited("a"),
]
"""A worker reads four records, a split, and a record of a child."""

BOTH_CHILDREN_READ: list[Line] = [
    *SPLIT,
    Put(R, (11, 0), "other", 0),
    *opened("a", R),
    *handled("a", R, 11),
    Saved("a", R, at(11)),
    *closed("a", R),
]
"""The worker then reads a record of the other child too."""


def check(lines: list[Line], **guarantees: object) -> Checks:
    checks = Checks(Guarantees(**guarantees))
    for second, line in enumerate(lines):
        checks.check(float(second), line)
    checks.conclude()
    return checks


def without(line: Line) -> list[Line]:
    assert line in SPLIT
    return [other for other in SPLIT if other != line]


def moved(line: Line, before: Line) -> list[Line]:
    """Return SPLIT with `line` moved to just before `before`."""
    lines = without(line)
    lines.insert(lines.index(before), line)
    return lines


def test_a_correct_story_has_no_problem() -> None:
    checks = check(SPLIT)
    assert checks.problems == []
    assert checks.books.is_complete
    assert (checks.records, checks.duplicates, checks.unexplained) == (5, 0, 0)


def test_at_latest_a_lease_that_is_created_late_may_be_all_that_was_missing() -> None:
    """A worker crashed between the leases of two shards, and nothing was put after that."""
    completed = []
    checks = Checks(Guarantees(at_latest=True), on_complete=lambda: completed.append(True))
    story = [
        *(Put(shard, (n, 0), shard, 0) for n, shard in enumerate((L, R))),
        Created(L, Checkpoint.LATEST, 1),
        Crashed("a", "a"),
    ]
    for second, line in enumerate(story):
        checks.check(float(second), line)
    assert not checks.books.is_complete
    completed.clear()
    checks.check(9.0, Created(R, Checkpoint.LATEST, 9_000))
    assert checks.books.is_complete
    assert completed


def test_a_finished_shard_whose_children_are_read_needs_no_lease() -> None:
    assert check(SPLIT).books.undeleted_leases() == []
    assert check(BOTH_CHILDREN_READ).books.undeleted_leases() == [P]
    deleted = check([*BOTH_CHILDREN_READ, Deleted("a", P)])
    assert (deleted.books.undeleted_leases(), deleted.problems) == ([], [])
    assert deleted.books.generations == 2


MUTANTS: dict[str, tuple[list[Line], str]] = {
    "a record is lost": (
        [line for line in SPLIT if line not in handled("a", L, 10)],
        "ahead of an ack: ('k', 4) is not acked",
    ),
    "a record is lost in the middle": (
        [line for line in SPLIT if line not in handled("a", P, 2)],
        "handles ('k', 3) of parent, but the next one is ('k', 2)",
    ),
    "two records are swapped": (
        moved(Handled("a", P, ((3, 0),)), Handled("a", P, ((2, 0),))),
        "takes effect before its record 2",
    ),
    "a record is handled that was not put": (
        [*SPLIT[:-3], *handled("a", L, 11)[:1], *SPLIT[-3:]],
        "that was not put there",
    ),
    "a checkpoint is ahead of its ack": (
        moved(Saved("a", P, at(1)), Acked("a", P, ((0, 0), (1, 0)))),
        "ahead of an ack: ('k', 0)",
    ),
    "a child starts before its parent is finished": (
        moved(Opened("a", "a", L, Checkpoint.TRIM_HORIZON), Saved("a", P, Checkpoint.SHARD_END)),
        "the child left starts before its parent parent is finished",
    ),
    "SHARD_END is saved ahead of an ack": (
        moved(Saved("a", P, Checkpoint.SHARD_END), Acked("a", P, ((3, 0),))),
        "finishes parent ahead of an ack",
    ),
    "SHARD_END is saved before a child has a lease": (
        moved(Saved("a", P, Checkpoint.SHARD_END), Created(R, Checkpoint.TRIM_HORIZON)),
        "before its children ['right'] have leases",
    ),
    "the children are not saved": (
        without(ChildrenSaved(P, (L, R))),
        "finishes parent with the saved children ()",
    ),
    "SHARD_END is never saved": (without(Saved("a", P, Checkpoint.SHARD_END)), "reports parent as finished"),
    "a child starts at LATEST": (
        [Created(L, Checkpoint.LATEST) if line == Created(L, Checkpoint.TRIM_HORIZON) else line for line in SPLIT],
        "the child left starts at LATEST",
    ),
    "the last checkpoint is not saved": (without(Saved("a", L, at(10))), "stops reading left with ('k', 4) acked"),
    "a lease is not released": (without(Held("a", "a", L, None)), "a still holds its lease"),
    "a shard task never ends": (
        without(Closed("a", L, is_finished=False)),
        "a has ended, but its shard task of left has not",
    ),
    "an open shard is finished": (
        [*SPLIT[:-4], Saved("a", L, Checkpoint.SHARD_END), *SPLIT[-3:]],
        "finishes left, which is open",
    ),
    "a record is handled twice": (
        [*SPLIT[:-4], *handled("a", L, 10), *SPLIT[-4:]],
        "handles ('k', 4) of left twice in one shard task",
    ),
    "a shard is read twice at once": ([*SPLIT[:-4], *opened("a", L), *SPLIT[-4:]], "reads left twice at once"),
    "a shard task starts at another checkpoint than its lease has": (
        [
            replace(line, checkpoint=at(5)) if line == Opened("a", "a", L, Checkpoint.TRIM_HORIZON) else line
            for line in SPLIT
        ],
        "starts left at 5, but its lease has TRIM_HORIZON",
    ),
    "a record is skipped that does not fail": (
        [*PUTS, *opened("a", P), SkippedByPolicy("a", P, (0, 0))],
        "skipped or dead-lettered ('k', 0) of parent, which does not fail",
    ),
    "the lease of an unfinished shard is deleted": (
        [*SPLIT, Deleted("a", L)],
        "deletes the lease of left, which is at 10",
    ),
    "a lease is deleted before each child has a checkpoint": (
        [*SPLIT, Deleted("a", P)],
        "deletes the lease of parent before its child right has a checkpoint",
    ),
    "a deleted lease is created again": (
        [*BOTH_CHILDREN_READ, Deleted("a", P), Created(P, Checkpoint.TRIM_HORIZON)],
        "has a lease again",
    ),
    "the world itself reports a problem": ([*SPLIT, Violation("3 tasks are alive")], "3 tasks are alive"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_has_the_expected_problem(name: str) -> None:
    lines, problem = MUTANTS[name]
    assert any(problem in found for found in check(lines).problems), check(lines).problems


# --- a start AT_TIMESTAMP --------------------------------------------------------------------------------------

TIME = Checkpoint.AT_TIMESTAMP
GRANDPARENT = "grandparent"
TIMED_PUTS: list[Line] = [
    Positioned(20_000),
    Put(GRANDPARENT, (0, 0), "k", 0, 1_000),
    Resharded((GRANDPARENT,), (P,), 2_000),
    Put(P, (5, 0), "k", 1, 3_000),
    Put(P, (6, 0), "k", 2, 20_000),
]
TIMED: list[Line] = [*TIMED_PUTS, Created(P, TIME), *opened("a", P, TIME), *handled("a", P, 6)]
"""A shard ended long before the time. Its child has a record before the time, and one at the time, which is read."""
AT_END: list[Line] = [Saved("a", P, at(6)), *closed("a", P)]

TAKEN_ALONG: list[Line] = [
    Positioned(20_000),
    Put(P, (5, 0), "k", 0, 3_000),
    Resharded((P,), (L,), 16_000),
    Put(L, (10, 0), "k", 1, 17_000),
    Created(P, TIME),
    *opened("a", P, TIME),
    Created(L, Checkpoint.TRIM_HORIZON),
    ChildrenSaved(P, (L,)),
    Saved("a", P, Checkpoint.SHARD_END),
    Held("a", "a", P, None),
    Closed("a", P, is_finished=True),
    *opened("a", L),
    *handled("a", L, 10),
    Saved("a", L, at(10)),
    *closed("a", L),
]
"""A shard ended just before the time. It is taken along, and its child is read whole."""


@pytest.mark.parametrize("story", [[*TIMED, *AT_END], TAKEN_ALONG], ids=["ended long before", "ended just before"])
def test_at_a_time_the_records_before_it_need_not_be_read(story: list[Line]) -> None:
    checks = check(story)
    assert checks.problems == []
    assert checks.books.is_complete


TIMED_MUTANTS: dict[str, tuple[list[Line], str]] = {
    "a record of the time is lost": (
        [line for line in TIMED if line not in handled("a", P, 6)],
        "lost: 1 records of parent, the first ('k', 2)",
    ),
    "a record before the time is read": (
        [*TIMED[:-2], *handled("a", P, 5, 6), *AT_END],
        "handles ('k', 1) of parent, but the next one is ('k', 2)",
    ),
    "a shard with a record of the time is left out": (
        [*TIMED_PUTS, Put(GRANDPARENT, (1, 0), "other", 0, 20_000), Created(P, TIME), *opened("a", P, TIME)],
        "the child parent starts before its parent grandparent is finished",
    ),
    "a shard with a record of the time is never read": (
        [*TIMED, *AT_END, Put(GRANDPARENT, (1, 0), "other", 0, 20_000)],
        "grandparent was never read: it has no lease",
    ),
    "a shard starts at LATEST": ([*TIMED_PUTS, Created(P, Checkpoint.LATEST, 21_000)], "not at AT_TIMESTAMP"),
    "a shard starts at TRIM_HORIZON": ([*TIMED_PUTS, Created(P, Checkpoint.TRIM_HORIZON)], "not at AT_TIMESTAMP"),
    "a shard is taken along that ended too long before the time": (
        [replace(line, millis=14_000) if isinstance(line, Put) and line.shard == L else line for line in TAKEN_ALONG],
        "('k', 1) of left takes effect, but was put 6.000 s before the start",
    ),
    "a record of the child of a shard that was taken along is lost": (
        [line for line in TAKEN_ALONG if line not in handled("a", L, 10)],
        "lost: 1 records of left, the first ('k', 1)",
    ),
}


@pytest.mark.parametrize("name", TIMED_MUTANTS)
def test_a_mutant_at_a_time_has_the_expected_problem(name: str) -> None:
    lines, problem = TIMED_MUTANTS[name]
    assert any(problem in found for found in check(lines).problems), check(lines).problems


def test_a_stale_listing_may_take_older_shards_along() -> None:
    lines, _ = TIMED_MUTANTS["a shard is taken along that ended too long before the time"]
    assert check(lines, max_listing_lag=1.0).problems == []


# --- duplicates ------------------------------------------------------------------------------------------------

FIRST: list[Line] = [*PUTS, *opened("a", P), *handled("a", P, 0, 1), Saved("a", P, at(0)), *handled("a", P, 2)]
"""A worker has acked three records and saved the first."""
SECOND: list[Line] = [*opened("b", P, at(0)), *handled("b", P, 1, 2, 3), Saved("b", P, at(3)), *closed("b", P)]
"""Another worker continues after the first record."""


@pytest.mark.parametrize(
    "between",
    [
        [Crashed("a", "a")],
        [Lost("a", P, "taken"), *closed("a", P)],
        [StoreFailed("a"), *closed("a", P)],
        [StoreFailed("a"), Saved("a", P, at(0)), Closed("a", P, is_finished=False, error="HandlerError")],
    ],
    ids=["crash", "lost lease", "store fault", "store fault before the last save"],
)
def test_duplicates_after_a_crash_a_lost_lease_or_a_store_fault_are_allowed(between: list[Line]) -> None:
    checks = check([*FIRST, *between, *SECOND], max_save_delay=100.0)
    assert checks.problems == []
    assert (checks.duplicates, checks.unexplained) == (2, 0)


def test_unacked_duplicates_after_a_failed_handler_are_allowed_even_if_the_worker_crashes() -> None:
    unacked = Handled("a", P, ((2, 0),))
    first = [*PUTS, *opened("a", P), *handled("a", P, 0, 1), Saved("a", P, at(1)), unacked]
    stop = Reported("a", HandlerFailed("other", "1", 1, 1, 0.1, "HandlerError", "stop"))
    second = [*opened("b", P, at(1)), *handled("b", P, 2, 3), Saved("b", P, at(3)), *closed("b", P)]
    crash = [*closed("a", P), Crashed("a", "a")]
    assert check([*first, stop, *crash, *second]).unexplained == 0
    assert check([*first, *crash, *second]).unexplained == 1


def test_duplicates_after_a_graceful_stop_are_a_problem() -> None:
    checks = check([*FIRST, *closed("a", P), *SECOND])
    assert checks.unexplained == 2
    assert "duplicate at 16.000: ('k', 1) of parent by b, although a ended normally" in "".join(checks.problems)


OTHER: list[Line] = [Created(R, Checkpoint.TRIM_HORIZON), Put(R, (20, 0), "other", 0), *opened("a", R)]
"""The first worker reads another shard too."""


ISOLATED = Reported("a", events.ShardIsolated(R, 1.0, "HandlerError"))


def interrupted(end: Line, error: str | None = "HandlerError", *before: Line) -> Checks:
    """Check a task that ends after the effect of a record and before its ack, while another one ends with `error`."""
    last: list[Line] = [Handled("a", P, ((3, 0),)), Saved("a", P, at(2))]
    rest: list[Line] = [*opened("b", R), *handled("b", R, 20), Saved("b", R, at(20)), *closed("b", R)]
    again: list[Line] = [*opened("b", P, at(2)), *handled("b", P, 3), Saved("b", P, at(3)), *closed("b", P)]
    return check([*FIRST, *OTHER, *last, *before, *closed("a", R, error), *closed("a", P), end, *rest, *again])


@pytest.mark.parametrize(
    "end", [Exited("a", "HandlerError"), Crashed("a", "a")], ids=["its end", "a crash before its end"]
)
def test_an_error_that_ends_a_worker_explains_what_it_interrupted_elsewhere(end: Line) -> None:
    checks = interrupted(end)
    assert checks.problems == []
    assert (checks.duplicates, checks.unexplained) == (1, 0)


@pytest.mark.parametrize("why", [(None,), ("HandlerError", ISOLATED)], ids=["no error", "an isolated shard"])
def test_a_crash_after_the_end_of_a_task_explains_nothing_unless_an_error_was_ending_the_worker(why) -> None:
    checks = interrupted(Crashed("a", "a"), *why)
    assert checks.unexplained == 1
    assert "although a ended normally" in "".join(checks.problems)


@pytest.mark.parametrize(("pause", "error"), [(0, None), (9, "HandlerError")])
def test_a_stop_that_had_time_to_save_must_save_the_last_ack(pause: int, error: str | None) -> None:
    delay: list[Line] = [StoreFailed("nobody")] * pause
    end = Closed("a", P, is_finished=False, error=error)
    checks = check([*FIRST, StoreFailed("a"), Saved("a", P, at(0)), *delay, end, *SECOND])
    assert "a stops reading parent with ('k', 2) acked" in "".join(checks.problems)


@pytest.mark.parametrize(("pause", "count"), [(0, 0), (5, 1)])
def test_an_interrupted_task_keeps_its_lease_only_if_a_slow_store_used_its_time(pause: int, count: int) -> None:
    end = Closed("a", P, is_finished=False, error="HandlerError")
    story = [*FIRST, StoreFailed("a"), *[StoreFailed("nobody")] * pause, end]
    problems = [problem for problem in check(story).problems if "a still holds its lease" in problem]
    assert len(problems) == count


def test_duplicates_of_records_that_were_acked_long_before_a_crash_are_a_problem() -> None:
    pause: list[Line] = [StoreFailed("nobody")] * 50
    checks = check([*FIRST, *pause, Crashed("a", "a"), *SECOND], max_save_delay=5.0)
    assert checks.unexplained == 2
    assert "long before" in "".join(checks.problems)


def test_with_several_keys_at_once_records_ahead_of_an_unprocessed_one_may_repeat() -> None:
    lines: list[Line] = [
        Created(P, Checkpoint.TRIM_HORIZON),
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
    checks = check(lines)
    assert checks.problems == []
    assert checks.duplicates == 1


def test_duplicates_in_a_sink_that_owns_its_position_are_a_problem() -> None:
    checks = check([*FIRST, Crashed("a", "a"), *SECOND], owns_position=True, max_save_delay=100.0)
    assert checks.unexplained == 2
    assert "the sink has ('k', 1) of parent twice" in "".join(checks.problems)


def test_a_shard_task_continues_after_the_position_of_its_sink() -> None:
    resumed: list[Line] = [
        *opened("b", P, at(0)),
        Repositioned("b", P, at(2)),
        *handled("b", P, 3),
        Saved("b", P, at(3)),
        *closed("b", P),
    ]
    assert check([*FIRST, Crashed("a", "a"), *resumed], owns_position=True).problems == []


def test_handling_records_long_after_the_lease_is_lost_is_a_problem() -> None:
    taken: list[Line] = [Held("b", "b", P, "b"), *[StoreFailed("nobody")] * 20]
    checks = check([*FIRST, *taken, *handled("a", P, 3)], max_zombie_time=10.0)
    assert any("after its lease went to b" in found for found in checks.problems)


def test_a_record_that_the_policy_skips_counts_as_processed() -> None:
    lines = [*PUTS, *opened("a", P), *handled("a", P, 0, 1, 2), SkippedByPolicy("a", P, (3, 0)), Saved("a", P, at(3))]
    assert check([*lines, *closed("a", P)], may_skip=lambda _key, number: number == 3).problems == []


LETTER = Refused("a", P, ((1, 0),), "dead_lettered")
REFUSED: list[Line] = [*PUTS, *opened("a", P), LETTER, *handled("a", P, 0), *handled("a", P, 2, 3)]
"""The sink refuses record 1."""


def refused_problems(lines: list[Line], refused: int = 1) -> list[str]:
    guarantees = {"owns_position": True, "may_refuse": lambda _key, number: number == refused}
    acked = Acked("a", P, ((1, 0),))
    return check([*lines, acked, Saved("a", P, at(3)), *closed("a", P)], **guarantees).problems


def test_a_dead_letter_counts_as_processed_in_its_place() -> None:
    assert refused_problems(REFUSED) == []


def test_a_dead_letter_that_no_sink_refuses_is_a_problem() -> None:
    assert any("no sink refuses it" in problem for problem in refused_problems(REFUSED, refused=2))


def test_a_record_that_is_twice_in_the_dead_letters_is_a_problem() -> None:
    assert any("twice in the dead letters" in problem for problem in refused_problems([*REFUSED, LETTER]))


def test_a_refused_record_without_a_dead_letter_is_a_problem() -> None:
    assert any("the next one is" in problem for problem in refused_problems([x for x in REFUSED if x != LETTER]))


def test_a_save_after_the_end_of_its_task_is_a_problem_unless_the_store_completes_cancelled_writes() -> None:
    late: list[Line] = [*PUTS, *opened("a", P), *handled("a", P, 0, 1, 2, 3), Lost("a", P, "expired")]
    late += [Closed("a", P, is_finished=False), Saved("a", P, at(3)), Held("b", "b", P, None)]
    assert any("does not read" in problem for problem in check(late).problems)
    assert check(late, saves_late=True).problems == []


@pytest.mark.parametrize(("reason", "problems"), [("store", 0), ("expired", 1), ("taken", 1), (None, 1)])
def test_a_save_of_several_leases_may_arrive_after_one_of_them_was_given_up(reason, problems) -> None:
    lost = [Lost("a", P, reason)] if reason else []
    story = [*PUTS, *opened("a", P), *handled("a", P, 0, 1), Saved("a", P, at(0)), *lost, *closed("a", P)]
    checks = check([*story, Saved("a", P, at(1))])
    assert sum("which it does not read" in problem for problem in checks.problems) == problems
