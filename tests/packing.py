"""What the native step returns for records, made in Python."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from efo.model import Record
from efo.protocol.packed import PackedRecords


def pack(records: Sequence[Record], rest: bytes = b"") -> PackedRecords:
    """Return records of one encryption type, at least one, as packed columns."""
    return PackedRecords((*packed_columns(records), rest))


def packed_columns(
    records: Sequence[Record],
) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, str | None]:
    """Return the columns alone."""
    numbers = [record.sequence_number.encode() for record in records]
    keys = [(record.partition_key or "").encode() for record in records]
    data = [record.data for record in records]
    has_key = bytes(record.partition_key is not None for record in records)
    (kind,) = {record.encryption_type for record in records}
    return (
        b"".join(numbers),
        _widths(numbers),
        struct.pack(f"={len(records)}d", *[record.approximate_arrival_timestamp for record in records]),
        b"".join(data),
        _widths(data),
        b"".join(keys),
        _widths(keys),
        b"" if all(has_key) else has_key,
        kind,
    )


def _widths(values: Sequence[bytes]) -> bytes:
    return struct.pack(f"={len(values)}i", *map(len, values))
