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
AGGREGATE_KEY: Final = "a"
"""The partition key of aggregates of the KPL and of efo's producer, which have an explicit hash key too."""
_MD5_LENGTH: Final = 16
_MAX_HASH_KEY_TEXT: Final = str(MAX_HASH_KEY)
_HASH_KEY_DIGITS: Final = len(_MAX_HASH_KEY_TEXT)


class AggregateMode(StrEnum):
    """What to do with user records of an aggregate whose hash key is outside the shard's range (rule R17).

    After a reshard, an aggregate may arrive in another shard than the KPL predicted. The KPL then puts those of its
    user records again that are outside the range of this shard, so the ones here are duplicates. No other producer does
    that: those that aggregate without regard to shards put each user record once, wherever it arrives.

    `DEDUPLICATE`: filter out what the KPL, or efo's producer, puts again. Of other aggregates everything is delivered.
    `FILTER`: filter out all of them, which loses records of other producers. `DROP`: drop the whole aggregate if it has
    any, as KCL does, which loses more. `KEEP`: deliver all, the duplicates too.

    An aggregate without a partition key is delivered whole in any mode: the service chose its shard.
    """

    DEDUPLICATE = "deduplicate"
    FILTER = "filter"
    DROP = "drop"
    KEEP = "keep"


class HashRangeFilter:
    """Which user records a shard keeps: its hash key range, parsed once, and the mode. No range keeps all of them.

    `ancestors`: the ranges of those shards whose children it descends from, as far as they are known.
    `keeps_all`: whether no hash key needs to be looked at. `deduplicates`: whether only those aggregates are filtered
    that `is_put_again` finds.
    """

    __slots__ = ("_ancestors", "_digests", "_digits", "deduplicates", "drops_aggregates", "keeps_all")

    def __init__(
        self,
        shard: HashKeyRange | None,
        mode: AggregateMode = AggregateMode.DEDUPLICATE,
        ancestors: Iterable[HashKeyRange] = (),
    ) -> None:
        first, last = (0, MAX_HASH_KEY) if shard is None else _bounds(shard)
        # Digests, and digits with leading zeros, compare like the numbers that they are.
        self._digests = first.to_bytes(_MD5_LENGTH), last.to_bytes(_MD5_LENGTH)
        self._digits = str(first).zfill(_HASH_KEY_DIGITS), str(last).zfill(_HASH_KEY_DIGITS)
        # Within the range of a merged parent, nothing is outside the shard's.
        larger = (bounds for bounds in map(_bounds, ancestors) if bounds[0] < first or bounds[1] > last)
        self._ancestors = [(start.to_bytes(_MD5_LENGTH), end.to_bytes(_MD5_LENGTH)) for start, end in larger]
        self.deduplicates = mode is AggregateMode.DEDUPLICATE
        self.drops_aggregates = mode is AggregateMode.DROP
        self.keeps_all = (
            mode is AggregateMode.KEEP
            or (first, last) == (0, MAX_HASH_KEY)
            or (self.deduplicates and not self._ancestors)
        )

    @property
    def kept(self) -> tuple[bytes, bytes] | None:
        """The first and the last hash key that it keeps, as `digest_of` returns them; None if it keeps all."""
        return None if self.keeps_all else self._digests

    def is_put_again(self, lowest: bytes, highest: bytes) -> bool:
        """Return whether the producer puts user records again that are outside the shard's range (rule R17).

        It does if it made the aggregate for one shard, an ancestor of this one: its shard map was older than a reshard.
        `lowest`, `highest`: of the hash keys of all user records, see `digest_of`. A producer that makes no difference
        between shards, or an ancestor that is no longer known, gives False: rather a duplicate than a loss.
        """
        return any(start <= lowest and highest <= end for start, end in self._ancestors)

    def keeps(self, partition_keys: Iterable[str]) -> list[bool]:
        """Return for each partition key whether the shard keeps its user records without an explicit hash key."""
        first, last = self._digests
        return [first <= md5(key.encode(), usedforsecurity=False).digest() <= last for key in partition_keys]

    def keeps_hash_key(self, hash_key: str) -> bool:
        """Return whether the shard keeps user records with this explicit hash key, which is valid."""
        first, last = self._digits
        return first <= hash_key.zfill(_HASH_KEY_DIGITS) <= last


class AggregateEntry(NamedTuple):
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


def digest_of(encoded_key: bytes, explicit_hash_key: str | None = None) -> bytes:
    """Return the hash key of a record as 16 bytes, which compare as the number does (AWS: PutRecords).

    `encoded_key`: the partition key in UTF-8.
    """
    if explicit_hash_key is not None:
        return int(explicit_hash_key).to_bytes(_MD5_LENGTH)
    digest: bytes = md5(encoded_key, usedforsecurity=False).digest()
    return digest


def hash_key(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """Return the hash key that selects the shard: the explicit one, else the MD5 of the partition key."""
    return int.from_bytes(digest_of(partition_key.encode(), explicit_hash_key))


def _bounds(keys: HashKeyRange) -> tuple[int, int]:
    return max(0, int(keys.starting_hash_key)), min(MAX_HASH_KEY, int(keys.ending_hash_key))


def aggregate(entries: Iterable[AggregateEntry]) -> bytes:
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


EVERY_KEY: Final = HashRangeFilter(None)
"""Keeps all user records."""
