"""The options of the data source: the names of Spark's Kafka source, where they mean the same."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from efo.errors import ConfigurationError
from service.spark.offsets import TopicPartition, parse_json

EARLIEST: Final = -2
LATEST: Final = -1
"""How Kafka's offset JSON says "the oldest there is" and "after the newest"."""

_KNOWN: Final = (
    "path",
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "includeHeaders",
    "failOnDataLoss",
)

Edge = int | Mapping[TopicPartition, int]
"""Where to start or to end: EARLIEST, LATEST, or per partition (the others then from EARLIEST to LATEST)."""


@dataclass(frozen=True)
class Options:
    """What was asked of the source.

    `root`: the log's directory. `topics`: those to read. `starting`, `ending`: None where not said.
    `max_rows`: at most so many records per micro-batch. `tasks`: into how many tasks a batch is cut.
    `headers`: with the column of headers. `fail_on_data_loss`: missing records are an error.
    """

    root: Path
    topics: tuple[str, ...]
    starting: Edge | None
    ending: Edge | None
    max_rows: int | None
    tasks: int
    headers: bool
    fail_on_data_loss: bool


def parse_options(given: Mapping[str, str]) -> Options:
    """Read the options; their names in any case. Raises ConfigurationError."""
    known = {name.lower(): name for name in _KNOWN}
    for name in given:
        if name.lower() not in known:
            close = get_close_matches(name.lower(), known, 1)
            hint = f"did you mean {known[close[0]]}?" if close else f"it knows {', '.join(_KNOWN)}"
            raise ConfigurationError(f'format("efo") has no option {name!r}: {hint}')
    values = {known[name.lower()]: value for name, value in given.items()}
    topics = tuple(topic.strip() for topic in values.get("subscribe", "").split(",") if topic.strip())
    if "path" not in values:
        raise ConfigurationError('format("efo") needs the log\'s directory: .load("/path/of/the/log")')
    if not topics:
        raise ConfigurationError('format("efo") needs its topics: .option("subscribe", "topic")')
    return Options(
        root=Path(values["path"].removeprefix("file://")),
        topics=topics,
        starting=_edge("startingOffsets", values, topics),
        ending=_edge("endingOffsets", values, topics),
        max_rows=_positive("maxOffsetsPerTrigger", values),
        tasks=_positive("minPartitions", values) or os.cpu_count() or 1,
        headers=_boolean("includeHeaders", values, default=False),
        fail_on_data_loss=_boolean("failOnDataLoss", values, default=True),
    )


def _edge(name: str, values: Mapping[str, str], topics: tuple[str, ...]) -> Edge | None:
    text = values.get(name)
    match text and text.strip().lower():
        case None | "":
            return None
        case "earliest" if name == "startingOffsets":
            return EARLIEST
        case "latest":
            return LATEST
    offsets = parse_json(name, text or "")
    if strangers := sorted({at.topic for at in offsets} - set(topics)):
        raise ConfigurationError(f"{name} speaks of {', '.join(strangers)}, which is not in subscribe")
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
