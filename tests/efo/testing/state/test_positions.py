from __future__ import annotations

import pytest

from efo.model import Position, PositionType
from efo.testing.errors import FakeError
from efo.testing.state.positions import starting_index
from efo.testing.state.shards import ShardState

NOW = 1_767_225_600_000


@pytest.fixture
def shard():
    shard = ShardState(3, 0, 10, NOW)
    for second in range(5):
        shard.append("k", b"", NOW + 1000 * second)
    return shard


def index(shard, position):
    return starting_index(shard, position, NOW / 1000 + 10)


def test_trim_horizon_and_latest_are_the_ends_of_the_shard(shard):
    assert index(shard, Position.trim_horizon()) == 0
    assert index(shard, Position.latest()) == 5


def test_at_and_after_the_sequence_number_of_a_record(shard):
    number = shard.records[2].sequence_number
    assert index(shard, Position.at(number)) == 2
    assert index(shard, Position.after(number)) == 3


def test_at_and_after_a_sequence_number_without_a_record(shard):
    number = shard.tick(NOW + 5000)
    shard.append("k", b"", NOW + 5000)
    assert index(shard, Position.at(number)) == index(shard, Position.after(number)) == 5
    assert index(shard, Position.at(shard.starting_number)) == 0


@pytest.mark.parametrize(("second", "expected"), [(-100, 0), (0, 0), (0.5, 1), (2, 2), (4, 4), (4.001, 5), (10, 5)])
def test_a_timestamp_means_the_first_record_at_or_after_it(shard, second, expected):
    assert index(shard, Position.at_timestamp(NOW / 1000 + second)) == expected


@pytest.mark.parametrize(
    "position",
    [
        Position.at_timestamp(NOW / 1000 + 10.001),
        Position(PositionType.AT_TIMESTAMP),
        Position(PositionType.AT_SEQUENCE_NUMBER),
        Position(PositionType.AFTER_SEQUENCE_NUMBER),
        Position.after("0"),
        Position.at(ShardState(4, 0, 10, NOW).starting_number),
        Position.at(ShardState(3, 0, 10, NOW - 1).starting_number),
    ],
)
def test_an_invalid_position_is_rejected(shard, position):
    with pytest.raises(FakeError) as caught:
        index(shard, position)
    assert caught.value.code == "InvalidArgumentException"
