"""Holes in the hash key ranges of the leases (G71)."""

import pytest
from hypothesis import given, settings, strategies as st

from efo.model import MAX_HASH_KEY, HashKeyRange
from efo.protocol.lineage import CONSECUTIVE_HOLES, HashRangeAudit, Hole, first_hole

HALF = MAX_HASH_KEY // 2


def keys(start, end):
    return HashKeyRange(str(start), str(end))


LOW, HIGH, ALL = keys(0, HALF), keys(HALF + 1, MAX_HASH_KEY), keys(0, MAX_HASH_KEY)


@pytest.mark.parametrize(
    ("ranges", "hole"),
    [
        pytest.param([], Hole(0, MAX_HASH_KEY), id="no leases"),
        pytest.param([ALL], None, id="one shard"),
        pytest.param([HIGH, LOW], None, id="in any order"),
        pytest.param([LOW], Hole(HALF + 1, MAX_HASH_KEY), id="hole at the end"),
        pytest.param([HIGH], Hole(0, HALF), id="hole at the start"),
        pytest.param([keys(0, 9), keys(20, MAX_HASH_KEY)], Hole(10, 19), id="hole in the middle"),
        pytest.param([keys(0, 9), keys(11, MAX_HASH_KEY)], Hole(10, 10), id="hole of one key"),
        pytest.param([keys(5, 9), keys(20, 30)], Hole(0, 4), id="first of several holes"),
        pytest.param([ALL, LOW, HIGH], None, id="a parent and its children overlap"),
        pytest.param([keys(0, 50), keys(10, 20), keys(51, MAX_HASH_KEY)], None, id="one range within another"),
    ],
)
@pytest.mark.scenario("G71")
def test_the_lowest_hole_is_returned(ranges, hole):
    assert first_hole(ranges) == hole


@given(cuts=st.sets(st.integers(min_value=1, max_value=99), max_size=12), data=st.data())
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@pytest.mark.scenario("G71")
def test_one_missing_shard_is_a_hole(cuts, data):
    starts = [0, *sorted(cuts)]
    ends = [*(start - 1 for start in starts[1:]), MAX_HASH_KEY]
    shards = [keys(start, end) for start, end in zip(starts, ends, strict=True)]
    assert first_hole(data.draw(st.permutations(shards))) is None
    missing = data.draw(st.integers(min_value=0, max_value=len(shards) - 1))
    hole = first_hole([shard for number, shard in enumerate(shards) if number != missing])
    assert hole == Hole(starts[missing], ends[missing])


@pytest.mark.scenario("G71")
def test_a_hole_that_persists_is_reported_once():
    audit = HashRangeAudit()
    assert [audit.observe([LOW]) for _ in range(6)] == [None] * (CONSECUTIVE_HOLES - 1) + [
        Hole(HALF + 1, MAX_HASH_KEY), None, None, None,
    ]  # fmt: skip


@pytest.mark.scenario("G71")
def test_a_hole_that_closes_or_moves_restarts_the_count():
    audit = HashRangeAudit()
    assert [audit.observe(ranges) for ranges in ([LOW], [LOW], [ALL], [LOW], [LOW], [HIGH], [LOW])] == [None] * 7
    assert audit.observe([LOW]) is None
    assert audit.observe([LOW]) == Hole(HALF + 1, MAX_HASH_KEY)
