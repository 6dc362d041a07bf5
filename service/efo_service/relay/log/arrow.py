"""The record mapping for many records at once, as the log's columns. Python only reads the fields of each record.

It maps as `RecordMapping.message` does record by record; a test checks that both agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from efo.model import Record
from efo_service.relay.log.segments import SCHEMA
from efo_service.relay.mapping import HEADERS, REQUIRED_HEADERS, RecordMapping, encryption_header

CREATE_TIME: Final = 0
"""Kafka's timestampType for times that are set when the record is created. Here Kinesis sets it, at the arrival."""


def record_batch(
    records: Sequence[Record], mapping: RecordMapping, *, topic: str, partition: int, base: int
) -> pa.RecordBatch:
    """Return the records as one batch of SCHEMA, with offsets that start at `base`.

    Raises SinkError if the mapping's extractor fails.
    """
    rows = len(records)
    return pa.record_batch(
        [
            pa.array([record.partition_key for record in records], pa.string()).cast(pa.binary()),
            pa.array([record.data for record in records], pa.binary()),
            pa.repeat(pa.scalar(topic, pa.string()), rows),
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            pa.arange(base, base + rows),
            _timestamps([record.approximate_arrival_timestamp for record in records]),
            pa.repeat(pa.scalar(CREATE_TIME, pa.int32()), rows),
            _headers(records, mapping),
        ],
        schema=SCHEMA,
    )


def _timestamps(seconds: list[float]) -> Any:
    """Return times in whole milliseconds as microseconds, without floating-point errors."""
    milliseconds = pc.round(pc.multiply(pa.array(seconds, pa.float64()), 1000.0)).cast(pa.int64())
    return pc.multiply(milliseconds, 1000).cast(SCHEMA.field("timestamp").type)


def _headers(records: Sequence[Record], mapping: RecordMapping) -> Any:
    if mapping.extract is not None or any(record.tags for record in records):
        return _any_headers(records, mapping)
    return _fixed_headers(records, mapping)


def _any_headers(records: Sequence[Record], mapping: RecordMapping) -> Any:
    """Return headers with any names, record by record. Tags and trace contexts need it."""
    by_record = [mapping.headers(record) for record in records]
    pairs = [header for headers in by_record for header in headers]
    offsets = pa.array(accumulate(map(len, by_record), initial=0), pa.int32())
    keys = pa.array([key for key, _ in pairs], pa.string())
    return _lists(offsets, keys, pa.array([value for _, value in pairs], pa.binary()))


def _fixed_headers(records: Sequence[Record], mapping: RecordMapping) -> Any:
    """Return the headers of records that have no others than HEADERS. Nearly all records are like that."""
    rows = len(records)
    names = list(HEADERS[:REQUIRED_HEADERS])
    fields: list[list[str] | list[str | None]] = [
        [mapping.stream] * rows,
        [mapping.shard_id] * rows,
        [record.sequence_number for record in records],
        [str(record.sub_sequence_number) for record in records],
    ]
    optional = ([record.explicit_hash_key for record in records], [encryption_header(record) for record in records])
    for name, known in zip(HEADERS[REQUIRED_HEADERS:], optional, strict=True):
        if known.count(None) < rows:
            names.append(name)
            fields.append(known)
    width = len(fields)
    flat: list[str | None] = [None] * (width * rows)
    for index, field in enumerate(fields):
        flat[index::width] = field
    keys = _header_keys(tuple(names), 1 << rows.bit_length()).slice(0, width * rows)
    values = pa.array(flat, pa.string())
    offsets = pa.arange(0, width * rows + 1, width).cast(pa.int32())
    if values.null_count:
        is_known = values.is_valid()
        keys, values = keys.filter(is_known), values.filter(is_known)
        sizes = (width - row.count(None) for row in zip(*fields, strict=True))
        offsets = pa.array(accumulate(sizes, initial=0), pa.int32())
    return _lists(offsets, keys, values.cast(pa.binary()))


@lru_cache(maxsize=16)
def _header_keys(names: tuple[str, ...], rows: int) -> Any:
    """Return the header keys of many rows. They are cached, since creating them is a fifth of the work."""
    return pa.array(names * rows, pa.string())


def _lists(offsets: Any, keys: Any, values: Any) -> Any:
    header = SCHEMA.field("headers").type.value_type
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(header))
    return pa.ListArray.from_arrays(offsets, pairs, type=SCHEMA.field("headers").type)
