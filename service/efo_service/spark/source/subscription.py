"""What a query reads: the options `subscribe`, `subscribePattern` and `assign` of Spark's Kafka source. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from efo.errors import ConfigurationError
from efo.third_party_errors import reason_of
from efo_service.spark.source.offsets import TopicPartition, parse_assignment

OPTIONS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class TopicSelection:
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


def parse_subscription(values: Mapping[str, str]) -> TopicSelection:
    """Return what is read. Raises ConfigurationError."""
    names = [name for name in OPTIONS if values.get(name, "").strip(" ,")]
    if len(names) != 1:
        hint = f"not {' and '.join(names)}" if names else 'for example .option("subscribe", "topic")'
        raise ConfigurationError(f'format("efo") needs exactly one of {", ".join(OPTIONS)}: {hint}')
    text = values[names[0]].strip()
    match names[0]:
        case "subscribe":
            return TopicSelection(tuple(topic.strip() for topic in text.split(",") if topic.strip()))
        case "subscribePattern":
            try:
                re.compile(text)
            except (re.error, RecursionError, OverflowError) as error:  # wrong, nested too deep, a count too large
                raise ConfigurationError(
                    f"subscribePattern={text[:200]!r} is not a regular expression: {reason_of(error)}"
                ) from error
            return TopicSelection(pattern=text)
        case _:
            partitions = parse_assignment("assign", text)
            return TopicSelection(tuple(sorted({tp.topic for tp in partitions})), partitions=partitions)
