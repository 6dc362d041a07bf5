import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efo_service.relay.log.compaction_plan import (
    FAN_IN,
    KIB,
    MIB,
    ROLLED_BYTES,
    TIERS,
    Kept,
    RetentionRules,
    Sized,
    plan_retention,
    plan_rollup,
)
from efo_service.relay.log.segments import Segment


def sized(sizes, rows=10) -> list[Sized]:
    return [Sized(Segment(at * rows, (at + 1) * rows, 0, Path()), size) for at, size in enumerate(sizes)]


def shape(sizes) -> list[tuple[int, int]]:
    """Which segments go together, as (first, one after the last)."""
    segments = sized(sizes)
    return [(segments.index(group[0]), segments.index(group[-1]) + 1) for group in plan_rollup(segments)]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([3 * KIB] * (FAN_IN - 1), []),
        ([3 * KIB] * FAN_IN, [(0, FAN_IN)]),
        ([100 * KIB] * FAN_IN, [(0, FAN_IN)]),
        ([100 * KIB] * 5 + [3 * KIB] * FAN_IN, [(5, 5 + FAN_IN)]),
        ([100 * KIB] + [3 * KIB] * (FAN_IN - 1), []),
        (([100 * KIB] + [3 * KIB] * 5) * FAN_IN, [(0, 6 * FAN_IN - 5)]),
        ([4 * MIB] * 3, []),
        ([4 * MIB] * 4, [(0, 4)]),
        ([4 * MIB] * 9, [(0, 4), (4, 8)]),
        ([15 * MIB] * 2, [(0, 2)]),
        ([20 * MIB, 3 * KIB, 20 * MIB], []),
        ([20 * MIB] + [8 * MIB] * 2 + [20 * MIB], [(1, 3)]),
    ],
)
def test_what_goes_together(sizes, groups) -> None:
    assert shape(sizes) == groups


def test_a_hole_is_never_closed() -> None:
    segments = sized([3 * KIB] * 2 * FAN_IN)
    del segments[FAN_IN]
    assert [len(group) for group in plan_rollup(segments)] == [FAN_IN]


@given(st.lists(st.sampled_from([KIB, 60 * KIB, 500 * KIB, 3 * MIB, 15 * MIB, 20 * MIB]), max_size=200))
def test_groups_are_neighbours_and_never_too_large(sizes) -> None:
    for group in plan_rollup(sized(sizes)):
        assert len(group) > 1
        assert all(a.segment.end == b.segment.base for a, b in itertools.pairwise(group))
        assert sum(one.size for one in group) < 2 * ROLLED_BYTES
        assert all(one.size < ROLLED_BYTES for one in group)


@pytest.mark.parametrize("size", [2 * KIB, 40 * KIB, 700 * KIB, 4 * MIB])
def test_however_many_commits_few_segments_stay_and_each_byte_moves_seldom(size) -> None:
    """A partition that grows for a long time, kept up as it goes."""
    segments: list[Sized] = []
    written, end = 0, 0
    count = min(6_000, 2048 * MIB // size)
    for number in range(count):
        segments.append(Sized(Segment(end, end + 1, 0, Path()), size))
        end += 1
        if number % 10:
            continue
        for group in plan_rollup(segments[:-1]):
            at = segments.index(group[0])
            total = sum(one.size for one in group)
            written += total
            whole = Segment(group[0].segment.base, group[-1].segment.end, 0, Path())
            segments[at : at + len(group)] = [Sized(whole, total)]
    assert [one.segment.base for one in segments[1:]] == [one.segment.end for one in segments[:-1]]
    assert written <= (len(TIERS) + 1) * count * size
    small = [one for one in segments if one.size < ROLLED_BYTES]
    assert len(small) <= (len(TIERS) + 1) * (FAN_IN + 10)


# --- retention -----------------------------------------------------------------------------------------


def kept(*times: float, partition: int = 0) -> list[Kept]:
    return [Kept(partition, one, time) for one, time in zip(sized([100] * len(times)), times, strict=True)]


def gone(plan) -> list[tuple[int, int]]:
    return [(one.partition, one.sized.segment.base) for one in plan.expired]


def test_what_is_old_goes() -> None:
    plan = plan_retention(kept(1.0, 2.0, 3.0), 400, RetentionRules(seconds=10), {0: None}, now=12.5)
    assert gone(plan) == [(0, 0), (0, 10)]
    assert plan.held_back == 0


def test_what_is_too_much_goes_the_oldest_first_over_all_partitions() -> None:
    both = kept(1.0, 4.0) + kept(2.0, 3.0, partition=1)
    plan = plan_retention(both, 500, RetentionRules(size=200), {0: None, 1: None}, now=99.0)
    assert gone(plan) == [(0, 0), (1, 0), (1, 10)]


def test_without_rules_nothing_goes() -> None:
    assert plan_retention(kept(1.0), 10**12, RetentionRules(), {0: None}, now=10**9).expired == ()
    assert not RetentionRules().is_set


@pytest.mark.parametrize(("floor", "goes"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 3), (99, 3)])
def test_nothing_goes_that_a_reader_may_still_ask_for(floor, goes) -> None:
    plan = plan_retention(kept(1.0, 2.0, 3.0), 400, RetentionRules(seconds=1), {0: floor}, now=99.0)
    assert len(plan.expired) == goes
    assert plan.held_back == 100 * (3 - goes)


def test_a_slow_reader_of_one_partition_holds_no_other_back() -> None:
    both = kept(1.0, 2.0) + kept(1.0, 2.0, partition=1)
    plan = plan_retention(both, 400, RetentionRules(seconds=1), {0: 0, 1: 20}, now=99.0)
    assert gone(plan) == [(1, 0), (1, 10)]
    assert plan.held_back == 200


@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 100)), max_size=30),
    st.none() | st.floats(0, 100),
    st.none() | st.integers(0, 3000),
    st.tuples(*[st.none() | st.integers(0, 300)] * 3),
)
def test_no_partition_ever_gets_a_hole(times, seconds, size, floors) -> None:
    """Even when the clock was set back between commits."""
    everything = [one for at in range(3) for one in kept(*(t for p, t in times if p == at), partition=at)]
    rules = RetentionRules(seconds, size)
    plan = plan_retention(everything, 100 * len(everything), rules, dict(enumerate(floors)), now=100.0)
    for at in range(3):
        bases = sorted(base for partition, base in gone(plan) if partition == at)
        assert bases == [10 * number for number in range(len(bases))]
        if floors[at] is not None:
            assert all(base + 10 <= floors[at] for base in bases)
