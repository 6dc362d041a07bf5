from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from efo.model import MAX_HASH_KEY
from efo.testing.errors import FakeError
from efo.testing.state.scaling import count_scaling, scale
from efo.testing.state.streams import StreamState

NOW = 1_767_225_600.0
MILLIS = int(NOW * 1000)


def make(shards):
    return StreamState("s", "arn", shards, NOW, retention_hours=24, max_record_bytes=1000)


def check(stream, target):
    """Check that `target` open shards have all hash keys, and that parents and children are consistent."""
    shards = stream.open_shards
    assert len(shards) == target
    assert all(a.end + 1 == b.start for a, b in pairwise(shards))
    assert (shards[0].start, shards[-1].end) == (0, MAX_HASH_KEY)
    for shard in stream.shards.values():
        assert bool(shard.children) != shard.is_open
        for parent in shard.parents:
            assert shard in stream.shard(parent).children
            assert stream.shard(parent).ending_number < shard.starting_number


@given(st.integers(1, 12), st.lists(st.floats(0.5, 2), max_size=4))
def test_scaling_results_in_the_target_with_a_consistent_lineage(start, factors):
    stream = make(start)
    count = start
    for factor in factors:
        count = min(2 * count, max((count + 1) // 2, round(count * factor)))
        count_scaling(stream, count, NOW)
        scale(stream, count, MILLIS)
        check(stream, count)


@given(st.integers(1, 5), st.integers(2, 8))
def test_scaling_by_a_multiple_of_a_quarter_results_in_equal_shards(fours, quarters):
    stream = make(4 * fours)
    target = fours * quarters
    scale(stream, target, MILLIS)
    check(stream, target)
    equal = [n * (MAX_HASH_KEY + 1) // target for n in range(target)]
    assert all(
        abs(shard.start - start) <= 2 for shard, start in zip(stream.open_shards, equal, strict=True)
    )  # rounding


@pytest.mark.parametrize(("shards", "target", "total"), [(10, 13, 37), (5, 3, 7), (4, 3, 11), (2, 4, 6), (4, 2, 6)])
def test_scaling_creates_as_many_shards_as_aws_does(shards, target, total):
    stream = make(shards)
    scale(stream, target, MILLIS)
    assert len(stream.shards) == total


def test_scaling_from_four_to_three_opens_the_shards_that_aws_opens():
    stream = make(4)
    scale(stream, 3, MILLIS)
    assert [shard.number for shard in stream.open_shards] == [6, 9, 10]


def test_doubling_splits_each_shard_and_halving_merges_each_pair():
    stream = make(2)
    scale(stream, 4, MILLIS)
    assert [shard.parents for shard in stream.open_shards] == [
        ("shardId-000000000000",), ("shardId-000000000000",), ("shardId-000000000001",), ("shardId-000000000001",)
    ]  # fmt: skip
    scale(stream, 2, MILLIS)
    assert [len(shard.parents) for shard in stream.open_shards] == [2, 2]
    assert len(stream.shards) == 8


@pytest.mark.parametrize(("shards", "target"), [(2, 5), (5, 2), (1, 3), (100, 49)])
def test_more_than_double_and_less_than_half_are_rejected(shards, target):
    stream = make(shards)
    with pytest.raises(FakeError, match="InvalidArgumentException"):
        count_scaling(stream, target, NOW)
    assert len(stream.shards) == shards


def test_scaling_to_shards_of_a_few_hash_keys_is_rejected():
    stream = make(5)
    stream.split("shardId-000000000004", MAX_HASH_KEY - 3, MILLIS)  # the upper child has four hash keys
    stream.merge("shardId-000000000000", "shardId-000000000001", MILLIS)
    assert len(stream.open_shards) == 5
    with pytest.raises(FakeError, match="shards of less than 4096 hash keys"):
        count_scaling(stream, 10, NOW)
    assert stream.scalings == []


def test_an_eleventh_scaling_within_a_day_is_rejected():
    stream = make(2)
    for number in range(10):
        count_scaling(stream, 3 - number % 2, NOW + number)
    with pytest.raises(FakeError, match="LimitExceededException"):
        count_scaling(stream, 2, NOW + 24 * 3600 - 1)
    count_scaling(stream, 2, NOW + 24 * 3600)


def test_update_shard_count_reshards_the_stream(api):
    response = api("UpdateShardCount", StreamName="s", TargetShardCount=3, ScalingType="UNIFORM_SCALING")
    assert (response["StreamName"], response["CurrentShardCount"], response["TargetShardCount"]) == ("s", 2, 3)
    assert len(api("ListShards", StreamName="s", ShardFilter={"Type": "AT_LATEST"})["Shards"]) == 3
    wrong = {"StreamName": "s", "TargetShardCount": 9, "ScalingType": "UNIFORM_SCALING"}
    assert api.error_of("UpdateShardCount", **wrong) == "InvalidArgumentException"


async def test_scale_of_the_fake_reshards_the_stream(fake):
    fake.put("s", "k", b"")
    assert len(fake.scale("s", 4)) == 4
    assert fake.open_shards("s") == [f"shardId-{number:012d}" for number in (2, 3, 4, 5)]
