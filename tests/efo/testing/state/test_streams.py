from __future__ import annotations

from itertools import pairwise

import pytest

from efo.model import MAX_HASH_KEY
from efo.testing.errors import FakeError
from efo.testing.state.streams import StreamState, hash_key_of

NOW = 1_767_225_600_000
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


def make(shards=2, max_record_bytes=1000):
    return StreamState("s", "arn", shards, NOW / 1000, retention_hours=24, max_record_bytes=max_record_bytes)


def error_of(call, *args):
    with pytest.raises(FakeError) as caught:
        call(*args)
    return caught.value.code


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_the_initial_shards_cover_all_hash_keys_without_gaps(count):
    shards = make(count).open_shards
    assert shards[0].start == 0
    assert shards[-1].end == MAX_HASH_KEY
    assert all(a.end + 1 == b.start for a, b in pairwise(shards))


def test_a_partition_key_goes_to_the_shard_of_its_md5():
    assert hash_key_of("key") == 0x3C6E0B8A9C15224A8228B9A98CA1531D
    stream = make(4)
    shard, _ = stream.put("key", b"", NOW)
    assert shard.start <= hash_key_of("key") <= shard.end


def test_an_explicit_hash_key_overrides_the_partition_key():
    stream = make(2)
    assert stream.put("key", b"", NOW, "0")[0].id == FIRST
    assert stream.put("key", b"", NOW, str(MAX_HASH_KEY))[0].id == SECOND
    for wrong in ("", "-1", "x", str(MAX_HASH_KEY + 1), "9" * 10_000):
        assert error_of(stream.put, "key", b"", NOW, wrong) == "InvalidArgumentException"


def test_an_invalid_partition_key_or_record_size_is_rejected():
    stream = make(max_record_bytes=10)
    stream.put("k", b"x" * 9, NOW)
    for key, data in (("", b""), ("k" * 257, b""), ("k", b"x" * 10)):
        assert error_of(stream.put, key, data, NOW) == "InvalidArgumentException"


def test_with_auto_the_open_shards_get_the_records_in_turn_also_after_a_reshard():
    stream = make(2)
    stream.mode = "ON_DEMAND"
    stream.distribute("AUTO")
    assert stream.put_many([("k", b""), (None, b""), ("k", b""), (None, b"")], NOW) == 4
    assert [len(shard.records) for shard in stream.open_shards] == [2, 2]
    stream.split(FIRST, None, NOW + 1)
    found = [stream.put(None, b"", NOW + 2)[0].id for _ in range(6)]
    assert {found.count(shard.id) for shard in stream.open_shards} == {2}


def test_a_record_without_a_key_needs_auto_and_auto_needs_an_on_demand_stream():
    stream = make()
    assert error_of(stream.put, None, b"", NOW) == "ValidationException"
    assert error_of(stream.put, None, b"", NOW, "0") == "ValidationException"
    assert error_of(stream.distribute, "AUTO") == "InvalidArgumentException"
    assert error_of(stream.distribute, "RANDOM") == "ValidationException"
    stream.distribute("USER_PARTITION_KEY")


def test_records_keep_their_order_and_arrival_times_never_decrease():
    shard = make(1).open_shards[0]
    for now in (NOW, NOW + 7, NOW + 3):
        shard.append("k", b"", now)
    assert [r.approximate_arrival_timestamp for r in shard.records] == [NOW / 1000, (NOW + 7) / 1000, (NOW + 7) / 1000]
    numbers = [r.sequence_number for r in shard.records]
    assert numbers == sorted(set(numbers))


def test_put_many_notifies_each_shard_once():
    stream = make(2)
    calls = []
    for shard in stream.open_shards:
        shard.listeners.add(lambda s=shard: calls.append((s.id, len(s.records))))
    assert stream.put_many([(f"k{i}", b"x") for i in range(100)], NOW) == 100
    assert sorted(shard for shard, _ in calls) == [FIRST, SECOND]
    assert sum(count for _, count in calls) == 100


