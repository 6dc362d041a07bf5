import itertools
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from efo_service.log.compaction import COMPACTED_BYTES, FAN_IN, KIB, MAX_PARTS, MIB, TIERS, plan_compaction
from efo_service.log.files import SizedSegment
from efo_service.log.segments import Segment


def sized(sizes, rows=10) -> list[SizedSegment]:
    """Return neighbours of these sizes in memory; a negative one is of a segment that is not compressed."""
    return [
        SizedSegment(Segment(at * rows, (at + 1) * rows, 0, Path()), *((size // 5, size) if size > 0 else (-size,)))
        for at, size in enumerate(sizes)
    ]


def shape(sizes) -> list[tuple[int, int]]:
    """Return the planned groups as (index of the first segment, index after the last one)."""
    segments = sized(sizes)
    return [(segments.index(group[0]), segments.index(group[-1]) + 1) for group in plan_compaction(segments)]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([3 * KIB] * (FAN_IN - 1), []),
        ([3 * KIB] * FAN_IN, [(0, FAN_IN)]),
        ([100 * KIB] * FAN_IN, [(0, FAN_IN)]),
        ([100 * KIB] * 5 + [3 * KIB] * FAN_IN, [(5, 5 + FAN_IN)]),
        ([100 * KIB] + [3 * KIB] * (FAN_IN - 1), []),
        ([TIERS[0]] + [3 * KIB] * (FAN_IN - 1), []),  # a bound belongs to the tier above it
        ([TIERS[0]] * FAN_IN, [(0, FAN_IN)]),
        (([100 * KIB] + [3 * KIB] * 5) * FAN_IN, [(0, 6 * FAN_IN - 5)]),
        ([4 * MIB] * 3, []),
        ([4 * MIB] * 4, [(0, 4)]),
        ([4 * MIB] * 9, [(0, 4), (4, 8)]),
        ([15 * MIB] * 2, [(0, 2)]),
        ([8 * MIB, 8 * MIB - 1], []),  # a byte less than COMPACTED_BYTES
        ([8 * MIB] * 3 + [8 * MIB - 1], [(0, 2)]),
        ([1] * MAX_PARTS + [1], [(0, MAX_PARTS)]),
        ([20 * MIB, 3 * KIB, 20 * MIB], []),
        ([20 * MIB] + [8 * MIB] * 2 + [20 * MIB], [(1, 3)]),
    ],
)
def test_the_plan_groups_small_neighbours(sizes, groups) -> None:
    assert shape(sizes) == groups


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([-20 * MIB], [(0, 1)]),
        ([20 * MIB, -20 * MIB, -COMPACTED_BYTES, 20 * MIB], [(1, 2), (2, 3)]),
        ([-MIB], [(0, 1)]),
        ([1 - MIB], []),
        ([3 * MIB, -300 * KIB, -400 * KIB, -400 * KIB], [(1, 4)]),
        ([-700 * KIB, 3 * MIB, -700 * KIB], []),  # no neighbours
        ([9 * MIB, -8 * MIB], [(0, 2)]),  # a whole one is made at once
        ([-8 * MIB, -8 * MIB, -3 * MIB], [(0, 2), (2, 3)]),
    ],
)
def test_what_is_not_compressed_does_not_wait_for_others_of_its_size(sizes, groups) -> None:
    assert shape(sizes) == groups


def test_segments_on_both_sides_of_a_gap_are_not_grouped() -> None:
    segments = sized([3 * KIB] * 2 * FAN_IN)
    del segments[FAN_IN]
    assert [len(group) for group in plan_compaction(segments)] == [FAN_IN]


@given(
    st.lists(
        st.sampled_from([KIB, 60 * KIB, 500 * KIB, 3 * MIB, 15 * MIB, 20 * MIB, -KIB, -3 * MIB, -20 * MIB]),
        max_size=200,
    )
)
def test_groups_consist_of_neighbours_and_have_limited_size(sizes) -> None:
    groups = plan_compaction(sized(sizes))
    for group in groups:
        assert all(a.segment.end == b.segment.base for a, b in itertools.pairwise(group))
        if len(group) == 1:
            assert not group[0].memory
            continue
        assert sum(one.weight for one in group) < 2 * COMPACTED_BYTES
        assert all(one.weight < COMPACTED_BYTES for one in group)
    assert len({one for group in groups for one in group}) == sum(map(len, groups))


@pytest.mark.parametrize("size", [2 * KIB, 40 * KIB, 700 * KIB, 4 * MIB])
def test_many_commits_leave_few_segments_and_rewrite_each_byte_seldom(size) -> None:
    """A partition grows for a long time, with a maintenance pass after every ten commits."""
    segments: list[SizedSegment] = []
    written, end = 0, 0
    count = min(6_000, 2048 * MIB // size)
    for number in range(count):
        segments.append(SizedSegment(Segment(end, end + 1, 0, Path()), size))
        end += 1
        if number % 10:
            continue
        for group in plan_compaction(segments[:-1]):
            at = segments.index(group[0])
            total = sum(one.weight for one in group)
            written += total
            whole = Segment(group[0].segment.base, group[-1].segment.end, 0, Path())
            segments[at : at + len(group)] = [SizedSegment(whole, total // 5, total)]
        waiting = [one.size for one in segments[:-1] if not one.memory]
        assert sum(waiting) < MIB + 10 * size
    assert [one.segment.base for one in segments[1:]] == [one.segment.end for one in segments[:-1]]
    assert written <= (len(TIERS) + 1) * count * size
    small = [one for one in segments if one.weight < COMPACTED_BYTES]
    assert len(small) <= (len(TIERS) + 1) * (FAN_IN + 10)
