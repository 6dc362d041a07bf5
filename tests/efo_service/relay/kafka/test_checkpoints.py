"""Which of a shard's records in the topic of positions stands, without a broker."""

import itertools

import pytest

from efo.model import Checkpoint
from efo_service.relay.kafka.checkpoints import Checkpoints, _Found, encode


def position(number):
    return encode("orders", "shard", Checkpoint(str(number)))


@pytest.fixture
def kept():
    """Return what is found of a key after these records were read, in their order."""

    def read(*found):
        checkpoints = object.__new__(Checkpoints)
        checkpoints._found = {}
        for one in found:
            checkpoints._keep(b"key", one)
        return checkpoints._found[b"key"].value

    return read


def test_in_a_partition_the_last_one_stands(kept):
    assert kept(_Found(3, position(9), 1), _Found(3, position(8), 2)) == position(8)
    assert kept(_Found(3, position(9), 1), _Found(3, None, 2)) is None
    assert kept(_Found(3, None, 1), _Found(3, position(1), 2)) == position(1)


def test_between_partitions_the_further_one_stands_in_whatever_order_they_are_read(kept):
    """The topic grew: the shard's positions went from partition 12 to 3, and back while an older worker ran."""
    found = [_Found(12, position(100), 5), _Found(3, position(90), 9), _Found(7, position(9), 9)]
    assert {kept(*order) for order in itertools.permutations(found)} == {position(100)}


def test_a_tombstone_ends_what_was_before_it_in_any_partition(kept):
    old, tombstone, new = _Found(12, position(100), 5), _Found(3, None, 6), _Found(1, position(2), 7)
    assert {kept(*order) for order in itertools.permutations([old, tombstone])} == {None}
    assert {kept(*order) for order in itertools.permutations([tombstone, new])} == {position(2)}


def test_what_is_no_position_is_met_and_not_passed_over(kept):
    found = [_Found(1, b"?", 1), _Found(2, position(5), 2)]
    assert {kept(*order) for order in itertools.permutations(found)} == {b"?"}