def test_put_many_keeps_the_records_before_an_invalid_one_and_notifies():
    stream = make(1, max_record_bytes=10)
    counts = []
    stream.open_shards[0].listeners.add(lambda: counts.append(len(stream.open_shards[0].records)))
    assert error_of(stream.put_many, [("k", b"x"), ("k", b"x" * 100)], NOW) == "InvalidArgumentException"
    assert counts == [1]


def test_the_children_of_a_split_start_after_all_sequence_numbers_of_the_parent():
    stream = make(1)
    parent = stream.open_shards[0]
    for _ in range(5):
        parent.append("k", b"", NOW + 50)  # later than the split: the clock goes back
    lower, upper = stream.split(FIRST, 100, NOW)
    assert (lower.start, lower.end, upper.start, upper.end) == (0, 99, 100, MAX_HASH_KEY)
    assert lower.parents == upper.parents == (FIRST,)
    assert not parent.is_open
    assert parent.records[-1].sequence_number < parent.ending_number < lower.starting_number < upper.starting_number
    assert stream.shard_of(99) is lower
    assert stream.shard_of(100) is upper
    assert [child.shard_id for child in (c.as_child() for c in parent.children)] == [lower.id, upper.id]


def test_a_split_without_a_hash_key_is_in_the_middle():
    lower, upper = make(1).split(FIRST, None, NOW)
    assert lower.end + 1 == upper.start == 2**127


@pytest.mark.parametrize("at", [2, MAX_HASH_KEY - 1])
def test_each_child_of_a_split_has_at_least_two_hash_keys(at):
    lower, upper = make(1).split(FIRST, at, NOW)
    assert (lower.end + 1, upper.start) == (at, at)


@pytest.mark.parametrize("at", [0, 1, MAX_HASH_KEY, MAX_HASH_KEY + 1])
def test_a_split_outside_the_shard_or_beside_its_bounds_is_rejected(at):
    stream = make(1)
    assert error_of(stream.split, FIRST, at, NOW) == "InvalidArgumentException"
    assert stream.open_shards[0].is_open


def test_a_merge_creates_one_child_of_both_parents():
    stream = make(3)
    child = stream.merge(FIRST, SECOND, NOW + 9)
    assert (child.start, child.end) == (0, stream.shard("shardId-000000000002").start - 1)
    assert child.parents == (FIRST, SECOND)
    assert (child.as_shard().parent_shard_id, child.as_shard().adjacent_parent_shard_id) == (FIRST, SECOND)
    for parent in (FIRST, SECOND):
        assert stream.shard(parent).children == (child,)
        assert stream.shard(parent).ending_number < child.starting_number


def test_a_merge_with_the_upper_shard_first_is_rejected():
    stream = make(2)
    assert error_of(stream.merge, SECOND, FIRST, NOW) == "InvalidArgumentException"
    assert len(stream.open_shards) == 2


def test_an_invalid_split_or_merge_is_rejected():
    stream = make(3)
    assert error_of(stream.merge, FIRST, "shardId-000000000002", NOW) == "InvalidArgumentException"
    assert error_of(stream.merge, FIRST, FIRST, NOW) == "InvalidArgumentException"
    assert error_of(stream.split, "shardId-9", None, NOW) == "ResourceNotFoundException"
    stream.split(FIRST, None, NOW)
    assert error_of(stream.split, FIRST, None, NOW) == "InvalidArgumentException"
    assert error_of(stream.merge, FIRST, SECOND, NOW) == "InvalidArgumentException"


@pytest.mark.parametrize(
    ("index", "records", "size", "expected"),
    [(0, 10, 1000, 5), (0, 3, 1000, 3), (0, 10, 25, 2), (0, 10, 1, 1), (4, 10, 1000, 1), (5, 10, 1000, 0)],
)
def test_a_read_obeys_its_limits_but_returns_a_first_record_of_any_size(index, records, size, expected):
    shard = make(1).open_shards[0]
    for _ in range(5):
        shard.append("k", b"x" * 9, NOW)
    assert shard.read(index, records, size) == shard.records[index : index + expected]
