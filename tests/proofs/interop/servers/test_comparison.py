from __future__ import annotations

import pytest

from proofs.interop.servers.comparison import Comparison, Item, compare, data_of


def item(number, *, shard="a", sequence=None, sub=0, key="k", data=None):
    text = str(number if sequence is None else sequence)
    return Item(shard, text, sub, key, data_of(number, 20) if data is None else data)


PUT = [item(number) for number in range(8, 13)]


def test_the_number_is_read_from_the_data():
    assert [item(number).number for number in (0, 7, 1234)] == [0, 7, 1234]
    assert {len(data_of(number, 30)) for number in (0, 1234)} == {30}
    assert item(0, data=b"nonsense").number == 0


def test_records_that_arrive_once_and_in_order_pass():
    comparison = compare(PUT, PUT)
    assert comparison == Comparison(5, 0, 0, 0)
    assert comparison.passed


@pytest.mark.parametrize(
    ("read", "comparison"),
    [
        pytest.param([], Comparison(0, 5, 0, 0), id="nothing"),
        pytest.param(PUT[1:], Comparison(4, 1, 0, 0), id="missing"),
        pytest.param([*PUT, PUT[-1]], Comparison(6, 0, 1, 0), id="duplicated"),
        # Sequence numbers are compared as numbers: 9 is before 10.
        pytest.param([PUT[0], PUT[2], PUT[1], *PUT[3:]], Comparison(5, 0, 0, 1), id="out of order"),
        # A record that differs from the one put counts as lost, and the one that arrived as duplicated.
        pytest.param([*PUT[:-1], item(12, shard="b")], Comparison(5, 1, 1, 0), id="other shard"),
        pytest.param([*PUT[:-1], item(12, key="l")], Comparison(5, 1, 1, 0), id="other key"),
        pytest.param([*PUT[:-1], item(12, data=b"12.")], Comparison(5, 1, 1, 0), id="other data"),
        pytest.param([*PUT[:-1], item(12, sub=1)], Comparison(5, 1, 1, 0), id="other index in the aggregate"),
        pytest.param([*PUT, item(99)], Comparison(6, 0, 1, 0), id="unexpected"),
    ],
)
def test_each_fault_is_counted_and_fails(read, comparison):
    assert compare(PUT, read) == comparison
    assert not comparison.passed


def test_the_order_of_a_key_is_checked_across_shards():
    parent, child = item(1, shard="parent", sequence=50), item(2, shard="child", sequence=10)
    assert compare([parent, child], [parent, child]).order_violations == 0
    assert compare([parent, child], [child, parent]).order_violations == 1


def test_the_order_within_an_aggregate_is_checked():
    some = [item(number, sequence=5, sub=number, key=f"k{number}") for number in range(3)]
    assert compare(some, some).passed
    assert compare(some, [some[0], some[2], some[1]]).order_violations == 1
