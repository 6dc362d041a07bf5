"""The options of the data source. Those with the same meaning as in Spark's Kafka source have the same names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from efo.errors import ConfigurationError
from efo_service.relay.files import whole_number
from efo_service.relay.log.reader_offsets import check_reader
from efo_service.spark.source.offsets import TopicPartition, parse_assignment, parse_json

EARLIEST: Final = -2
LATEST: Final = -1
"""What -2 and -1 mean as offsets in the JSON of Spark's Kafka source."""

_OPTIONS: Final = (
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "includeHeaders",
    "failOnDataLoss",
    "reader",
)
_SUBSCRIBE_OPTIONS: Final = ("subscribe", "subscribePattern", "assign")

OffsetBound = int | Mapping[TopicPartition, int]
"""Where to start or end: EARLIEST, LATEST, or offsets per partition.

Partitions without an offset then start at EARLIEST and end at LATEST.
"""


@dataclass(frozen=True)
class Subscription:
    """What is read: topics by name, topics whose full names match a pattern, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    def select(self, existing: Iterable[str]) -> list[str]:
        """Return the topics to read. Topics given by name are returned even if they do not exist."""
        if self.pattern is not None:
            return [topic for topic in existing if re.fullmatch(self.pattern, topic)]
        return list(self.topics)

    def includes(self, partition: TopicPartition) -> bool:
        """Return whether a partition of a selected topic is read."""
        return not self.partitions or partition in self.partitions


@dataclass(frozen=True)
class Options:
    """The parsed options of the source.

    `root`: the log's directory. `subscription`: what to read. `starting`, `ending`: None if not set.
    `max_rows`: most records of a micro-batch. `tasks`: how many tasks a batch is split into.
    `headers`: whether to add the column of headers. `fail_on_data_loss`: missing records are an error.
    `reader`: the name under which a query saves its reader offsets (efo_service.relay.log.reader_offsets).
    """

    root: Path
    subscription: Subscription
    starting: OffsetBound | None
    ending: OffsetBound | None
    max_rows: int | None
    tasks: int
    headers: bool
    fail_on_data_loss: bool
    reader: str | None


def parse_options(arguments: Mapping[str, str]) -> Options:
    """Parse the options. Their names are case-insensitive. Raises ConfigurationError."""
    known = {name.lower(): name for name in _OPTIONS}
    for name in arguments:
        if name.lower() not in known:
            close = get_close_matches(name.lower(), known, 1)
            hint = f"did you mean {known[close[0]]}?" if close else f"the options are {', '.join(_OPTIONS)}"
            raise ConfigurationError(f'format("efo") has no option {name!r}: {hint}')
    values = {known[name.lower()]: value for name, value in arguments.items()}
    if "path" not in values:
        raise ConfigurationError('format("efo") needs the log\'s directory: .load("/path/of/the/log")')
    subscription = _subscription(values)
    if subscription.partitions and "reader" in values:
        raise ConfigurationError(
            "reader and assign exclude each other: retention would wait forever for this reader in other partitions."
            " Remove one of them"
        )
    return Options(
        root=Path(values["path"].removeprefix("file://")),
        subscription=subscription,
        starting=_offset_bound("startingOffsets", values, subscription),
        ending=_offset_bound("endingOffsets", values, subscription),
        max_rows=_positive("maxOffsetsPerTrigger", values),
        tasks=_positive("minPartitions", values) or os.cpu_count() or 1,
        headers=_boolean("includeHeaders", values, default=False),
        fail_on_data_loss=_boolean("failOnDataLoss", values, default=True),
        reader=check_reader(values["reader"]) if "reader" in values else None,
    )


def _subscription(values: Mapping[str, str]) -> Subscription:
    names = [name for name in _SUBSCRIBE_OPTIONS if values.get(name, "").strip(" ,")]
    if len(names) != 1:
        hint = f"not {' and '.join(names)}" if names else 'for example .option("subscribe", "topic")'
        raise ConfigurationError(f'format("efo") needs exactly one of {", ".join(_SUBSCRIBE_OPTIONS)}: {hint}')
    text = values[names[0]].strip()
    match names[0]:
        case "subscribe":
            return Subscription(tuple(topic.strip() for topic in text.split(",") if topic.strip()))
        case "subscribePattern":
            try:
                re.compile(text)
            except (re.error, RecursionError, OverflowError) as error:  # wrong, nested too deep, a count too large
                raise ConfigurationError(
                    f"subscribePattern={text[:200]!r} is not a regular expression: {error}"
                ) from error
            return Subscription(pattern=text)
        case _:
            partitions = parse_assignment("assign", text)
            return Subscription(tuple(sorted({tp.topic for tp in partitions})), partitions=partitions)


def _offset_bound(name: str, values: Mapping[str, str], subscription: Subscription) -> OffsetBound | None:
    text = values.get(name)
    match text and text.strip().lower():
        case None | "":
            return None
        case "earliest" if name == "startingOffsets":
            return EARLIEST
        case "latest":
            return LATEST
    offsets = parse_json(name, text or "")
    named = {tp.topic for tp in offsets}
    if not_subscribed := sorted(named - set(subscription.select(named))):
        raise ConfigurationError(f"{name} names topics that are not subscribed: {', '.join(not_subscribed)}")
    if not_assigned := sorted(tp for tp in offsets if not subscription.includes(tp)):
        raise ConfigurationError(
            f"{name} names partition {not_assigned[0].partition} of {not_assigned[0].topic}, which is not assigned"
        )
    if name == "endingOffsets" and EARLIEST in offsets.values():
        raise ConfigurationError(f"{name} cannot be earliest ({EARLIEST})")
    return offsets


def _positive(name: str, values: Mapping[str, str]) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    try:
        number = whole_number(text)
    except ValueError:
        number = 0
    if not number:
        raise ConfigurationError(f"{name}={text[:200]!r}: expected a whole number above 0, and below 2**63")
    return number


def _boolean(name: str, values: Mapping[str, str], *, default: bool) -> bool:
    text = values.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{name}={text!r}: expected true or false")
    return text == "true"
