"""Arithmetic of offsets, as in Spark's Kafka source. Pure: no files, no Spark.

An offset is the next record to read of a partition. Spark stores offsets as JSON and compares them as text. So equal
offsets must have equal text, and topics and partitions are sorted. A partition that is absent is at 0: new partitions
appear at any time and are read from their start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from efo.errors import ConfigurationError

MIN_TASK_ROWS: Final = 8_192
"""Fewer rows are not worth a separate task, unless the query asks for tasks."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


Offsets = Mapping[TopicPartition, int]


class Range(NamedTuple):
    """The offsets `start` to `end` - 1 of one partition."""

    topic: str
    partition: int
    start: int
    end: int


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in Spark's JSON form: topic, partition as text, offset."""
    result: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        if offset:
            result.setdefault(topic, {})[str(partition)] = offset
    return result


def from_json(value: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets from Spark's JSON form."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }


def parse_json(option: str, text: str) -> dict[TopicPartition, int]:
    """Parse the offsets of an option, such as {"topic": {"0": 23, "1": -2}}. Raises ConfigurationError."""
    try:
        value: Any = json.loads(text)
        offsets = from_json(value)
        if all(type(offset) is int and offset >= -2 for offset in offsets.values()):  # noqa: PLR2004 - Kafka's
            return offsets
    except (ValueError, AttributeError, RecursionError):
        pass
    raise ConfigurationError(
        f'{option}={text[:200]!r} is invalid: expected earliest, latest or JSON like {{"topic": {{"0": 23}}}},'
        " where -2 means earliest and -1 latest"
    )


def parse_assignment(option: str, text: str) -> frozenset[TopicPartition]:
    """Parse the partitions of an option, such as {"topic": [0, 1]}. Raises ConfigurationError."""
    try:
        value: Any = json.loads(text)
        partitions = [TopicPartition(topic, number) for topic, numbers in value.items() for number in numbers]
        if partitions and all(type(tp.partition) is int and tp.partition >= 0 for tp in partitions):
            return frozenset(partitions)
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass
    raise ConfigurationError(f'{option}={text[:200]!r} is invalid: expected JSON like {{"topic": [0, 1]}}')


def lag(start: Offsets, end: Offsets) -> int:
    """Return the number of records between two offsets, over all partitions. Where `start` is ahead it is 0."""
    return sum(max(0, offset - start.get(tp, 0)) for tp, offset in end.items())


def limit_rows(start: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return an end that is `limit` records after `start`. Each partition advances by its share of the backlog.

    A partition with a backlog advances by at least one record, so that a busy partition does not starve a quiet one.
    The result may therefore exceed `limit` by one record per partition.
    """
    backlog = {tp: end[tp] - start.get(tp, 0) for tp in sorted(end)}
    total = sum(backlog.values())
    if total <= limit:
        return dict(end)
    shares = {tp: max(1, rows * limit // total) if rows else 0 for tp, rows in backlog.items()}
    spare = max(0, limit - sum(shares.values()))
    for tp, rows in backlog.items():
        if spare and shares[tp] < rows:
            shares[tp] += 1
            spare -= 1
    return {tp: start.get(tp, 0) + rows for tp, rows in shares.items()}


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """Return the range to read of each partition, in order, without empty ranges."""
    return [Range(*tp, start.get(tp, 0), end[tp]) for tp in sorted(end) if end[tp] > start.get(tp, 0)]


def task_rows(whole: Sequence[Range], tasks: int | None, most: int | None, *, cores: int) -> int:
    """Return how many records a task has.

    `tasks`: the query asks for at least so many, as far as there are records; None: one for each core, but none for few
    records. `most`: the limit of a task, None if there is none.
    """
    total = sum(part.end - part.start for part in whole)
    rows = max(MIN_TASK_ROWS, -(-total // cores)) if tasks is None else max(1, total // tasks)
    return min(rows, most or rows)


def split_ranges(whole: Sequence[Range], rows: int) -> Iterator[list[Range]]:
    """Split the ranges into parts of `rows` records. The last has what is left."""
    task: list[Range] = []
    room = rows
    for topic, partition, start, end in whole:
        position = start
        while position < end:
            cut = min(end, position + room)
            task.append(Range(topic, partition, position, cut))
            room -= cut - position
            position = cut
            if not room:
                yield task
                task, room = [], rows
    if task:
        yield task
