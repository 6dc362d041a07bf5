"""What the native step returns for records, made in Python."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from efo.model import Record
from efo.protocol.aggregation import MAGIC
from efo.protocol.eventstream import EventStreamDecoder
from efo.protocol.messages import SubscribeToShardEvent, parse_message
from efo.protocol.native import Packed
from efo.protocol.packed import PackedRecords, Wanted


def pack(records: Sequence[Record], rest: bytes = b"") -> PackedRecords:
    """Return records of one encryption type, at least one, as packed columns."""
    return PackedRecords((*packed_columns(records), rest), Wanted())


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


class PackingStep:
    """A native step in Python, which packs the records of events without aggregates. `packs`: of how many."""

    def __init__(self) -> None:
        self.packs = 0

    def split_data(self, *_arguments: object) -> None:
        """Leave DATA to the Python step."""

    def packed(self, first: bytes, later: Sequence[bytes], start: int, length: int, _headers: bytes) -> Packed | None:
        """Return the records of an event as packed columns."""
        decoder = EventStreamDecoder()
        decoder.receive_data(b"".join((first, *later))[start : start + length])
        message = decoder.next_message()
        assert message is not None
        event = parse_message(message)
        assert isinstance(event, SubscribeToShardEvent)
        kinds = {record.encryption_type for record in event.records}
        if len(kinds) != 1 or any(record.data.startswith(MAGIC) for record in event.records):
            return None
        self.packs += 1
        rest = msgspec.json.encode(msgspec.structs.replace(event, records=()))
        return (*packed_columns(event.records), rest)

    def event(self, *_arguments: object) -> None:
        """Leave it to the Python step."""
