import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    to_json,
)

places = st.builds(TopicPartition, st.sampled_from(["a", "b", "c-2"]), st.integers(0, 20))
offsets = st.dictionaries(places, st.integers(1, 10**12), max_size=8)


@given(offsets, st.randoms())
def test_the_same_offsets_are_the_same_text(value, dice) -> None:
    shuffled = list(value.items())
    dice.shuffle(shuffled)
    text = json.dumps(to_json(dict(shuffled)))
    assert text == json.dumps(to_json(value))
    assert from_json(json.loads(text)) == value


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    value = {TopicPartition("t", number): 5 for number in (10, 9, 2)}
    assert json.dumps(to_json(value)) == '{"t": {"2": 5, "9": 5, "10": 5}}'


def test_a_partition_at_its_start_is_not_mentioned() -> None:
    assert to_json({TopicPartition("t", 0): 0, TopicPartition("t", 1): 3}) == {"t": {"1": 3}}
    assert to_json({TopicPartition("t", 0): 0}) == {}


@pytest.mark.parametrize(
    "text", ["", "soon", "[]", "3", '{"t": 3}', '{"t": {"x": 1}}', '{"t": {"0": "1"}}', '{"t": {"0": -3}}',
             '{"t": {"0": true}}', '{"t": {"0": 1.5}}', '{"t": null}'],
)  # fmt: skip
def test_offsets_that_a_user_got_wrong(text) -> None:
    with pytest.raises(ConfigurationError, match="startingOffsets="):
        parse_json("startingOffsets", text)


def test_offsets_that_a_user_wrote() -> None:
    assert parse_json("o", '{"t": {"1": -2, "0": 7}}') == {TopicPartition("t", 1): -2, TopicPartition("t", 0): 7}


@st.composite
def spans(draw):
    start = draw(st.dictionaries(places, st.integers(0, 100), max_size=6))
    new = draw(st.dictionaries(places, st.integers(0, 500), max_size=6))
    return start, {at: start.get(at, 0) + new.get(at, 0) for at in {**start, **new}}


@given(spans(), st.integers(1, 1500))
def test_a_limited_end_is_as_far_as_the_limit_allows(span, limit) -> None:
    start, end = span
    limited = limit_rows(start, end, limit)
    total = sum(part.end - part.start for part in ranges(start, end))
    # Each partition that has any gives one, even where that is more than the limit.
    size = sum(part.end - part.start for part in ranges(start, limited))
    assert min(total, limit) <= size <= max(min(total, limit), limit + len(ranges(start, end)))
    assert all(limited[at] > start.get(at, 0) for at in end if end[at] > start.get(at, 0))
    assert all(start.get(at, 0) <= limited[at] <= end[at] for at in end)
    assert limited == limit_rows(start, end, limit)


def test_no_partition_starves_under_a_limit() -> None:
    big, small = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limit_rows({}, {big: 900, small: 100}, 100) == {big: 90, small: 10}
    assert limit_rows({}, {big: 1_000_000, small: 5}, 10_000) == {big: 9_999, small: 1}
    assert limit_rows({big: 7}, {big: 1_000_007, small: 0}, 10_000) == {big: 10_007, small: 0}


@given(spans(), st.integers(1, 8), st.integers(1, 200))
def test_tasks_cover_the_ranges_once_in_order(span, tasks, least) -> None:
    whole = ranges(*span)
    parts = list(split_ranges(whole, tasks, least=least))

    def rows(some) -> list[tuple[str, int, int]]:
        return [(p.topic, p.partition, offset) for p in some for offset in range(p.start, p.end)]

    assert rows(part for task in parts for part in task) == rows(whole)
    sizes = [len(rows(task)) for task in parts]
    assert len(parts) <= tasks
    assert all(size >= least for size in sizes[:-1])
    assert len(set(sizes[:-1])) <= 1


def test_a_few_records_are_one_task() -> None:
    assert list(split_ranges([Range("t", 0, 0, 5), Range("t", 1, 2, 3)], 8, least=8192)) == [
        [Range("t", 0, 0, 5), Range("t", 1, 2, 3)]
    ]


@given(offsets, offsets)
def test_the_lag_is_what_is_between(start, end) -> None:
    assert lag(start, end) == sum(part.end - part.start for part in ranges(start, end))
