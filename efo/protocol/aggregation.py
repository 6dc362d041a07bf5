"""KPL aggregates: many user records in one Kinesis record. Which of them a shard keeps, and how to make one.

A KPL aggregate is MAGIC | protobuf AggregatedRecord | MD5 of the protobuf (AWS: "KPL aggregated record format").
`deaggregation` reads it. It is a module of its own because it loads protobuf, which only readers of aggregates need.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from efo.model import MAX_HASH_KEY, HashKeyRange, Record

try:
    from _md5 import md5  # CPython's own takes half the time of OpenSSL's for a short text
except ImportError:
    from hashlib import md5

MAGIC: Final = b"\xf3\x89\x9a\xc2"
_MD5_LENGTH: Final = 16
_MAX_HASH_KEY_TEXT: Final = str(MAX_HASH_KEY)
_HASH_KEY_DIGITS: Final = len(_MAX_HASH_KEY_TEXT)


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


class ShardFilter:
    """Which user records a shard keeps: its hash key range, parsed once, and the mode. No range keeps all of them.

    `keeps_all`: whether no hash key needs to be looked at.
    """

    __slots__ = ("_digests", "_digits", "drops_aggregates", "keeps_all")

    def __init__(self, shard: HashKeyRange | None, mode: AggregateMode = AggregateMode.FILTER) -> None:
        first = max(0, int(shard.starting_hash_key)) if shard else 0
        last = min(MAX_HASH_KEY, int(shard.ending_hash_key)) if shard else MAX_HASH_KEY
        # Digests, and digits with leading zeros, compare like the numbers that they are.
        self._digests = first.to_bytes(_MD5_LENGTH), last.to_bytes(_MD5_LENGTH)
        self._digits = str(first).zfill(_HASH_KEY_DIGITS), str(last).zfill(_HASH_KEY_DIGITS)
        self.keeps_all = mode is AggregateMode.KEEP or (first, last) == (0, MAX_HASH_KEY)
        self.drops_aggregates = mode is AggregateMode.DROP

    def keeps(self, partition_keys: Iterable[str]) -> list[bool]:
        """Return for each partition key whether the shard keeps its user records without an explicit hash key."""
        first, last = self._digests
        return [first <= md5(key.encode(), usedforsecurity=False).digest() <= last for key in partition_keys]

    def keeps_hash_key(self, hash_key: str) -> bool:
        """Return whether the shard keeps user records with this explicit hash key, which is valid."""
        first, last = self._digits
        return first <= hash_key.zfill(_HASH_KEY_DIGITS) <= last


EVERY_KEY: Final = ShardFilter(None)
"""Keeps all user records."""


class Entry(NamedTuple):
    """A user record to put into an aggregate."""

    partition_key: str
    data: bytes
    explicit_hash_key: str | None = None


def is_aggregate(record: Record) -> bool:
    """Return whether the record begins with MAGIC."""
    return record.data.startswith(MAGIC)


def is_hash_key(text: str) -> bool:
    """Return whether the text is an integer from 0 to 2**128 - 1, in decimal digits."""
    if not (text.isascii() and text.isdigit()):
        return False
    return len(text) < _HASH_KEY_DIGITS or (len(text) == _HASH_KEY_DIGITS and text <= _MAX_HASH_KEY_TEXT)


def hash_key(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """Return the hash key that selects the shard: the explicit one, else the MD5 of the partition key."""
    if explicit_hash_key is not None:
        return int(explicit_hash_key)
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())


def aggregate(entries: Iterable[Entry]) -> bytes:
    """Return the data of one Kinesis record that carries these user records."""
    from efo.protocol import aggregate_message  # noqa: PLC0415 - loads protobuf

    keys: dict[str, int] = {}
    hashes: dict[str, int] = {}
    users: list[dict[str, Any]] = []
    for key, data, explicit in entries:
        user = {"partition_key_index": keys.setdefault(key, len(keys)), "data": data}
        if explicit is not None:
            user["explicit_hash_key_index"] = hashes.setdefault(explicit, len(hashes))
        users.append(user)
    message = aggregate_message.serialize(list(keys), list(hashes), users)
    digest: bytes = md5(message, usedforsecurity=False).digest()
    return MAGIC + message + digest
