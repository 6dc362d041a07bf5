"""All mistakes, by their subject, in the order of the page: those of `mistakes.txt`, and those in Spark's options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

from tools.mistakes.running import Kind, Mistake

_FILE: Final = Path(__file__).with_name("mistakes.txt")
_SPARK_OPTIONS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"path": "var/log"},
    {"path": "var/log", "subscribe": "orders", "subscribePattern": "ord.*"},
    {"path": "var/log", "subscribe": "orders", "startingOffset": "earliest"},
    {"path": "var/log", "subscribe": "orders", "startingOffsets": "first"},
    {"path": "var/log", "subscribe": "orders", "startingOffsets": "{orders: 1}"},
    {"path": "var/log", "subscribe": "orders", "startingTimestamp": "yesterday"},
    {"path": "var/log", "subscribe": "orders", "maxOffsetsPerTrigger": "many"},
    {"path": "var/log", "subscribe": "orders", "maxOffsetsPerTrigger": "0"},
    {"path": "var/log", "subscribe": "orders", "includeHeaders": "yes"},
    {"path": "var/log", "subscribe": "orders", "failOnDataLoss": "no"},
    {"path": "var/log", "subscribe": "orders", "columns": "key,valeu"},
    {"path": "var/log", "subscribe": "orders", "kafka.bootstrap.servers": "broker:9092"},
    {"path": "var/log", "assign": "orders"},
    {"path": "hdfs://name/log", "subscribe": "orders"},
)
"""Options of `format("efo")`."""
_PARSE: Final = "from efo_service.spark.source.options import parse_options\nparse_options({!r})"


def read_mistakes() -> Mapping[str, Sequence[Mistake]]:
    """Return the mistakes of each subject."""
    _, *sections = re.split(r"^=== ", _FILE.read_text(), flags=re.MULTILINE)
    return {**dict(map(_section, sections)), "Spark": [_spark(options) for options in _SPARK_OPTIONS]}


def _section(text: str) -> tuple[str, Sequence[Mistake]]:
    heading, *rows = text.strip().split("\n\n")
    kind, _, subject = heading.partition(": ")
    return subject, list(_rows(next(known for known in get_args(Kind) if known == kind), rows))


def _rows(kind: Kind, rows: Sequence[str]) -> Iterator[Mistake]:
    for row in rows:
        says, written = row.split("\n", 1) if row.startswith("says: ") else ("", row)
        yield Mistake(written, kind, says=says.removeprefix("says: "))


def _spark(options: Mapping[str, str]) -> Mistake:
    """Return a mistake in the options of `format("efo")`, as Spark passes them on."""
    given = "".join(f'.option("{name}", "{value}")' for name, value in options.items() if name != "path")
    load = f'.load("{options["path"]}")' if "path" in options else ".load()"
    return Mistake(_PARSE.format(dict(options)), shown=f'spark.read.format("efo"){given}{load}')
