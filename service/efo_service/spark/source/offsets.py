"""Arithmetic of offsets, as Spark's Kafka source counts them. Pure: no files, no Spark.

Offsets are per topic and partition, "the next record to read". On Spark's side they are JSON, and Spark
compares them as text: the same offsets must always be the same text, so topics and partitions are in order.
A partition that is not mentioned stands at 0: partitions appear at any time, and are read from their start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from efo.errors import ConfigurationError


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
    """Return Spark's form: topic, then partition as text, then offset."""
    result: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        if offset:
            result.setdefault(topic, {})[str(partition)] = offset
    return result


def from_json(value: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets of Spark's form."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }


def parse_json(option: str, text: str) -> dict[TopicPartition, int]:
    """Read offsets that a user wrote, such as {"topic": {"0": 23, "1": -2}}. Raises ConfigurationError."""
    try:
        value: Any = json.loads(text)
        offsets = from_json(value)
        if all(type(offset) is int and offset >= -2 for offset in offsets.values()):  # noqa: PLR2004 - Kafka's
            return offsets
    except (ValueError, AttributeError):
        pass
    raise ConfigurationError(
        f'{option}={text!r} is not understood: expected earliest, latest or JSON like {{"topic": {{"0": 23}}}},'
        " where -2 means earliest and -1 latest"
    )


def parse_assignment(option: str, text: str) -> frozenset[TopicPartition]:
    """Read partitions that a user wrote, such as {"topic": [0, 1]}. Raises ConfigurationError."""
    try:
        value: Any = json.loads(text)
        partitions = [TopicPartition(topic, at) for topic, numbers in value.items() for at in numbers]
        if partitions and all(type(at.partition) is int and at.partition >= 0 for at in partitions):
            return frozenset(partitions)
    except (ValueError, AttributeError, TypeError):
        pass
    raise ConfigurationError(f'{option}={text!r} is not understood: expected JSON like {{"topic": [0, 1]}}')


def lag(start: Offsets, end: Offsets) -> int:
    """Return how many records are between two offsets, over all partitions; none where start is ahead."""
    return sum(max(0, offset - start.get(at, 0)) for at, offset in end.items())


def limit_rows(start: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return an end that is `limit` records after `start`: each partition that has any advances by its share.

    That is one record at least, so that a busy partition starves no quiet one: as many more as there are partitions.
    """
    backlog = {at: end[at] - start.get(at, 0) for at in sorted(end)}
    total = sum(backlog.values())
    if total <= limit:
        return dict(end)
    shares = {at: max(1, rows * limit // total) if rows else 0 for at, rows in backlog.items()}
    spare = max(0, limit - sum(shares.values()))
    for at, rows in backlog.items():
        if spare and shares[at] < rows:
            shares[at] += 1
            spare -= 1
    return {at: start.get(at, 0) + rows for at, rows in shares.items()}


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """Return what is to be read, per partition, in order."""
    return [Range(*at, start.get(at, 0), end[at]) for at in sorted(end) if end[at] > start.get(at, 0)]


def split_ranges(whole: Sequence[Range], tasks: int, *, least: int) -> Iterator[list[Range]]:
    """Cut the ranges into about `tasks` equal parts, none (but the last) below `least` records."""
    total = sum(part.end - part.start for part in whole)
    size = max(least, -(-total // tasks))
    task: list[Range] = []
    room = size
    for topic, partition, start, end in whole:
        at = start
        while at < end:
            cut = min(end, at + room)
            task.append(Range(topic, partition, at, cut))
            room -= cut - at
            at = cut
            if not room:
                yield task
                task, room = [], size
    if task:
        yield task
