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

EARLIEST: Final = -2
LATEST: Final = -1
"""What -2 and -1 mean as offsets in the JSON of Spark's Kafka source."""

STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""The options of each bound, the strongest first."""
STRATEGY: Final = "startingOffsetsByTimestampStrategy"


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
        if not (text.isascii() and text.isdecimal() and int(text[:20]) < 2**63):
            raise ConfigurationError(f"{for_all}={text[:200]!r}: expected milliseconds since 1970-01-01T00:00:00Z")
        return AtTime(for_all, int(text), or_latest)
    if text := values.get(for_each, "").strip():
        times = _times(for_each, text)
        _check_names(for_each, times, subscription)
        return AtTime(for_each, times, or_latest)
    text = values.get(offsets, "").strip()
    match text.lower():
        case "":
            return None
        case "earliest" if offsets == STARTING[2]:
            return EARLIEST
        case "latest":
            return LATEST
    found = parse_json(offsets, text)
    _check_names(offsets, found, subscription)
    return found


def _times(option: str, text: str) -> dict[TopicPartition, int]:
    try:
        value: Any = json.loads(text)
        times = from_json(value)
        if times and all(type(time) is int and 0 <= time < 2**63 for time in times.values()):
            return times
    except (ValueError, AttributeError, RecursionError):
        pass
    raise ConfigurationError(
        f'{option}={text[:200]!r} is invalid: expected JSON like {{"topic": {{"0": 1700000000000}}}}, in milliseconds'
        " since 1970-01-01T00:00:00Z"
    )


def _check_names(option: str, named: Mapping[TopicPartition, int], subscription: TopicSelection) -> None:
    topics = {tp.topic for tp in named}
    if not_subscribed := sorted(topics - set(subscription.select(topics))):
        raise ConfigurationError(f"{option} names topics that are not subscribed: {', '.join(not_subscribed)}")
    if not_assigned := sorted(tp for tp in named if not subscription.includes(tp)):
        raise ConfigurationError(
            f"{option} names partition {not_assigned[0].partition} of {not_assigned[0].topic}, which is not assigned"
        )
