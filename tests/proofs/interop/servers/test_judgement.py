from __future__ import annotations

import pytest

from proofs.interop.servers.judgement import Item, Verdict, data_of, judge


def item(number, *, shard="a", sequence=None, sub=0, key="k", data=None):
    text = str(number if sequence is None else sequence)
    return Item(shard, text, sub, key, data_of(number, 20) if data is None else data)


PUT = [item(number) for number in range(8, 13)]


def test_data_tells_its_number():
    assert [item(number).number for number in (0, 7, 1234)] == [0, 7, 1234]
    assert {len(data_of(number, 30)) for number in (0, 1234)} == {30}
    assert item(0, data=b"nonsense").number == 0


def test_all_of_it_once_and_in_order_is_right():
    verdict = judge(PUT, PUT)
    assert verdict == Verdict(5, 0, 0, 0)
    assert verdict.is_right


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        ([], Verdict(0, 5, 0, 0)),
        (PUT[1:], Verdict(4, 1, 0, 0)),
        ([*PUT, PUT[-1]], Verdict(6, 0, 1, 0)),
        # A sequence number is a number: 9 is before 10.
        ([PUT[0], PUT[2], PUT[1], *PUT[3:]], Verdict(5, 0, 0, 1)),
        # Whatever is not as it was put is missing, and something else came in its place.
        ([*PUT[:-1], item(12, shard="b")], Verdict(5, 1, 1, 0)),
        ([*PUT[:-1], item(12, key="l")], Verdict(5, 1, 1, 0)),
        ([*PUT[:-1], item(12, data=b"12.")], Verdict(5, 1, 1, 0)),
        ([*PUT[:-1], item(12, sub=1)], Verdict(5, 1, 1, 0)),
        ([*PUT, item(99)], Verdict(6, 0, 1, 0)),
    ],
)
def test_what_is_wrong(read, verdict):
    assert judge(PUT, read) == verdict
    assert not verdict.is_right


def test_a_key_is_in_order_across_shards():
    parent, child = item(1, shard="parent", sequence=50), item(2, shard="child", sequence=10)
    assert judge([parent, child], [parent, child]).order_violations == 0
    assert judge([parent, child], [child, parent]).order_violations == 1


def test_the_records_of_an_aggregate_are_in_order():
    some = [item(number, sequence=5, sub=number, key=f"k{number}") for number in range(3)]
    assert judge(some, some).is_right
    assert judge(some, [some[0], some[2], some[1]]).order_violations == 1
