"""KPL aggregation and deaggregation: many user records in one Kinesis record.

A KPL aggregate is MAGIC | protobuf AggregatedRecord | MD5 of the protobuf (AWS: "KPL aggregated record format"):

    AggregatedRecord { 1: repeated string partition_key_table  2: repeated string explicit_hash_key_table
                       3: repeated Record }
    Record { 1: partition key index   2: explicit hash key index (optional)   3: data   4: repeated Tag }
    Tag { 1: key   2: value (optional) }

A record may begin with MAGIC and still not be a valid aggregate: its MD5 is wrong, its protobuf does not parse, or an
index is outside its table. Such a record is passed on unchanged, as one plain record. Damaged data is never dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import md5
from typing import Final, NamedTuple

from efo.errors import EfoError
from efo.model import MAX_HASH_KEY, HashKeyRange, Record

MAGIC: Final = b"\xf3\x89\x9a\xc2"
_MD5_LENGTH: Final = 16
_MAX_HASH_KEY_DIGITS: Final = len(str(MAX_HASH_KEY))


class AggregateMode(StrEnum):
    """What to do with user records whose hash key is outside the shard's range.

    After a reshard, an aggregate may arrive in another shard than the KPL predicted. The KPL then sends those user
    records again, so the ones here are duplicates.

    `FILTER`: filter out those records only. `DROP`: drop the whole aggregate, as KCL does. `KEEP`: keep all records,
    for producers that aggregate without regard to shards.
    """

    FILTER = "filter"
    DROP = "drop"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Deaggregation:
    """The user records of one Kinesis record.

    `filtered`: the number of user records that the mode filtered out.
    `problem`: why a damaged aggregate could not be deaggregated, None otherwise.
    """

    records: tuple[Record, ...]
    filtered: int = 0
    problem: str | None = None


class AggregateError(EfoError):
    """The bytes after MAGIC are not a valid KPL aggregate."""

    error_type = "aggregation"


class Entry(NamedTuple):
    """A user record to put into an aggregate."""

    partition_key: str
    data: bytes
    explicit_hash_key: str | None = None


def is_aggregate(record: Record) -> bool:
    """Return whether the record begins with MAGIC."""
    return record.data.startswith(MAGIC)


def hash_key(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """Return the hash key that selects the shard: the explicit one, else the MD5 of the partition key."""
    if explicit_hash_key is not None:
        return int(explicit_hash_key)
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())


def deaggregate(
    record: Record, shard: HashKeyRange | None = None, mode: AggregateMode = AggregateMode.FILTER
) -> Deaggregation:
    """Return the user records of a Kinesis record: the record itself if it is not an aggregate.

    `shard`: the hash key range of the shard that the record came from; None keeps all user records.
    An aggregate without user records returns none.
    """
    if not is_aggregate(record):
        return Deaggregation((record,))
    try:
        users = tuple(_decode(record))
    except AggregateError as error:
        return Deaggregation((record,), problem=str(error))
    if shard is None or mode is AggregateMode.KEEP:
        return Deaggregation(users)
    kept = tuple(user for user in users if hash_key(user.partition_key, user.explicit_hash_key) in shard)
    if mode is AggregateMode.DROP and len(kept) < len(users):
        kept = ()
    return Deaggregation(kept, filtered=len(users) - len(kept))


def aggregate(entries: Iterable[Entry]) -> bytes:
    """Return the data of one Kinesis record that carries these user records."""
    keys: dict[str, int] = {}
    hashes: dict[str, int] = {}
    records = bytearray()
    for entry in entries:
        body = bytearray()
        _append_varint_field(body, 1, keys.setdefault(entry.partition_key, len(keys)))
        if entry.explicit_hash_key is not None:
            _append_varint_field(body, 2, hashes.setdefault(entry.explicit_hash_key, len(hashes)))
        _append_bytes_field(body, 3, entry.data)
        _append_bytes_field(records, 3, body)
    message = bytearray()
    for key in keys:
        _append_bytes_field(message, 1, key.encode())
    for explicit in hashes:
        _append_bytes_field(message, 2, explicit.encode())
    message += records
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def _decode(record: Record) -> Iterator[Record]:
    body = record.data[len(MAGIC) : -_MD5_LENGTH]
    if len(record.data) <= len(MAGIC) + _MD5_LENGTH:
        raise AggregateError("the record is too short for an aggregate")
    if md5(body, usedforsecurity=False).digest() != record.data[-_MD5_LENGTH:]:
        raise AggregateError("the MD5 of the aggregate does not match")
    keys: list[str] = []
    hashes: list[str] = []
    raw_records: list[bytes] = []
    try:
        for number, value in _fields(body):
            match number, value:
                case 1, bytes():
                    keys.append(value.decode())
                case 2, bytes():
                    hashes.append(value.decode())
                case 3, bytes():
                    raw_records.append(value)
        for index, raw in enumerate(raw_records):
            yield _user_record(record, index, raw, keys, hashes)
    except (IndexError, UnicodeDecodeError) as error:
        raise AggregateError(f"the aggregate does not parse: {error}") from error


def _user_record(outer: Record, index: int, raw: bytes, keys: list[str], hashes: list[str]) -> Record:
    key_index: int | None = None
    hash_index: int | None = None
    data: bytes | None = None
    tags: list[tuple[str, str | None]] = []
    for number, value in _fields(raw):
        match number, value:
            case 1, int():
                key_index = value
            case 2, int():
                hash_index = value
            case 3, bytes():
                data = value
            case 4, bytes():
                tags.append(_tag(value))
    if key_index is None or data is None:
        raise AggregateError(f"user record {index} has no partition key or no data")
    explicit = hashes[hash_index] if hash_index is not None else None
    if explicit is not None and not _is_hash_key(explicit):
        raise AggregateError(f"the explicit hash key of user record {index} is not an integer from 0 to 2**128 - 1")
    return Record(
        sequence_number=outer.sequence_number,
        approximate_arrival_timestamp=outer.approximate_arrival_timestamp,
        data=data,
        partition_key=keys[key_index],
        encryption_type=outer.encryption_type,
        sub_sequence_number=index,
        explicit_hash_key=explicit,
        tags=tuple(tags),
    )


def _is_hash_key(text: str) -> bool:
    # Check the length before int(): Python refuses to convert integers of thousands of digits.
    return text.isascii() and text.isdigit() and len(text) <= _MAX_HASH_KEY_DIGITS and int(text) <= MAX_HASH_KEY


def _tag(raw: bytes) -> tuple[str, str | None]:
    parts = {number: value.decode() for number, value in _fields(raw) if isinstance(value, bytes)}
    if 1 not in parts:
        raise AggregateError("a tag has no key")
    return parts[1], parts.get(2)


# --- the part of the protobuf wire format that aggregates use ----------------------------------------------

_VARINT_TYPE: Final = 0
_BYTES_TYPE: Final = 2
_MAX_SHIFT: Final = 63
_MAX_FIELD_NUMBER: Final = 2**29 - 1


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) for each field of a message. Skip fixed-width values: aggregates have none."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if not 0 < tag >> 3 <= _MAX_FIELD_NUMBER:
            raise AggregateError(f"field number {tag >> 3} is invalid: expected 1 to {_MAX_FIELD_NUMBER}")
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            case 2:
                length, at = _varint(data, at)
                if at + length > len(data):
                    raise AggregateError("a field is longer than its message")
                yield tag >> 3, data[at : at + length]
                at += length
            case 1:
                at += 8
            case 5:
                at += 4
            case kind:
                raise AggregateError(f"wire type {kind} is unknown")
    if at > len(data):
        raise AggregateError("a field is longer than its message")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]  # raises IndexError if the message is truncated
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, at
        shift += 7
        if shift > _MAX_SHIFT:
            raise AggregateError("a varint is longer than 64 bits")


def _append_varint_field(out: bytearray, field: int, value: int) -> None:
    out.append(field << 3 | _VARINT_TYPE)
    _append_varint(out, value)


def _append_bytes_field(out: bytearray, field: int, value: bytes | bytearray) -> None:
    out.append(field << 3 | _BYTES_TYPE)
    _append_varint(out, len(value))
    out += value


def _append_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:  # noqa: PLR2004 - seven bits per byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
