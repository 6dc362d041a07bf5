"""The record mapping for many records at once, as the columns of layout.py, joined to one Arrow batch.

It maps as `RecordMapping.message` does record by record; a test checks that both agree.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from efo.model import Record
from efo_service.log.columns.layout import Columns, PlainHeaders
from efo_service.log.segments import SCHEMA
from efo_service.relay.mapping import HEADERS, REQUIRED_HEADERS, RecordMapping, encryption_header

CREATE_TIME: Final = 0
"""Kafka's timestampType for times that are set when the record is created. Here Kinesis sets it, at the arrival."""


def record_batch(
    parts: Sequence[Columns], mapping: RecordMapping, *, topic: str, partition: int, base: int
) -> pa.RecordBatch:
    """Return the records of all parts, at least one, as one batch of SCHEMA, with offsets that start at `base`.

    Raises RecordRefusedError if the mapping's extractor fails.
    """
    rows = sum(part.rows for part in parts)
    return pa.record_batch(
        [
            _binary([part.keys for part in parts], [part.key_widths for part in parts], rows, _nulls(parts)),
            _binary([part.values for part in parts], [part.value_widths for part in parts], rows),
            pa.repeat(pa.scalar(topic, pa.string()), rows),
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            pa.arange(base, base + rows),
            _timestamps([part.arrivals for part in parts], rows),
            pa.repeat(pa.scalar(CREATE_TIME, pa.int32()), rows),
            _headers(parts, mapping, rows),
        ],
        schema=SCHEMA,
    )


def _timestamps(arrivals: list[bytes], rows: int) -> Any:
    """Return times in whole milliseconds as microseconds, without floating-point errors."""
    seconds = pa.Array.from_buffers(pa.float64(), rows, [None, pa.py_buffer(b"".join(arrivals))])
    milliseconds = pc.round(pc.multiply(seconds, 1000.0)).cast(pa.int64())
    return pc.multiply(milliseconds, 1000).cast(SCHEMA.field("timestamp").type)


def _nulls(parts: Sequence[Columns]) -> pa.Buffer | None:
    """Return the bitmap of the keys that exist; None if all do."""
    if not any([part.has_key for part in parts]):  # noqa: C419 - a list is faster
        return None
    flags = b"".join([part.has_key or b"\x01" * part.rows for part in parts])
    flags_column = pa.Array.from_buffers(pa.uint8(), len(flags), [None, pa.py_buffer(flags)])
    bitmap: pa.Buffer = flags_column.cast(pa.bool_()).buffers()[1]
    return bitmap


def _binary(contents: list[bytes], widths: list[bytes], rows: int, validity: pa.Buffer | None = None) -> Any:
    return _column(b"".join(contents), _summed_widths(b"".join(widths), rows), rows, validity)


_ZERO: Final = bytes(4)


def _column(content: bytes, offsets: pa.Buffer, rows: int, validity: pa.Buffer | None = None) -> Any:
    return pa.Array.from_buffers(pa.binary(), rows, [validity, offsets, pa.py_buffer(content)])


def _offsets(widths: Sequence[int]) -> pa.Buffer:
    """Return the offsets of a column. `widths`: a zero, and the widths of its values."""
    return _summed(pa.array(widths, pa.int32()))


def _summed_widths(widths: bytes, rows: int) -> pa.Buffer:
    """Return the offsets of a column whose values have these widths, as native integers of 32 bits."""
    return _summed(pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(_ZERO + widths)]))


def _summed(widths: Any) -> pa.Buffer:
    return pc.cumulative_sum_checked(widths).buffers()[1]


def _headers(parts: Sequence[Columns], mapping: RecordMapping, rows: int) -> Any:
    plain = [part.plain for part in parts if part.plain is not None]
    if len(plain) == len(parts) and all(one.shape == plain[0].shape for one in plain):
        return _plain_headers(plain, rows)
    return pa.concat_arrays([_headers_of_part(part, mapping) for part in parts])


def _headers_of_part(part: Columns, mapping: RecordMapping) -> Any:
    if part.plain is not None:
        return _plain_headers([part.plain], part.rows)
    if mapping.extract is not None or any([record.tags for record in part.records]):  # noqa: C419 - a list is faster
        return _any_headers(part.records, mapping)
    return _fixed_headers(part.records, mapping)


def _plain_headers(plain: Sequence[PlainHeaders], rows: int) -> Any:
    """Return the headers of several parts, of so many records, whose headers have the same shape."""
    shape, numbers, widths = (
        plain[0].shape,
        b"".join([one.numbers for one in plain]),
        b"".join([one.widths for one in plain]),
    )
    # Kinesis allows only ASCII in all of them, so that characters are bytes.
    before, after = ([value.encode("ascii") for value in values] for values in (shape.before, shape.after))
    if widths == widths[:4] * rows:  # as on AWS
        (width,) = struct.unpack_from("=i", widths)
        single = _repeated_offsets((width,), 1 << rows.bit_length())
        offsets = _repeated_offsets((*map(len, before), width, *map(len, after)), 1 << rows.bit_length())
    else:
        single = _summed_widths(widths, rows)
        sizes = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(widths)]).to_pylist()
        offsets = _offsets([0, *(size for number in sizes for size in (*map(len, before), number, *map(len, after)))])
    values = pc.binary_join_element_wise(b"".join(before), _column(numbers, single, rows), b"".join(after), b"")
    count = len(shape.names) * rows
    keys = _header_keys(shape.names, 1 << rows.bit_length()).slice(0, count)
    content = pa.Array.from_buffers(pa.binary(), count, [None, offsets, values.buffers()[2]])
    return _lists(_every(len(shape.names), rows), keys, content)


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
