"""The lines in which records are shown to people and to programs, and which records match. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final, Literal

from rich.cells import cell_len, set_cell_size

from efo.checks import printable
from efo.model import Record
from efo_service.errors import UsageError
from efo_service.relay.jsonlines import Encoding, line
from efo_service.relay.mapping import RecordMapping

Format = Literal["text", "json", "raw"]
"""text: a line to read. json: the line of the sink `jsonl`, which `efo log export` has too. raw: the data as it is."""

_BYTES_PER_CELL: Final = 4
"""Of UTF-8, at most."""


def matcher(text: str | None, pattern: str | None, key: str | None) -> Callable[[Record], bool] | None:
    """Return a function that says whether a record matches all of these; None if none is given.

    `text` is in the data, `pattern` is a regular expression that the data contains, `key` is the partition key. Data is
    read as UTF-8. Raises UsageError if the pattern is not a regular expression.
    """
    tests: list[Callable[[Record], bool]] = []
    if key is not None:
        tests.append(lambda record: record.partition_key == key)
    if text is not None:
        wanted = text.encode()
        tests.append(lambda record: wanted in record.data)
    if pattern is not None:
        try:
            search = re.compile(pattern).search
        except re.error as error:
            raise UsageError(f"--regex {pattern}: {error}") from error
        tests.append(lambda record: search(record.data.decode(errors="replace")) is not None)
    return (lambda record: all(test(record) for test in tests)) if tests else None


def formatter(form: Format, stream: str, *, encoding: Encoding, width: int | None) -> Callable[[str, Record], bytes]:
    """Return a function that returns the line of a record of a shard.

    `encoding`: of the data in JSON. `width`: columns of a line of text at most; None: any. The function raises
    UsageError if the data does not have the encoding.
    """
    match form:
        case "text":
            return partial(_text, width)
        case "raw":
            return lambda _shard_id, record: record.data + b"\n"
        case "json":
            mappings: dict[str, RecordMapping] = {}
            return partial(_json, mappings, stream, encoding)


def _text(width: int | None, shard_id: str, record: Record) -> bytes:
    at = record.approximate_arrival_timestamp
    time = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else "-"
    data = record.data if width is None else record.data[: _BYTES_PER_CELL * width]
    key = "-" if record.partition_key is None else record.partition_key
    text = printable(f"{time} {shard_id} {key} {data.decode(errors='backslashreplace')}")
    if width is not None and cell_len(text) > width:
        text = set_cell_size(text, max(0, width - 1)) + "…"
    return text.encode(errors="backslashreplace") + b"\n"


def without_controls(document: bytes) -> bytes:
    """Return JSON with all characters escaped that are not printable. Encoders leave some that terminals obey."""
    text = document.decode()
    if text.replace("\n", "").isprintable():  # line breaks are between values, never in them
        return document
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text).encode()


def _json(mappings: dict[str, RecordMapping], stream: str, encoding: Encoding, shard_id: str, record: Record) -> bytes:
    mapping = mappings.get(shard_id)
    if mapping is None:
        mapping = mappings[shard_id] = RecordMapping(stream, shard_id)
    try:
        return without_controls(line(record, mapping, encoding))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the data of {shard_id} {record.sequence_number} is not UTF-8 ({error.reason}): use --encoding base64"
        ) from error
