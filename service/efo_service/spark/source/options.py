"""The options of the data source: the names of Spark's Kafka source, where they mean the same."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from efo.errors import ConfigurationError
from efo_service.relay.log.reader_offsets import check_reader
from efo_service.spark.source.offsets import TopicPartition, parse_assignment, parse_json

EARLIEST: Final = -2
LATEST: Final = -1
"""How Kafka's offset JSON says "the oldest there is" and "after the newest"."""

_KNOWN: Final = (
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
_CHOICES: Final = ("subscribe", "subscribePattern", "assign")

Edge = int | Mapping[TopicPartition, int]
"""Where to start or to end: EARLIEST, LATEST, or per partition (the others then from EARLIEST to LATEST)."""


@dataclass(frozen=True)
class Subscription:
    """What is read: topics by name, topics by a pattern of their whole names, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    def choose(self, existing: Iterable[str]) -> list[str]:
        """Return the topics, of those that exist; one that is named is wanted whether it exists or not."""
        if self.pattern is not None:
            return [topic for topic in existing if re.fullmatch(self.pattern, topic)]
        return list(self.topics)

    def has(self, at: TopicPartition) -> bool:
        """Tell whether a partition of a chosen topic is read."""
        return not self.partitions or at in self.partitions


@dataclass(frozen=True)
class Options:
    """What was asked of the source.

    `root`: the log's directory. `subscription`: what to read. `starting`, `ending`: None where not said.
    `max_rows`: at most so many records per micro-batch. `tasks`: into how many tasks a batch is cut.
    `headers`: with the column of headers. `fail_on_data_loss`: missing records are an error. `reader`: the name under
    which a query tells the log what it is done with (efo_service.relay.log.reader_offsets).
    """

    root: Path
    subscription: Subscription
    starting: Edge | None
    ending: Edge | None
    max_rows: int | None
    tasks: int
    headers: bool
    fail_on_data_loss: bool
    reader: str | None


def parse_options(given: Mapping[str, str]) -> Options:
    """Read the options; their names in any case. Raises ConfigurationError."""
    known = {name.lower(): name for name in _KNOWN}
    for name in given:
        if name.lower() not in known:
            close = get_close_matches(name.lower(), known, 1)
            hint = f"did you mean {known[close[0]]}?" if close else f"it knows {', '.join(_KNOWN)}"
            raise ConfigurationError(f'format("efo") has no option {name!r}: {hint}')
    values = {known[name.lower()]: value for name, value in given.items()}
    if "path" not in values:
        raise ConfigurationError('format("efo") needs the log\'s directory: .load("/path/of/the/log")')
    subscription = _subscription(values)
    if subscription.partitions and "reader" in values:
        raise ConfigurationError(
            "reader and assign exclude each other: the log would keep all that is in the other partitions for ever, "
            "waiting for this reader. Leave one of them out"
        )
    return Options(
        root=Path(values["path"].removeprefix("file://")),
        subscription=subscription,
        starting=_edge("startingOffsets", values, subscription),
        ending=_edge("endingOffsets", values, subscription),
        max_rows=_positive("maxOffsetsPerTrigger", values),
        tasks=_positive("minPartitions", values) or os.cpu_count() or 1,
        headers=_boolean("includeHeaders", values, default=False),
        fail_on_data_loss=_boolean("failOnDataLoss", values, default=True),
        reader=check_reader(values["reader"]) if "reader" in values else None,
    )


def _subscription(values: Mapping[str, str]) -> Subscription:
    given = [name for name in _CHOICES if values.get(name, "").strip(" ,")]
    if len(given) != 1:
        said = f"not {' and '.join(given)}" if given else 'for example .option("subscribe", "topic")'
        raise ConfigurationError(f'format("efo") needs its topics, by one of {", ".join(_CHOICES)}: {said}')
    text = values[given[0]].strip()
    match given[0]:
        case "subscribe":
            return Subscription(tuple(topic.strip() for topic in text.split(",") if topic.strip()))
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise ConfigurationError(f"subscribePattern={text!r} is not a regular expression: {error}") from error
            return Subscription(pattern=text)
        case _:
            partitions = parse_assignment("assign", text)
            return Subscription(tuple(sorted({at.topic for at in partitions})), partitions=partitions)


def _edge(name: str, values: Mapping[str, str], subscription: Subscription) -> Edge | None:
    text = values.get(name)
    match text and text.strip().lower():
        case None | "":
            return None
        case "earliest" if name == "startingOffsets":
            return EARLIEST
        case "latest":
            return LATEST
    offsets = parse_json(name, text or "")
    named = {at.topic for at in offsets}
    if strangers := sorted(named - set(subscription.choose(named))):
        raise ConfigurationError(f"{name} speaks of {', '.join(strangers)}, which is not subscribed")
    if strange := sorted(at for at in offsets if not subscription.has(at)):
        raise ConfigurationError(
            f"{name} speaks of partition {strange[0].partition} of {strange[0].topic}: not assigned"
        )
    if name == "endingOffsets" and EARLIEST in offsets.values():
        raise ConfigurationError(f"{name} cannot be earliest ({EARLIEST})")
    return offsets


def _positive(name: str, values: Mapping[str, str]) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ConfigurationError(f"{name}={text!r}: expected a whole number above 0")
    return int(text)


def _boolean(name: str, values: Mapping[str, str], *, default: bool) -> bool:
    text = values.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{name}={text!r}: expected true or false")
    return text == "true"
