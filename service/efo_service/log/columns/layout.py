"""The fields of records as columns, laid out as soon as a batch is written.

A commit has many records: when it is made, most are no longer in the processor's caches, and to read their fields
takes twice as long. So a batch becomes columns as long as it is there, and a commit joins those of a few batches
(arrow.py).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from efo.model import Checkpoint, Record, checkpoint_of
from efo.protocol.packed import PackedRecords
from efo_service.relay.mapping import HEADERS, REQUIRED_HEADERS, RecordMapping, encryption_header


@dataclass(frozen=True, slots=True)
class Columns:
    """Consecutive records of a shard, at least one, as far as they do not depend on offsets.

    `keys`, `values`: one after the other. `key_widths`, `value_widths`: their bytes, as native integers of 32 bits.
    `has_key`: a byte for each record, 1 if it has a partition key, else 0; empty if all have one.
    `arrivals`: arrival times in seconds since the epoch, as native doubles. `plain`: their headers; None unless these
    differ in the sequence number alone. Then `records` has the records, otherwise it is empty: so the memory of nearly
    all records is free again before the next ones arrive, and need not be fetched into the processor's caches.
    `first`, `last`: their positions.
    """

    rows: int
    first: Checkpoint
    last: Checkpoint
    keys: bytes
    key_widths: bytes
    values: bytes
    value_widths: bytes
    arrivals: bytes
    has_key: bytes
    plain: PlainHeaders | None
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class PlainHeaders:
    """The headers of records that are of no aggregate and have no others: all equal but for the sequence number.

    `shape`: what surrounds the sequence numbers. `numbers`: the sequence numbers, one after the other. `widths`: the
    digits of each, as native integers of 32 bits.
    """

    shape: HeaderShape
    numbers: bytes
    widths: bytes


@dataclass(frozen=True, slots=True)
class HeaderShape:
    """`names`: of the headers. `before`, `after`: the values before and after the sequence number."""

    names: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]


def columns_of(records: Sequence[Record], mapping: RecordMapping) -> Columns:
    """Return the columns of some records, at least one."""
    if isinstance(records, PackedRecords) and mapping.extract is None:
        return _of_packed(records, mapping)
    rows = len(records)
    keys, key_widths, has_key = _keys([record.partition_key for record in records])
    values = [record.data for record in records]
    plain = _plain_headers(records, mapping)
    return Columns(
        rows,
        checkpoint_of(records[0]),
        checkpoint_of(records[-1]),
        keys,
        key_widths,
        b"".join(values),
        struct.pack(f"={rows}i", *map(len, values)),
        struct.pack(f"={rows}d", *[record.approximate_arrival_timestamp for record in records]),
        has_key,
        plain,
        records if plain is None else (),
    )


def _of_packed(records: PackedRecords, mapping: RecordMapping) -> Columns:
    """Return the same for records that are columns already."""
    columns, first, last = records.columns, records[0], records[-1]
    return Columns(
        len(records),
        checkpoint_of(first),
        checkpoint_of(last),
        columns.keys,
        columns.key_widths,
        columns.data,
        columns.data_widths,
        columns.arrivals,
        columns.has_key,
        PlainHeaders(header_shape(mapping, encryption_header(first)), columns.numbers, columns.number_widths),
        (),
    )


def _keys(keys: list[str | None]) -> tuple[bytes, bytes, bytes]:
    """Return the keys one after the other, their widths, and which of them exist; empty if all do."""
    known = cast("list[str]", keys)
    try:
        joined = "".join(known)
    except TypeError:  # there is a None among them: to look for it before would take time for all others
        text, widths, _ = _keys([key or "" for key in keys])
        return text, widths, bytes(key is not None for key in keys)
    if joined.isascii():
        return joined.encode(), struct.pack(f"={len(known)}i", *map(len, known)), b""
    encoded = [key.encode() for key in known]
    return b"".join(encoded), struct.pack(f"={len(known)}i", *map(len, encoded)), b""


def _plain_headers(records: Sequence[Record], mapping: RecordMapping) -> PlainHeaders | None:
    if mapping.extract is not None:
        return None
    encryption = records[0].encryption_type
    for record in records:  # as fast as a comprehension, and it ends at the first one
        if (
            record.sub_sequence_number
            or record.tags
            or record.explicit_hash_key is not None
            or record.encryption_type != encryption
        ):
            return None
    numbers = [record.sequence_number for record in records]
    widths = struct.pack(f"={len(numbers)}i", *map(len, numbers))
    # Kinesis allows only digits in them, so that characters are bytes.
    shape = header_shape(mapping, encryption_header(records[0]))
    return PlainHeaders(shape, "".join(numbers).encode("ascii"), widths)


def header_shape(mapping: RecordMapping, encryption: str | None) -> HeaderShape:
    """Return the shape of the headers of plain records. `encryption`: the value of its header, None if omitted."""
    optional = () if encryption is None else (encryption,)
    names = HEADERS[:REQUIRED_HEADERS] + HEADERS[len(HEADERS) - len(optional) :]
    return HeaderShape(names, (mapping.stream, mapping.shard_id), ("0", *optional))
