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
from efo_service.relay.record_size import RecordSize

CREATE_TIME: Final = 0
"""Kafka's timestampType for times that are set when the record is created. Here Kinesis sets it, at the arrival."""

_ROW: Final = 40
"""Bytes of a row besides key, value, topic and headers: two integers of 8, two of 4 and four offsets of 4."""
_HEADER: Final = 8
"""Bytes of a header besides its name and value: two offsets of 4."""


def size_in_log(mapping: RecordMapping, topic: str) -> RecordSize:
    """Return a function for the bytes that records take as columns of SCHEMA."""
    return RecordSize(mapping, record=_ROW + len(topic), header=_HEADER)


def record_batch(
    records: Sequence[Record], mapping: RecordMapping, *, topic: str, partition: int, base: int
) -> pa.RecordBatch:
    """Return the records as one batch of SCHEMA, with offsets that start at `base`.

    Raises RecordRefusedError if the mapping's extractor fails.
    """
    rows = len(records)
    return pa.record_batch(
        [
            pa.array([record.partition_key for record in records], pa.string()).cast(pa.binary()),
            _binary([record.data for record in records]),
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


def _binary(values: list[bytes]) -> Any:
    """Return a binary column. Arrow's own conversion copies large values twice: its buffer grows meanwhile."""
    return _column(b"".join(values), _offsets([0, *map(len, values)]), len(values))


def _column(content: bytes, offsets: pa.Buffer, rows: int) -> Any:
    return pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(content)])


def _offsets(widths: Sequence[int]) -> pa.Buffer:
    """Return the offsets of a column. `widths`: a zero, and the widths of its values."""
    return pc.cumulative_sum_checked(pa.array(widths, pa.int32())).buffers()[1]


def _headers(records: Sequence[Record], mapping: RecordMapping) -> Any:
    if mapping.extract is not None or any([record.tags for record in records]):  # noqa: C419 - a list is faster
        return _any_headers(records, mapping)
    encryptions = {record.encryption_type for record in records}
    if len(encryptions) > 1 or any([r.sub_sequence_number or r.explicit_hash_key is not None for r in records]):  # noqa: C419
        return _fixed_headers(records, mapping)
    return _plain_headers(records, mapping)


def _plain_headers(records: Sequence[Record], mapping: RecordMapping) -> Any:
    """Return the headers of records that differ only in the sequence number: plain ones, not of an aggregate."""
    rows, names = len(records), list(HEADERS[:REQUIRED_HEADERS])
    before, after = [mapping.stream, mapping.shard_id], ["0"]
    if (encryption := encryption_header(records[0])) is not None:
        names.append(HEADERS[-1])
        after.append(encryption)
    numbers = [record.sequence_number for record in records]
    # Kinesis allows only ASCII in all of them, so that characters are bytes.
    content = "".join((*before, "".join((*after, *before)).join(numbers), *after)).encode("ascii")
    lengths = set(map(len, numbers))
    if len(lengths) == 1:  # as on AWS
        widths = (*map(len, before), *lengths, *map(len, after))
        offsets = _repeated_offsets(widths, 1 << rows.bit_length())
    else:
        offsets = _offsets([0, *(width for number in numbers for width in map(len, (*before, number, *after)))])
    width = len(names)
    keys = _header_keys(tuple(names), 1 << rows.bit_length()).slice(0, width * rows)
    return _lists(_every(width, rows), keys, _column(content, offsets, width * rows))


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
    offsets = _every(width, rows)
    if values.null_count:
        is_known = values.is_valid()
        keys, values = keys.filter(is_known), values.filter(is_known)
        sizes = (width - row.count(None) for row in zip(*fields, strict=True))
        offsets = pa.array(accumulate(sizes, initial=0), pa.int32())
    return _lists(offsets, keys, values.cast(pa.binary()))


def clear_caches() -> None:
    """Forget the columns that are kept for later batches: before the memory pool that they came from ends."""
    _header_keys.cache_clear()
    _repeated_offsets.cache_clear()


@lru_cache(maxsize=16)
def _header_keys(names: tuple[str, ...], rows: int) -> Any:
    """Return the header keys of many rows. They are cached, since creating them is a fifth of the work."""
    return pa.array(names * rows, pa.string())


@lru_cache(maxsize=16)
def _repeated_offsets(widths: tuple[int, ...], rows: int) -> pa.Buffer:
    """Return the offsets of values whose widths repeat in each row. A column of fewer rows uses the first ones."""
    return _offsets((0, *widths * rows))


def _every(width: int, rows: int) -> Any:
    """Return the offsets of lists with `width` elements."""
    return pa.arange(0, width * rows + 1, width).cast(pa.int32())


def _lists(offsets: Any, keys: Any, values: Any) -> Any:
    header = SCHEMA.field("headers").type.value_type
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(header))
    return pa.ListArray.from_arrays(offsets, pairs, type=SCHEMA.field("headers").type)
