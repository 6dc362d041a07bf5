"""Which shard a tail reads next, without calls."""

from __future__ import annotations

from math import inf

import pytest

from efo.model import Checkpoint, ChildShard, HashKeyRange, Record, Shard, ShardRead
from efo_service.operations.tail_plan import TailPlan

KEYS = HashKeyRange("0", "9")


def shard(key, *parents, closed=False):
    return Shard(key, KEYS, key.strip("s") or "0", "99" if closed else None, *parents)


def child(key, *parents):
    return ChildShard(key, parents, KEYS)


def plan(*shards, initial=Checkpoint.TRIM_HORIZON, since=None, **options):
    made = TailPlan(initial, since, interval=1.0, **options)
    made.sync(shards, 0.0)
    return made


def taken(made, now=0.0):
    found = []
    while (reading := made.take(now)) is not None:
        found.append(reading)
    return found


def keys(readings):
    return [reading.shard_id for reading in readings]


def read(*arrivals, iterator="next", behind=0):
    records = tuple(Record(str(number), at, b"", "k") for number, at in enumerate(arrivals, 1))
    return ShardRead(records, iterator, behind)


def test_shards_take_turns_and_the_longest_waiting_one_is_next():
    made = plan(shard("s1"), shard("s2"))
    first, second = taken(made)
    made.end_turn(second)
    made.end_turn(first, retry_at=0.5)
    assert made.next_turn == 0.5
    assert taken(made, 0.4) == []
    assert taken(made, 2.0) == [first, second]
    assert made.next_turn == inf


def test_the_child_of_a_merge_waits_for_both_parents():
    shards = [shard("s1", closed=True), shard("s2", closed=True), shard("s3", "s1", "s2")]
    made = plan(*shards)
    first, second = taken(made)
    made.ended(first, [child("s3", "s1", "s2")], shards, 1.0)
    assert taken(made, 1.0) == []
    made.ended(second, [child("s3", "s1", "s2")], shards, 2.0)
    assert keys(taken(made, 2.0)) == ["s3"]
    assert list(made.readings) == ["s3"]


def test_the_child_of_a_merge_waits_for_a_parent_that_has_not_started():
    """s3 is a child of s1, which is still read, when the other parent of s4 ends."""
    shards = [shard("s1", closed=True), shard("s2", closed=True), shard("s3", "s1", closed=True)]
    shards.append(shard("s4", "s3", "s2"))
    made = plan(*shards)
    first, second = taken(made)
    made.ended(second, [child("s4", "s3", "s2")], shards, 1.0)
    assert taken(made, 1.0) == []
    made.ended(first, [child("s3", "s1")], shards, 2.0)
    [third] = taken(made, 2.0)
    made.ended(third, [child("s4", "s3", "s2")], shards, 3.0)
    assert keys([third, *taken(made, 3.0)]) == ["s3", "s4"]


@pytest.mark.parametrize("initial", [Checkpoint.TRIM_HORIZON, Checkpoint.LATEST])
def test_children_start_although_the_listing_is_older_than_they_are(initial):
    made = plan(shard("s1"), initial=initial, since=None if initial == Checkpoint.TRIM_HORIZON else 5.0)
    [first] = taken(made)
    made.ended(first, [child("s2", "s1"), child("s3", "s1")], [shard("s1")], 1.0)
    assert keys(taken(made, 1.0)) == ["s2", "s3"]


def test_a_merge_with_a_shard_that_is_not_selected_does_not_wait_for_it_with_an_old_listing():
    shards = [shard("s1"), shard("s2")]
    made = plan(*shards, only=("s1",))
    [first] = taken(made)
    made.ended(first, [child("s3", "s1", "s2")], shards, 1.0)
    assert keys(taken(made, 1.0)) == ["s3"]


def test_descendants_of_selected_shards_are_followed_when_those_between_have_expired():
    made = plan(shard("s1"), shard("s9"), only=("s1",))
    [first] = taken(made)
    made.ended(first, [child("s2", "s1")], [shard("s2", "s1"), shard("s9")], 1.0)
    [second] = taken(made, 1.0)
    made.ended(second, (), [shard("s3", "s2"), shard("s9")], 2.0)
    assert keys([second, *taken(made, 2.0)]) == ["s2", "s3"]


def test_a_shard_continues_after_its_last_record():
    made = plan(shard("s1"), initial=Checkpoint.LATEST, since=5.0)
    [reading] = taken(made)
    assert str(reading.position) == "AT_TIMESTAMP 5.0"
    made.accept(reading, read(), 6.0)
    assert str(reading.position) == "AT_TIMESTAMP 5.0"
    made.accept(reading, read(6.0, 7.0), 7.0)
    assert str(reading.position) == "AFTER_SEQUENCE_NUMBER 2"


@pytest.mark.parametrize(
    ("answer", "asked_at", "shown", "is_done"),
    [
        (read(9.0, 10.0, 10.001), 20.0, 2, True),
        (read(9.0, 10.0), 10.0, 2, True),
        (read(9.0, 10.0), 9.9, 2, False),
        (read(9.0, behind=11_000), 20.0, 1, False),
        (read(behind=10_000), 20.0, 0, True),
    ],
)
def test_a_shard_is_done_at_the_end_or_at_the_first_later_record(answer, asked_at, shown, is_done):
    made = plan(shard("s1"), until=10.0)
    [reading] = taken(made)
    assert len(made.accept(reading, answer, asked_at)) == shown
    made.end_turn(reading)
    assert (made.readings == {}) is is_done
    assert (made.next_turn == inf) is is_done


def test_a_shard_that_ended_before_the_end_is_followed_by_its_children():
    made = plan(shard("s1", closed=True), shard("s2", "s1"), until=10.0)
    [reading] = taken(made)
    made.accept(reading, read(9.0, iterator=None), 20.0)
    assert reading.is_at_end
    made.ended(reading, [child("s2", "s1")], [shard("s1", closed=True), shard("s2", "s1")], 1.0)
    assert keys(taken(made, 1.0)) == ["s2"]


def test_a_closed_shard_with_later_records_is_done_without_its_children():
    made = plan(shard("s1", closed=True), shard("s2", "s1"), until=8.0)
    [reading] = taken(made)
    assert made.accept(reading, read(9.0, iterator=None), 20.0) == ()
    assert not reading.is_at_end
    assert made.readings == {}
