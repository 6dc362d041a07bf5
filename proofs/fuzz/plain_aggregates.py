"""A plain reader of KPL aggregates, byte by byte in Python: the reference for `efo.protocol.deaggregation`.

It shares nothing with protobuf's C parser. Where protobuf has limits of its own, this reader states them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from typing import Final

from efo.model import MAX_HASH_KEY, Record

_MAGIC: Final = b"\xf3\x89\x9a\xc2"
_DIGEST: Final = 16
_MAX_PARTITION_KEY: Final = 256
_MAX_HASH_KEY_DIGITS: Final = 39
_VARINT, _FIXED_64, _BYTES, _START_GROUP, _END_GROUP, _FIXED_32 = range(6)
_MAX_VARINT: Final = 10
_MAX_TAG: Final = 5
_MAX_DEPTH: Final = 100


class Damaged(Exception):  # noqa: N818 - a verdict, not an error
    """The record is not a valid aggregate."""


def read(record: Record) -> list[Record]:
    """Return the user records of an aggregate. Raises Damaged."""
    body, digest = record.data[len(_MAGIC) : -_DIGEST], record.data[-_DIGEST:]
    if not record.data.startswith(_MAGIC) or not body or len(record.data) <= len(_MAGIC) + _DIGEST:
        raise Damaged("too short")
    if md5(body, usedforsecurity=False).digest() != digest:
        raise Damaged("MD5")
    fields = list(_fields(body, _MAX_DEPTH))
    keys = [_text(value) for number, value in fields if number == 1 and isinstance(value, bytes)]
    hashes = [_text(value) for number, value in fields if number == 2 and isinstance(value, bytes)]  # noqa: PLR2004
    raw_records = [value for number, value in fields if number == 3 and isinstance(value, bytes)]  # noqa: PLR2004
    return [_user_record(record, index, raw, keys, hashes) for index, raw in enumerate(raw_records)]


def _user_record(outer: Record, index: int, raw: bytes, keys: list[str], hashes: list[str]) -> Record:
    key_index: int | None = None
    hash_index: int | None = None
    data: bytes | None = None
    tags: list[tuple[str, str | None]] = []
    for number, value in _fields(raw, _MAX_DEPTH - 1):
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
        raise Damaged("a required field is missing")
    if key_index >= len(keys) or (hash_index is not None and hash_index >= len(hashes)):
        raise Damaged("an index is outside its table")
    if not 1 <= len(keys[key_index]) <= _MAX_PARTITION_KEY:
        raise Damaged("the length of a partition key")
    explicit = hashes[hash_index] if hash_index is not None and _is_hash_key(hashes[hash_index]) else None
    at, encryption = outer.approximate_arrival_timestamp, outer.encryption_type
    return Record(outer.sequence_number, at, data, keys[key_index], encryption, index, explicit, tuple(tags))


def _is_hash_key(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_HASH_KEY_DIGITS and int(text) <= MAX_HASH_KEY


def _tag(raw: bytes) -> tuple[str, str | None]:
    fields = [(number, value) for number, value in _fields(raw, _MAX_DEPTH - 2) if isinstance(value, bytes)]
    # A value that a later one replaces must be text too.
    parts = {number: _text(value) for number, value in fields if number in {1, 2}}
    if 1 not in parts:
        raise Damaged("a tag has no key")
    return parts[1], parts.get(2)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Damaged("text that is not UTF-8") from error


def _fields(data: bytes, depth: int) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) for each varint and byte string of a message. Skip other values, and groups."""
    at = 0
    while at < len(data):
        number, kind, at = _field_tag(data, at)
        if not number:
            raise Damaged("the field number 0")
        if kind == _END_GROUP:
            raise Damaged("the end of a group that has not begun")
        value, at = _value(data, at, number, kind, depth)
        if value is not None:
            yield number, value


def _field_tag(data: bytes, at: int) -> tuple[int, int, int]:
    tag, end = _varint(data, at)
    if tag >> 32 or end - at > _MAX_TAG:
        raise Damaged("a field number")
    return tag >> 3, tag & 7, end


def _value(data: bytes, at: int, number: int, kind: int, depth: int) -> tuple[int | bytes | None, int]:
    value: int | bytes | None = None
    if kind == _VARINT:
        value, at = _varint(data, at)
    elif kind == _BYTES:
        length, end = _varint(data, at)
        if end - at > _MAX_TAG:
            raise Damaged("a length")
        value, at = data[end : end + length], end + length
    elif kind == _START_GROUP:
        at = _end_of_group(data, at, number, depth - 1)
    elif kind in {_FIXED_32, _FIXED_64}:
        at += 4 if kind == _FIXED_32 else 8
    else:
        raise Damaged("a wire type")
    if at > len(data):
        raise Damaged("a field is longer than its message")
    return value, at


def _end_of_group(data: bytes, at: int, number: int, depth: int) -> int:
    """Return where a group ends. Within groups, which are unknown, protobuf's C parser accepts the field number 0."""
    if depth < 0:
        raise Damaged("groups are nested too deeply")
    while True:
        inner, kind, at = _field_tag(data, at)
        if kind == _END_GROUP:
            if inner != number:
                raise Damaged("the end of another group")
            return at
        _, at = _value(data, at, inner, kind, depth)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of up to 64 bits, and where it ends. Higher bits are dropped, as all protobuf parsers do."""
    value = 0
    for index in range(_MAX_VARINT):
        if at + index >= len(data):
            break
        value |= (data[at + index] & 0x7F) << 7 * index
        if data[at + index] < 0x80:  # noqa: PLR2004 - the continuation bit
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + index + 1
    raise Damaged("a number is cut off or longer than 64 bits")
