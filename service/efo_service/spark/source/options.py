"""The options of the data source. Those with the same meaning as in Spark's Kafka source have the same names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from efo.errors import ConfigurationError
from efo_service.log.files import LogFiles
from efo_service.log.reader_offsets import check_reader
from efo_service.log.reading import POSITION
from efo_service.log.segments import SCHEMA
from efo_service.log.topic import log_files
from efo_service.object_store.url import StoreUrl, log_root
from efo_service.relay.files import whole_number
from efo_service.spark.source import subscription
from efo_service.spark.source.bounds import (
    ENDING,
    STARTING,
    STRATEGY,
    OffsetBound,
    check_order,
    ending_bound,
    starting_bound,
)
from efo_service.spark.source.subscription import TopicSelection, parse_subscription

COLUMNS: Final = tuple(SCHEMA.names)
"""The columns of Spark's Kafka source."""
DEFAULT_TRIGGER_DELAY: Final = 900.0
"""Seconds of `maxTriggerDelay`: the default of Spark's Kafka source."""

NAMES: Final = (
    "path",
    *subscription.OPTIONS,
    *reversed(STARTING),
    STRATEGY,
    *reversed(ENDING),
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "includePosition",
    "columns",
    "pushDownFilters",
    "failOnDataLoss",
    "reader",
    "storeOptions",
)
_NO_BROKER: Final = "the log is files, there is no broker to connect to or to wait for"
_NO_GROUP: Final = (
    "a query has no consumer group: Spark stores its offsets, and the option reader names it for retention"
)
_REFUSED: Final[Mapping[str, str]] = {
    "groupidprefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "kafkaconsumer.polltimeoutms": _NO_BROKER,
    "fetchoffset.numretries": _NO_BROKER,
    "fetchoffset.retryintervalms": _NO_BROKER,
    "usedeprecatedoffsetfetching": _NO_BROKER,
    "kafka.isolation.level": "each commit is visible as a whole or not at all, so there is nothing uncommitted to read",
}
"""Options of Spark's Kafka source that mean nothing here, and why, in lower case."""
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
"""The units of Spark's durations, in seconds. Without a unit it is milliseconds, as for Spark's Kafka source."""


@dataclass(frozen=True)
class Options:
    """The parsed options of the source.

    `log`: the log. `subscription`: what to read. `starting`, `ending`: None if not set.
    `max_rows`, `min_rows`: most and fewest records of a micro-batch. `trigger_delay`: seconds for which fewer than
    `min_rows` wait. `tasks`: the least number of tasks of a batch, None for one for each core. `task_rows`: most
    records of a task. `columns`: what is read of a record. `filters`: Spark
    pushes filters down. `fail_on_data_loss`: missing records are an error.
    `reader`: the name under which a query saves its reader offsets (efo_service.log.reader_offsets).
    """

    log: LogFiles
    subscription: TopicSelection
    starting: OffsetBound | None
    ending: OffsetBound | None
    max_rows: int | None
    min_rows: int | None
    trigger_delay: float
    tasks: int | None
    task_rows: int | None
    columns: tuple[str, ...]
    filters: bool
    fail_on_data_loss: bool
    reader: str | None
    names: frozenset[str]
    """The options that were set."""


def parse_options(arguments: Mapping[str, str]) -> Options:
    """Parse the options. Their names are case-insensitive. Raises ConfigurationError."""
    known = {name.lower(): name for name in NAMES}
    for name in arguments:
        if name.lower() not in known:
            raise ConfigurationError(f'format("efo") has no option {name!r}: {_hint(name.lower(), known)}')
    values = {known[name.lower()]: value for name, value in arguments.items()}
    if "path" not in values:
        raise ConfigurationError('format("efo") needs the log\'s directory or URL: .load("/path/of/the/log")')
    read = parse_subscription(values)
    if read.partitions and "reader" in values:
        raise ConfigurationError(
            "reader and assign exclude each other: retention would wait forever for this reader in other partitions."
            " Remove one of them"
        )
    max_rows, min_rows = _positive("maxOffsetsPerTrigger", values), _positive("minOffsetsPerTrigger", values)
    if max_rows and min_rows and min_rows > max_rows:
        raise ConfigurationError(f"minOffsetsPerTrigger={min_rows} is above maxOffsetsPerTrigger={max_rows}")
    if "maxTriggerDelay" in values and min_rows is None:
        raise ConfigurationError("maxTriggerDelay has no effect without minOffsetsPerTrigger: remove it")
    starting, ending = starting_bound(values, read), ending_bound(values, read)
    check_order(starting, ending)
    return Options(
        log=log_files(root_of(values), mapped=True),
        subscription=read,
        starting=starting,
        ending=ending,
        max_rows=max_rows,
        min_rows=min_rows,
        trigger_delay=_duration("maxTriggerDelay", values, DEFAULT_TRIGGER_DELAY),
        tasks=_positive("minPartitions", values),
        task_rows=_positive("maxRecordsPerPartition", values),
        columns=_columns(values),
        filters=_boolean("pushDownFilters", values, default=False),
        fail_on_data_loss=_boolean("failOnDataLoss", values, default=True),
        reader=check_reader(values["reader"]) if "reader" in values else None,
        names=frozenset(values),
    )


def root_of(values: Mapping[str, str]) -> Path | StoreUrl:
    """Return where a log is, from the options path and storeOptions. Raises ConfigurationError."""
    try:
        options = json.loads(values.get("storeOptions", "{}"))
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise ConfigurationError('storeOptions: expected JSON like {"region": "eu-west-1"}')
    return log_root(values["path"], options)


def _hint(name: str, known: Mapping[str, str]) -> str:
    if name in _REFUSED:
        return _REFUSED[name]
    if name.startswith("kafka."):
        return _NO_BROKER
    close = get_close_matches(name, known, 1)
    return f"did you mean {known[close[0]]}?" if close else f"the options are {', '.join(NAMES)}"


def _columns(values: Mapping[str, str]) -> tuple[str, ...]:
    left_out = set() if _boolean("includeHeaders", values, default=False) else {"headers"}
    position = POSITION.names if _boolean("includePosition", values, default=False) else ()
    if "columns" not in values:
        return (*(name for name in COLUMNS if name not in left_out), *position)
    for name in ("includeHeaders", "includePosition"):
        if name in values:
            raise ConfigurationError(f"columns and {name} exclude each other: name what you need in columns")
    known = {name.lower(): name for name in (*COLUMNS, *POSITION.names)}
    names = [name.strip() for name in values["columns"].split(",") if name.strip()]
    found = tuple(known.get(name.lower(), "") for name in names)
    if not found or "" in found or len(set(found)) < len(found):
        raise ConfigurationError(
            f"columns={values['columns'][:200]!r}: expected some of {', '.join(known.values())}, each once, between"
            " commas"
        )
    return found


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


def _duration(name: str, values: Mapping[str, str], default: float) -> float:
    """Return seconds."""
    text = values.get(name)
    if text is None:
        return default
    match = re.fullmatch(r"([0-9]{1,15}) *([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS or not int(match[1]):
        raise ConfigurationError(f"{name}={text[:200]!r}: expected a duration above 0 such as 30s or 15m")
    return int(match[1]) * _UNITS[match[2]]


def _boolean(name: str, values: Mapping[str, str], *, default: bool) -> bool:
    text = values.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{name}={text!r}: expected true or false")
    return text == "true"
