"""Which records the native step is given to deaggregate, and what becomes of what it leaves to Python."""

from __future__ import annotations

import pytest

from efo.model import MAX_HASH_KEY, HashKeyRange, Record
from efo.protocol import deaggregation
from efo.protocol.aggregate_message import MAX_FIELDS
from efo.protocol.aggregation import AGGREGATE_KEY, AggregateEntry, AggregateMode, HashRangeFilter, aggregate
from efo.protocol.deaggregation import Deaggregation, deaggregate, expand_all

ALL = HashRangeFilter(None)


class FakeStep:
    """Returns `found` for each record, or what `found` has for it by its sequence number; of `at_once` in a call.

    `calls`: the sequence numbers, the limit and the range of each call.
    """

    def __init__(self, found=None, at_once=99):
        self.found, self.at_once, self.calls = found, at_once, []

    def aggregates(self, records, max_users, kept):
        self.calls.append(([record.sequence_number for record in records], max_users, kept))
        found = self.found if isinstance(self.found, dict) else dict.fromkeys(self.calls[-1][0], self.found)
        return [found.get(record.sequence_number) for record in records[: self.at_once]]


def record(number, size=1, key=AGGREGATE_KEY):
    return Record(str(number), 1.0, bytes(size), key)


def asked(step):
    return [[int(number) for number in numbers] for numbers, _, _ in step.calls]


def test_the_step_is_given_at_most_16_records_at_a_time():
    step = FakeStep()
    records = [record(number) for number in range(40)]
    assert list(expand_all(iter(records), ALL, step=step)) == [(one, Deaggregation((one,))) for one in records]
    assert asked(step) == [list(range(16)), list(range(16, 32)), list(range(32, 40))]
    assert {call[1:] for call in step.calls} == {(MAX_FIELDS, None)}


def test_the_step_is_given_records_up_to_a_size_and_none_above_it(monkeypatch):
    monkeypatch.setattr(deaggregation, "MAX_CHUNK", 100)
    step = FakeStep()
    records = [record(number, size) for number, size in enumerate([60, 40, 1, 99, 1, 101, 100, 0, 1])]
    assert [one for one, _ in expand_all(records, ALL, step=step)] == records
    assert asked(step) == [[0, 1], [2, 3], [4], [6, 7], [8]]


def test_what_the_step_leaves_is_deaggregated_in_python_in_its_place():
    found = (record(7),)
    entries = [AggregateEntry("k", b"x"), AggregateEntry("l", b"y")]
    left = Record("1", 1.0, aggregate(entries), AGGREGATE_KEY)
    out = list(expand_all([record(0), left, record(2)], ALL, step=FakeStep({"0": found, "2": found})))
    assert out == [
        (record(0), Deaggregation(found)),
        (left, deaggregate(left, step=None)),
        (record(2), Deaggregation(found)),
    ]


def test_the_step_is_asked_again_for_the_records_that_it_did_not_reach():
    step = FakeStep({str(number): (record(100 + number),) for number in range(5)}, at_once=2)
    out = list(expand_all([record(number) for number in range(5)], ALL, 3, step))
    assert [int(part.records[0].sequence_number) for _, part in out] == [100, 101, 102, 103, 104]
    assert asked(step) == [[0, 1, 2, 3, 4], [2, 3, 4], [4]]
    assert {limit for _, limit, _ in step.calls} == {3}


@pytest.mark.parametrize("at_once", [1, 2, 99])
@pytest.mark.parametrize("own_keys", ["aabab", "abaab", "baaba", "bbbbb", "aaaaa"])
def test_an_aggregate_that_is_kept_by_another_rule_than_the_first_of_its_group_is_left_to_python(own_keys, at_once):
    """The step is told one range for a group: that of its first record. The key `b` is none of the KPL's."""
    shard = HashRangeFilter(HashKeyRange("0", "9"), AggregateMode.DEDUPLICATE, [HashKeyRange("0", str(MAX_HASH_KEY))])
    records = [record(number, key=key) for number, key in enumerate(own_keys)]
    step = FakeStep(found := (record(7),), at_once)
    parts = [part for _, part in expand_all(records, shard, step=step)]
    for one, part, key in zip(records, parts, own_keys, strict=True):
        assert part == Deaggregation(found if key == own_keys[0] else (one,))
    assert {kept for _, _, kept in step.calls} == {shard.kept if own_keys[0] == "a" else None}
