"""Export of the log's records as JSON lines, for people and for programs that read neither Arrow nor Spark.

{"topic":"orders","partition":0,"offset":7,"key":"customer-7","value":"eyJpZCI6MX0=","timestamp":1700000000123,
"headers":[["kinesis.stream","orders"],...]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from efo.errors import ConfigurationError
from efo_service.relay.jsonlines import Encoding
from efo_service.relay.readable import ReadableLog


class ExportedLine(msgspec.Struct, frozen=True):
    """One line. msgspec encodes bytes in base64."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | bytes
    timestamp: int
    headers: list[tuple[str, str | None]]


_encode = msgspec.json.Encoder().encode


def export(
    log: ReadableLog,
    topic: str,
    *,
    partition: int | None = None,
    start: int | None = None,
    end: int | None = None,
    encoding: Encoding,
    on_gap: Callable[[str], None] | None = None,
) -> Iterator[bytes]:
    """Yield the lines of a topic or of one partition, for the offsets `start` to `end` - 1.

    Without `start`, a partition starts at its oldest record. `on_gap`: pass over records that are missing, and over
    partitions that are emptied or not in the catalog, and call it with a message for each, instead of raising
    SegmentMissingError or LogIncompleteError. Raises ConfigurationError, TopicNotFoundError, SegmentCorruptError,
    LogOwnerError and SinkError.
    """
    if on_gap is None:
        log.check(topic)
        catalog = log.catalog(topic)
    else:
        catalog, problems = log.checked_catalog(topic)
        for problem in problems:
            on_gap(problem)
    known = sorted(catalog.shards)
    if partition is not None and partition not in known:
        raise ConfigurationError(f"topic {topic} has no partition {partition}; it has: {', '.join(map(str, known))}")
    for number in known if partition is None else [partition]:
        newest = log.end(topic, number, catalog)
        if newest is None:
            if on_gap is not None and number in catalog.written:
                on_gap(log.emptied_message(topic, number))
            continue
        at = log.start(topic, number, catalog) if start is None else start
        last = newest if end is None else min(end, newest)
        for batch in log.parts(topic, number, at, last, catalog, allow_gaps=on_gap is not None):
            if batch.num_rows:
                first = batch.column("offset")[0].as_py()
                _tell_gap(on_gap, log.where(topic, number), at, first)
                at = first + batch.num_rows
            yield from _lines(batch, encoding)
        _tell_gap(on_gap, log.where(topic, number), at, last)


def _tell_gap(on_gap: Callable[[str], None] | None, where: str, start: int, end: int) -> None:
    if on_gap is not None and start < end:
        on_gap(f"{where}: the offsets {start} to {end - 1} are missing")


def _lines(batch: pa.RecordBatch, encoding: Encoding) -> Iterator[bytes]:
    names = ("topic", "partition", "offset", "key", "value", "headers")
    columns = [batch.column(name).to_pylist() for name in names]
    milliseconds = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000).to_pylist()
    for topic, partition, offset, key, value, headers, timestamp in zip(*columns, milliseconds, strict=True):
        exported = value
        if encoding == "utf-8":
            try:
                exported = value.decode()
            except UnicodeDecodeError as error:
                raise ConfigurationError(
                    f"the value at {topic}/{partition}/{offset} is not UTF-8 ({error.reason}): export it as base64"
                ) from error
        pairs = [(one["key"], None if one["value"] is None else one["value"].decode()) for one in headers]
        text = None if key is None else key.decode()
        yield _encode(ExportedLine(topic, partition, offset, text, exported, timestamp, pairs)) + b"\n"
