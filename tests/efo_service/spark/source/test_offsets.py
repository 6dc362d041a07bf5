import json

import pytest
from hypothesis import given, strategies as st

from efo.errors import ConfigurationError
from efo_service.spark.source.offsets import (
    Range,
    TopicPartition,
    from_json,
    lag,
    limit_rows,
    parse_json,
    ranges,
    split_ranges,
    task_rows,
    to_json,
)

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "c-2"]), st.integers(0, 20))
offsets = st.dictionaries(partitions, st.integers(1, 10**12), max_size=8)


@given(offsets, st.randoms())
def test_equal_offsets_have_equal_text(value, dice) -> None:
    shuffled = list(value.items())
    dice.shuffle(shuffled)
    text = json.dumps(to_json(dict(shuffled)))
    assert text == json.dumps(to_json(value))
    assert from_json(json.loads(text)) == value


def test_partitions_are_sorted_by_number() -> None:
    value = {TopicPartition("t", number): 5 for number in (10, 9, 2)}
    assert json.dumps(to_json(value)) == '{"t": {"2": 5, "9": 5, "10": 5}}'


def test_a_partition_at_zero_is_omitted() -> None:
    assert to_json({TopicPartition("t", 0): 0, TopicPartition("t", 1): 3}) == {"t": {"1": 3}}
    assert to_json({TopicPartition("t", 0): 0}) == {}


@pytest.mark.parametrize(
    "text", ["", "soon", "[]", "3", '{"t": 3}', '{"t": {"x": 1}}', '{"t": {"0": "1"}}', '{"t": {"0": -3}}',
             '{"t": {"0": true}}', '{"t": {"0": 1.5}}', '{"t": null}'],
)  # fmt: skip
def test_invalid_offsets_are_rejected(text) -> None:
    with pytest.raises(ConfigurationError, match="startingOffsets="):
        parse_json("startingOffsets", text)


def test_offsets_are_parsed() -> None:
    assert parse_json("o", '{"t": {"1": -2, "0": 7}}') == {TopicPartition("t", 1): -2, TopicPartition("t", 0): 7}


@st.composite
def spans(draw):
    start = draw(st.dictionaries(partitions, st.integers(0, 100), max_size=6))
    new = draw(st.dictionaries(partitions, st.integers(0, 500), max_size=6))
    return start, {tp: start.get(tp, 0) + new.get(tp, 0) for tp in {**start, **new}}


@given(spans(), st.integers(1, 1500))
def test_a_limited_end_advances_by_the_limit(span, limit) -> None:
    start, end = span
    limited = limit_rows(start, end, limit)
    total = sum(part.end - part.start for part in ranges(start, end))
    # Each partition with a backlog advances by at least one record, even beyond the limit.
    size = sum(part.end - part.start for part in ranges(start, limited))
    assert min(total, limit) <= size <= max(min(total, limit), limit + len(ranges(start, end)))
    assert all(limited[tp] > start.get(tp, 0) for tp in end if end[tp] > start.get(tp, 0))
    assert all(start.get(tp, 0) <= limited[tp] <= end[tp] for tp in end)
    assert limited == limit_rows(start, end, limit)


def test_a_limit_starves_no_partition() -> None:
    big, small = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limit_rows({}, {big: 900, small: 100}, 100) == {big: 90, small: 10}
    assert limit_rows({}, {big: 1_000_000, small: 5}, 10_000) == {big: 9_999, small: 1}
    assert limit_rows({big: 7}, {big: 1_000_007, small: 0}, 10_000) == {big: 10_007, small: 0}


@given(spans(), st.integers(1, 200))
def test_tasks_cover_the_ranges_once_in_order(span, size) -> None:
    whole = ranges(*span)
    parts = list(split_ranges(whole, size))

    def rows(some) -> list[tuple[str, int, int]]:
        return [(p.topic, p.partition, offset) for p in some for offset in range(p.start, p.end)]

    assert rows(part for task in parts for part in task) == rows(whole)
    sizes = [len(rows(task)) for task in parts]
    assert set(sizes[:-1]) <= {size}
    assert all(0 < last <= size for last in sizes[-1:])


@given(spans(), st.integers(1, 8), st.none() | st.integers(1, 50))
def test_a_query_gets_the_tasks_that_it_asks_for_as_far_as_there_are_records(span, tasks, most) -> None:
    whole = ranges(*span)
    records = sum(part.end - part.start for part in whole)
    size = task_rows(whole, tasks, most, cores=2)
    assert len(list(split_ranges(whole, size))) >= min(tasks, records)
    assert most is None or size <= most


@pytest.mark.parametrize(
    ("records", "most", "expected"), [(6, None, 8192), (6, 2, 2), (100_000, None, 25_000), (100_000, 9_000, 9_000)]
)
def test_without_a_wish_few_records_are_one_task_and_many_one_for_each_core(records, most, expected) -> None:
    assert task_rows([Range("t", 0, 0, records)], None, most, cores=4) == expected


@given(offsets, offsets)
def test_the_lag_is_the_number_of_records_between_two_offsets(start, end) -> None:
    assert lag(start, end) == sum(part.end - part.start for part in ranges(start, end))
