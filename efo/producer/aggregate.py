"""Building KPL aggregates, one user record after the other (see `efo.protocol.aggregation` for the format).

A producer must know the size of an aggregate while it grows, so each user record is encoded when it is added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from efo.producer.entry import Carrier, Entry, Outgoing
from efo.protocol.aggregation import MAGIC, AggregateEntry as UserRecord

MD5_BYTES: Final = 16
_FRAME: Final = len(MAGIC) + MD5_BYTES
_TABLED: Final = 4096


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits in a byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_TABLE: Final = tuple(_varint(number) for number in range(_TABLED))


def _encoded(number: int) -> bytes:
    return _TABLE[number] if number < _TABLED else _varint(number)


class AggregateBuilder(Carrier):
    """One aggregate that grows. `users`: its records, in order. Sizes are in bytes.

    `size`: of its data. `payload`: of the data and partition keys of its user records. `digest`: its hash key, which is
    that of its first record.
    """

    __slots__ = (
        "_hash_parts", "_hashes", "_key_parts", "_keys", "_records", "digest", "payload", "put_at",
        "size", "users",
    )  # fmt: skip

    def __init__(self, digest: bytes, put_at: float) -> None:
        super().__init__()
        self.digest = digest
        self.put_at = put_at
        self.users: list[Outgoing] = []
        self.size = _FRAME
        self.payload = 0
        self._keys: dict[bytes, bytes] = {}  # the encoded index of each
        self._key_parts: list[bytes] = []
        self._hashes: dict[str, bytes] = {}
        self._hash_parts: list[bytes] = []
        self._records: list[bytes] = []

    def add(self, user: Outgoing, key: bytes, data: bytes, explicit_hash_key: str | None, limit: int) -> bool:
        """Add a user record; return False, and change nothing, if the aggregate would be larger than `limit`.

        `key`: the partition key in UTF-8. An aggregate of one user record may have any size: it is put without
        aggregation.
        """
        length = len(data)
        growth = 0
        index = self._keys.get(key)
        if is_new := index is None:
            index = _encoded(len(self._keys))
            key_part = b"\x0a%b%b" % (_encoded(len(key)), key)
            growth = len(key_part)
        hash_part = b""
        if explicit_hash_key is not None:
            hash_index, hash_part = self._hash(explicit_hash_key)
            index_fields = b"\x08%b\x10%b" % (index, hash_index)
            growth += len(hash_part)
        else:
            index_fields = b"\x08%b" % index
        size = _TABLE[length] if length < _TABLED else _varint(length)
        inner = len(index_fields) + 1 + len(size) + length
        header = b"\x1a%b%b\x1a%b" % (_TABLE[inner] if inner < _TABLED else _varint(inner), index_fields, size)
        growth += len(header) + length
        if self.size + growth > limit and self.users:
            return False
        if is_new:
            self._keys[key] = index
            self._key_parts.append(key_part)
        if hash_part and explicit_hash_key is not None:
            self._hashes[explicit_hash_key] = hash_index
            self._hash_parts.append(hash_part)
        self._records += (header, data)
        self.size += growth
        self.payload += len(key) + length
        self.users.append(user)
        user.carrier = self
        return True

    def _hash(self, explicit_hash_key: str) -> tuple[bytes, bytes]:
        """Return the encoded index of an explicit hash key, and what it adds to the table."""
        if (index := self._hashes.get(explicit_hash_key)) is not None:
            return index, b""
        encoded = explicit_hash_key.encode()
        return _encoded(len(self._hashes)), b"\x12%b%b" % (_encoded(len(encoded)), encoded)

    def build(self) -> bytes:
        """Return the data of the Kinesis record."""
        message = b"".join((*self._key_parts, *self._hash_parts, *self._records))
        digest: bytes = hashlib.md5(message, usedforsecurity=False).digest()
        return b"".join((MAGIC, message, digest))

    def single(self) -> UserRecord:
        """Return the only user record."""
        [key] = self._keys
        return UserRecord(key.decode(), self._records[1], next(iter(self._hashes), None))


def user_records(entry: Entry) -> Iterator[UserRecord]:
    """Yield the user records of an aggregate that was built here."""
    from efo.protocol import aggregate_message  # noqa: PLC0415 - loads protobuf

    message = aggregate_message.parse(entry.data[len(MAGIC) : -MD5_BYTES]).message
    keys, hashes = message.partition_key_table, message.explicit_hash_key_table
    for user in message.records:
        explicit = hashes[user.explicit_hash_key_index] if hashes and user.HasField("explicit_hash_key_index") else None
        yield UserRecord(keys[user.partition_key_index], user.data, explicit)
