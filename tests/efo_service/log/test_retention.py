from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from efo_service.log.files import SizedSegment
from efo_service.log.retention import Candidate, RetentionRules, plan_retention
from efo_service.log.segments import Segment


def sized(sizes, rows=10) -> list[SizedSegment]:
    return [SizedSegment(Segment(at * rows, (at + 1) * rows, 0, Path()), size) for at, size in enumerate(sizes)]


def candidates(*times: float, partition: int = 0) -> list[Candidate]:
    return [Candidate(partition, one, time) for one, time in zip(sized([100] * len(times)), times, strict=True)]


def expired_bases(plan) -> list[tuple[int, int]]:
    return [(one.partition, one.sized.segment.base) for one in plan.expired]


def test_old_segments_expire() -> None:
    plan = plan_retention(candidates(1.0, 2.0, 3.0), 400, RetentionRules(seconds=10), {0: None}, now=12.5)
    assert expired_bases(plan) == [(0, 0), (0, 10)]
    assert plan.held_back == 0


def test_a_segment_expires_after_its_time_and_not_at_it() -> None:
    for now, expired in ((11.0, []), (11.001, [(0, 0)])):
        plan = plan_retention(candidates(1.0), 100, RetentionRules(seconds=10), {0: None}, now)
        assert expired_bases(plan) == expired


def test_what_is_held_back_is_told_by_reader() -> None:
    """A reader of which nothing is known of a partition has read none of it."""
    both = [*candidates(1.0, 2.0), Candidate(1, SizedSegment(Segment(0, 1, 0, Path()), 7), 1.0)]
    plan = plan_retention(both, 300, RetentionRules(seconds=1), {0: 0, 1: 0}, now=99.0)
    readers = {"ahead": {0: 20, 1: 1}, "within": {0: 19, 1: 1}, "behind": {0: 9, 1: 1}, "new": {}}
    assert plan.held_by(readers) == {"within": 100, "behind": 200, "new": 207}


def test_above_the_size_limit_the_oldest_segments_of_all_partitions_expire() -> None:
    both = candidates(1.0, 4.0) + candidates(2.0, 3.0, partition=1)
    plan = plan_retention(both, 500, RetentionRules(size=200), {0: None, 1: None}, now=99.0)
    assert expired_bases(plan) == [(0, 0), (1, 0), (1, 10)]


def test_without_rules_no_segment_expires() -> None:
    assert plan_retention(candidates(1.0), 10**12, RetentionRules(), {0: None}, now=10**9).expired == ()
    assert not RetentionRules().is_set


@pytest.mark.parametrize(("floor", "expired"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 3), (99, 3)])
def test_segments_that_a_reader_may_still_ask_for_do_not_expire(floor, expired) -> None:
    plan = plan_retention(candidates(1.0, 2.0, 3.0), 400, RetentionRules(seconds=1), {0: floor}, now=99.0)
    assert len(plan.expired) == expired
    assert plan.held_back == 100 * (3 - expired)


def test_a_slow_reader_of_one_partition_does_not_hold_back_other_partitions() -> None:
    both = candidates(1.0, 2.0) + candidates(1.0, 2.0, partition=1)
    plan = plan_retention(both, 400, RetentionRules(seconds=1), {0: 0, 1: 20}, now=99.0)
    assert expired_bases(plan) == [(1, 0), (1, 10)]
    assert plan.held_back == 200


@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 100)), max_size=30),
    st.none() | st.floats(0, 100),
    st.none() | st.integers(0, 3000),
    st.tuples(*[st.none() | st.integers(0, 300)] * 3),
)
def test_expiry_never_leaves_a_gap_in_a_partition(times, seconds, size, floors) -> None:
    """Even if the clock was set back between commits."""
    everything = [one for at in range(3) for one in candidates(*(t for p, t in times if p == at), partition=at)]
    rules = RetentionRules(seconds, size)
    plan = plan_retention(everything, 100 * len(everything), rules, dict(enumerate(floors)), now=100.0)
    for at in range(3):
        bases = sorted(base for partition, base in expired_bases(plan) if partition == at)
        assert bases == [10 * number for number in range(len(bases))]
        if floors[at] is not None:
            assert all(base + 10 <= floors[at] for base in bases)
