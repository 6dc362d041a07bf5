"""Which of a shard's records in the checkpoint topic wins. Without a broker."""

import itertools

import pytest

from efo.model import Checkpoint
from efo_service.relay.kafka.checkpoints import Checkpoints, _StoredValue, encode


def position(number):
    return encode("orders", "shard", Checkpoint(str(number)))


@pytest.fixture
def read_value():
    """Return the value of a key after these records were read, in this order."""

    def read(*found):
        checkpoints = object.__new__(Checkpoints)
        checkpoints._latest = {}
        for one in found:
            checkpoints._keep(b"key", one)
        return checkpoints._latest[b"key"].value

    return read


def test_within_a_partition_the_last_record_wins(read_value):
    assert read_value(_StoredValue(3, position(9), 1), _StoredValue(3, position(8), 2)) == position(8)
    assert read_value(_StoredValue(3, position(9), 1), _StoredValue(3, None, 2)) is None
    assert read_value(_StoredValue(3, None, 1), _StoredValue(3, position(1), 2)) == position(1)


def test_between_partitions_the_highest_position_wins_in_any_order(read_value):
    """Partitions were added: the shard's positions moved from partition 12 to 3, and older workers still use 12."""
    found = [_StoredValue(12, position(100), 5), _StoredValue(3, position(90), 9), _StoredValue(7, position(9), 9)]
    assert {read_value(*order) for order in itertools.permutations(found)} == {position(100)}


def test_a_tombstone_overrides_earlier_records_in_all_partitions(read_value):
    old, tombstone, new = _StoredValue(12, position(100), 5), _StoredValue(3, None, 6), _StoredValue(1, position(2), 7)
    assert {read_value(*order) for order in itertools.permutations([old, tombstone])} == {None}
    assert {read_value(*order) for order in itertools.permutations([tombstone, new])} == {position(2)}


def test_an_invalid_value_is_reported_and_not_ignored(read_value):
    found = [_StoredValue(1, b"?", 1), _StoredValue(2, position(5), 2)]
    assert {read_value(*order) for order in itertools.permutations(found)} == {b"?"}
