"""What is shown of two samples: rates, and which shards come first."""

from __future__ import annotations

import pytest

from efo_service.top.view import view
from tests.efo_service.top.samples import sample, shard

A, B = (None, "a"), (None, "b")


def rates(shown) -> dict[str, tuple]:
    return {row.shard_id: (row.records_per_second, row.bytes_per_second) for row in shown.shards}


def test_a_rate_is_the_growth_of_the_counter_per_second():
    before = sample(10.0, shard("a"), records={A: 100}, size={A: 5000})
    now = sample(12.0, shard("a"), records={A: 150}, size={A: 6000})
    assert rates(view(now, before)) == {"a": (25.0, 500.0)}


def test_the_first_sample_has_no_rates():
    assert rates(view(sample(10.0, shard("a"), records={A: 100}, size={A: 1}))) == {"a": (None, None)}


def test_a_counter_that_fell_or_is_new_or_missing_has_no_rate():
    before = sample(10.0, records={A: 100}, size={A: 10, B: 10})
    now = sample(12.0, shard("a"), shard("b"), records={A: 4, B: 7}, size={A: 10})
    assert rates(view(now, before)) == {"a": (None, 0.0), "b": (None, None)}


def test_the_same_shard_of_two_workers_has_the_rate_of_each():
    shards = (shard("a", worker="w-1"), shard("a", worker="w-2"))
    workers = ({"worker_id": "w-1"}, {"worker_id": "w-2"})
    old = {("w-1", "a"): 10, ("w-2", "a"): 10}
    new = {("w-1", "a"): 10, ("w-2", "a"): 30}
    before = sample(0.0, *shards, records=old, workers=workers, worker=None)
    shown = view(sample(2.0, *shards, records=new, workers=workers, worker=None), before)
    assert [(row.worker_id, row.records_per_second) for row in shown.shards] == [("w-1", 0.0), ("w-2", 10.0)]
    assert (shown.worker_id, shown.workers) == (None, 2)


def test_the_shards_of_one_worker_have_its_name():
    shown = view(sample(0.0, shard("a")))
    assert (shown.shards[0].worker_id, shown.worker_id, shown.workers) == ("w-1", "w-1", None)


@pytest.mark.parametrize(("sort", "order"), [("lag", "cdbae"), ("rate", "abcde"), ("shard", "abcde")])
def test_the_shards_are_sorted_and_what_is_not_known_comes_last(sort, order):
    shards = [shard("e", None), shard("a"), shard("b", 2.0), shard("c", 9.0), shard("d", 2.0, condition="frozen")]
    old = {(None, name): 0 for name in "abcd"}
    new = {(None, "a"): 9, (None, "b"): 4, (None, "c"): 4, (None, "d"): 0}
    shown = view(sample(1.0, *shards, records=new), sample(0.0, *shards, records=old), sort)
    assert "".join(row.shard_id for row in shown.shards) == order


def test_shards_with_the_highest_rate_come_first():
    shards = [shard("a"), shard("b")]
    shown = view(sample(1.0, *shards, records={A: 1, B: 2}), sample(0.0, *shards, records={A: 0, B: 0}), "rate")
    assert [row.shard_id for row in shown.shards] == ["b", "a"]


def test_the_conditions_count_all_shards_and_a_limit_counts_those_that_it_leaves_out():
    shown = view(sample(0.0, shard("a"), shard("b", 20.0, condition="frozen"), shard("c"))).limited(2)
    assert shown.conditions == {"current": 2, "frozen": 1}
    assert [row.shard_id for row in shown.shards] == ["b", "a"]
    assert shown.shards_not_shown == 1
    assert shown.limited(1).shards_not_shown == 2
    assert shown.limited(5) == shown
