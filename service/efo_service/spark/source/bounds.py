"""Where a query starts and where it ends, from its options: offsets, or times. Pure.

The options are those of Spark's Kafka source, and so is their precedence: a time for all partitions goes before times
for each, and these before offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from efo.errors import ConfigurationError
from efo_service.spark.source.offsets import TopicPartition, from_json, parse_json
from efo_service.spark.source.subscription import TopicSelection
from efo_service.times import parse_time

EARLIEST: Final = -2
LATEST: Final = -1
"""What -2 and -1 mean as offsets in the JSON of Spark's Kafka source."""

STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""The options of each bound, the strongest first."""
STRATEGY: Final = "startingOffsetsByTimestampStrategy"
_TIMES: Final = "milliseconds since 1970-01-01T00:00:00Z, or a time with its zone like 2026-01-31T12:00:00Z"
_MAX_DIGITS: Final = 19
"""Numbers of more digits may not fit 64 bits."""


@dataclass(frozen=True)
class AtTime:
    """The first record of each partition that arrived at or after a time.

    `option`: the option that says so. `times`: milliseconds since the epoch, for all partitions or for each.
    `or_latest`: whether a partition without such a record is at its end; otherwise that is an error.
    """

    option: str
    times: int | Mapping[TopicPartition, int]
    or_latest: bool

    def of(self, partition: TopicPartition) -> int | None:
        """Return the time of a partition; None if the option does not name it."""
        return self.times if isinstance(self.times, int) else self.times.get(partition)


OffsetBound = int | Mapping[TopicPartition, int] | AtTime
"""Where to start or end: EARLIEST, LATEST, offsets of partitions, or a time.

Partitions that are not named then start at EARLIEST and end at LATEST.
"""


def check_order(starting: OffsetBound | None, ending: OffsetBound | None) -> None:
    """Raise ConfigurationError for a time of the start that is after that of the end."""
    if not (isinstance(starting, AtTime) and isinstance(ending, AtTime)):
        return
    if isinstance(starting.times, int) and isinstance(ending.times, int) and starting.times > ending.times:
        raise ConfigurationError(f"{starting.option} is after {ending.option}: nothing can be between them")


def names_latest(bound: OffsetBound | None) -> bool:
    """Return whether a bound is the end of any partition."""
    return bound == LATEST or (isinstance(bound, Mapping) and LATEST in bound.values())


def starting_bound(values: Mapping[str, str], subscription: TopicSelection) -> OffsetBound | None:
    """Return where a query without a checkpoint starts; None if no option says it. Raises ConfigurationError."""
    strategy = values.get(STRATEGY, "error").strip().lower()
    if strategy not in {"error", "latest"}:
        raise ConfigurationError(f"{STRATEGY}={values[STRATEGY][:200]!r}: expected error or latest")
    bound = _bound(STARTING, values, subscription, or_latest=strategy == "latest")
    if STRATEGY in values and not isinstance(bound, AtTime):
        raise ConfigurationError(f"{STRATEGY} has no effect without {' or '.join(STARTING[:2])}: remove it")
    return bound


def ending_bound(values: Mapping[str, str], subscription: TopicSelection) -> OffsetBound | None:
    """Return where a batch query ends; None if no option says it. Raises ConfigurationError."""
    bound = _bound(ENDING, values, subscription, or_latest=True)
    offsets: Iterable[int] = bound.values() if isinstance(bound, Mapping) else ()
    if bound == EARLIEST or EARLIEST in offsets:
        raise ConfigurationError(f"{ENDING[2]} cannot be earliest ({EARLIEST})")
    return bound


def _bound(
    names: tuple[str, str, str], values: Mapping[str, str], subscription: TopicSelection, *, or_latest: bool
) -> OffsetBound | None:
    for_all, for_each, offsets = names
    if text := values.get(for_all, "").strip():
        if (time := _time(text)) is None:
            raise ConfigurationError(f"{for_all}={text[:200]!r}: expected {_TIMES}")
        return AtTime(for_all, time, or_latest)
    if text := values.get(for_each, "").strip():
        times = _times(for_each, text)
        _check_names(for_each, times, subscription)
        return AtTime(for_each, times, or_latest)
    text = values.get(offsets, "").strip()
    match text.lower():
        case "":
            return None
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
    found = parse_json(offsets, text)
    _check_names(offsets, found, subscription)
    return found


def _time(value: object) -> int | None:
    """Return milliseconds since the epoch, from such a number or an ISO time with its zone; None if it is neither."""
    text = str(value) if type(value) in {int, str} else ""
    if text.isascii() and text.isdecimal():
        return int(text) if len(text) < _MAX_DIGITS else None
    at = None if text.startswith("-") else parse_time(text, 0.0)
    return None if at is None else round(at * 1000)


def _times(option: str, text: str) -> dict[TopicPartition, int]:
    try:
        value: Any = json.loads(text)
        times = {partition: _time(time) for partition, time in from_json(value).items()}
        if times and None not in times.values():
            return {partition: time for partition, time in times.items() if time is not None}
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass
    raise ConfigurationError(
        f'{option}={text[:200]!r} is invalid: expected JSON like {{"topic": {{"0": 1700000000000}}}}, each {_TIMES}'
    )


def _check_names(option: str, named: Mapping[TopicPartition, int], subscription: TopicSelection) -> None:
    topics = {tp.topic for tp in named}
    if not_subscribed := sorted(topics - set(subscription.select(topics))):
        raise ConfigurationError(f"{option} names topics that are not subscribed: {', '.join(not_subscribed)}")
    if not_assigned := sorted(tp for tp in named if not subscription.includes(tp)):
        raise ConfigurationError(
            f"{option} names partition {not_assigned[0].partition} of {not_assigned[0].topic}, which is not assigned"
        )
