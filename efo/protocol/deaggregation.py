"""KPL deaggregation: from one Kinesis record to its user records.

A record may begin with MAGIC and still not be a valid aggregate: its MD5 is wrong, its protobuf does not parse, an
index is outside its table, or a user record has a partition key that Kinesis does not allow. Such a record is passed
on unchanged, as one plain record. Damaged data is never dropped.

What else producers write is read as protobuf and AWS's libraries read it, so that no user record is lost. An explicit
hash key that is no hash key counts as absent: some producers write "undefined". Unknown fields and groups are skipped.
Of a repeated index or data, the last one counts. Of an index of more than 64 bits, the lowest 64 count. A large
aggregate may have unknown fields too, but only length-delimited ones, since it is read in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import md5
from itertools import pairwise
from typing import Any, Final, NamedTuple

from efo.model import HashKeyRange, Record
from efo.protocol.aggregate_message import (
    MAX_CHUNK,
    MAX_FIELDS,
    NO_INDEX,
    OUTSIDE,
    AggregateError,
    Chunk,
    end_of_chunk,
    parse,
)
from efo.protocol.aggregation import (
    AGGREGATE_KEY,
    EVERY_KEY,
    MAGIC,
    AggregateMode,
    HashRangeFilter,
    digest_of,
    is_aggregate,
    is_hash_key,
)
from efo.protocol.native import STEP, Step

MAX_PARTITION_KEY: Final = 256
"""The maximum number of characters of a partition key; the minimum is 1 (AWS: PutRecord, PartitionKey)."""
_MD5_LENGTH: Final = 16
_TOGETHER: Final = 16
"""Aggregates that the native step hashes at a time."""


class Deaggregation(NamedTuple):
    """The user records of one Kinesis record, or some of those of a large aggregate.

    `filtered`: the number of user records that the mode filtered out.
    `problem`: why a damaged aggregate could not be deaggregated, None otherwise.
    """

    records: tuple[Record, ...]
    filtered: int = 0
    problem: str | None = None


def deaggregate(
    record: Record,
    shard: HashKeyRange | None = None,
    mode: AggregateMode = AggregateMode.DEDUPLICATE,
    *,
    ancestors: Iterable[HashKeyRange] = (),
    max_fields: int = MAX_FIELDS,
    step: Step | None = STEP,
) -> Deaggregation:
    """Return the user records of a Kinesis record: the record itself if it is not an aggregate.

    `shard`: the hash key range of the shard that the record came from; None keeps all user records. `ancestors`: see
    HashRangeFilter. `max_fields`, `step`: see `expand_all`. An aggregate without user records returns none.
    """
    steps = expand_all((record,), HashRangeFilter(shard, mode, ancestors), max_fields, step)
    parts = [part for _, part in steps if part is not None]
    records = tuple(user for part in parts for user in part.records)
    return Deaggregation(records, sum(part.filtered for part in parts), parts[-1].problem)


def expand_all(
    records: Iterable[Record], shard: HashRangeFilter, max_fields: int = MAX_FIELDS, step: Step | None = STEP
) -> Iterator[tuple[Record, Deaggregation | None]]:
    """Yield what `expand` yields of each record, with the record. `step`: the native step; None for Python's alone.

    The native step reads some records at a time: as many as it can hash together, of which all may be held ahead.
    """
    if step is None:
        yield from ((record, part) for record in records for part in expand(record, shard, max_fields))
        return
    for group in _groups(records):
        kept = [_kept_by(record, shard).kept for record in group]
        at = 0
        while at < len(group):
            rest = group[at:]
            users: Sequence[tuple[Record, ...] | None] = (None,)
            if len(rest[0].data) <= MAX_CHUNK:  # as all in a group of several
                users = step.aggregates(rest, max_fields, kept[0])
            for record, its_own, found in zip(rest, kept[at:], users, strict=False):
                # Aggregates of several producers, of which the ranges differ, are rare in one group.
                if found is not None and its_own == kept[0]:
                    yield record, Deaggregation(found)
                else:
                    yield from ((record, part) for part in expand(record, shard, max_fields))
            at += len(users)


def _groups(records: Iterable[Record]) -> Iterator[tuple[Record, ...]]:
    """Yield the records in groups: each of at most _TOGETHER, and of MAX_CHUNK bytes unless it is one record."""
    group: list[Record] = []
    size = 0
    for record in records:
        size += len(record.data)
        if group and (size > MAX_CHUNK or len(group) == _TOGETHER):
            yield tuple(group)
            group, size = [], len(record.data)
        group.append(record)
    if group:
        yield tuple(group)


def _kept_by(record: Record, shard: HashRangeFilter) -> HashRangeFilter:
    """Return which user records of an aggregate are kept."""
    # Without a key, the service chose its shard: no user record belongs to another one, and nobody puts it again.
    if record.partition_key is None or (shard.deduplicates and record.partition_key != AGGREGATE_KEY):
        return EVERY_KEY
    return shard


def expand(record: Record, shard: HashRangeFilter, max_fields: int = MAX_FIELDS) -> Iterator[Deaggregation | None]:
    """Yield the user records of a Kinesis record: at once, or in parts if it is a large aggregate.

    An aggregate is large if it has more than `max_fields` user records, or MAX_CHUNK bytes. A part of it has at most as
    many, and one user record may exceed the bytes. Nothing is yielded before the whole aggregate was found valid. None
    is yielded between the steps of a few milliseconds that this takes, and before each part: others may run.
    """
    if not is_aggregate(record):
        yield Deaggregation((record,))
        return
    shard = _kept_by(record, shard)
    try:
        body = _body(record.data)
        if len(body) <= MAX_CHUNK:
            chunk = parse(body)
            if len(chunk.message.records) <= max_fields:
                yield _expand_chunk(record, chunk, shard)
                return
        yield from _expand_large(record, body, shard, max_fields)
    except AggregateError as error:
        yield Deaggregation((record,), problem=str(error))


def _body(data: bytes) -> bytes:
    body = data[len(MAGIC) : -_MD5_LENGTH]
    if len(data) <= len(MAGIC) + _MD5_LENGTH:
        raise AggregateError("the record is too short for an aggregate")
    if md5(body, usedforsecurity=False).digest() != data[-_MD5_LENGTH:]:
        raise AggregateError("the MD5 of the aggregate does not match")
    return body


def _expand_chunk(record: Record, chunk: Chunk, shard: HashRangeFilter) -> Deaggregation:
    tables = _Tables(shard)
    tables.add(chunk)
    users = _user_records(record, chunk, tables, 0)
    filtered = len(chunk.message.records) - len(users)
    if filtered and shard.drops_aggregates:
        return Deaggregation((), len(chunk.message.records))
    if filtered and shard.deduplicates:
        origin = _Origin()
        origin.add(tables, chunk, users)
        if not origin.puts_again(tables, shard):
            return _expand_chunk(record, chunk, EVERY_KEY)
    return Deaggregation(tuple(users), filtered)


def _expand_large(
    record: Record, body: bytes, shard: HashRangeFilter, max_fields: int
) -> Iterator[Deaggregation | None]:
    """Read chunk by chunk, three times: the tables, then all user records to check them, then to deliver them.

    The chunks are parsed each time, so that one of them at a time is in memory.
    """
    tables = _Tables(shard)
    cuts = [0]
    while cuts[-1] < len(body):
        cuts.append(end_of_chunk(body, cuts[-1], max_fields))
        tables.add(parse(body[cuts[-2] : cuts[-1]]))
        yield None
    count = filtered = 0
    origin = _Origin()
    for start, end in pairwise(cuts):
        chunk = parse(body[start:end])
        users = _user_records(record, chunk, tables, count)
        filtered += len(chunk.message.records) - len(users)
        count += len(chunk.message.records)
        if shard.deduplicates and not shard.keeps_all:
            origin.add(tables, chunk, users)
        yield None
    if filtered and shard.drops_aggregates:
        yield Deaggregation((), count)
        return
    if filtered and shard.deduplicates and not origin.puts_again(tables, shard):
        tables.keeps_all, filtered = True, 0
    yield Deaggregation((), filtered)
    first = 0
    for start, end in pairwise(cuts):
        yield None
        chunk = parse(body[start:end])
        yield Deaggregation(tuple(_user_records(record, chunk, tables, first)))
        first += len(chunk.message.records)


class _Tables:
    """The partition keys and explicit hash keys of an aggregate, and which of them the shard keeps.

    `keys`: the partition keys. `invalid`: the indexes of those that Kinesis does not allow; they matter if they are
    used. `hashes`: the explicit hash keys; None for an invalid one. `kept_keys`, `kept_hashes`: whether the shard keeps
    them. `keeps_all`: whether all hash keys are kept, so that none needs to be looked at.
    """

    __slots__ = ("_shard", "hashes", "invalid", "keeps_all", "kept_hashes", "kept_keys", "keys")

    def __init__(self, shard: HashRangeFilter) -> None:
        self._shard = shard
        self.keeps_all = shard.keeps_all
        self.keys: list[str] = []
        self.invalid: set[int] = set()
        self.hashes: dict[int, str | None] = {NO_INDEX: None}
        self.kept_hashes: dict[int, bool] = {}
        self.kept_keys = _KeptKeys(shard, self.keys)

    def add(self, chunk: Chunk) -> None:
        """Add the tables of a chunk."""
        keys = list(chunk.message.partition_key_table)
        if keys and (not all(keys) or max(map(len, keys)) > MAX_PARTITION_KEY):
            start = len(self.keys)
            self.invalid.update(start + n for n, key in enumerate(keys) if not 1 <= len(key) <= MAX_PARTITION_KEY)
        self.keys += keys
        for index, text in enumerate(chunk.message.explicit_hash_key_table, len(self.kept_hashes)):
            valid = is_hash_key(text)
            self.hashes[index] = text if valid else None
            self.kept_hashes[index] = valid and (self.keeps_all or self._shard.keeps_hash_key(text))

    def keeps_all_keys(self) -> bool:
        """Return whether the shard keeps all partition keys. The answer is no if they are too many to be hashed now."""
        if self.keeps_all:
            return True
        if len(self.keys) > MAX_FIELDS:
            return False
        if len(self.kept_keys) < len(self.keys):
            self.kept_keys.update(enumerate(self._shard.keeps(self.keys)))
        return all(self.kept_keys.values())

    def hash_keys(self, chunk: Chunk) -> set[bytes]:
        """Return the hash keys of the user records of a chunk, as `digest_of` returns them."""
        users = chunk.message.records
        if chunk.is_plain:
            used: set[tuple[int, int]] = {(user.partition_key_index, NO_INDEX) for user in users}
        else:
            used = {(user.partition_key_index, user.explicit_hash_key_index) for user in users}
        return {digest_of(self.keys[key].encode(), self.hashes[explicit]) for key, explicit in used}


class _Origin:
    """What tells whether the producer of an aggregate puts again what the shard does not keep (rule R17).

    `_lowest`, `_highest`: of the hash keys of its user records. `_fits`: whether the first of them is in the shard.
    """

    __slots__ = ("_fits", "_highest", "_lowest")

    def __init__(self) -> None:
        self._fits: bool | None = None
        self._lowest = b"\xff" * _MD5_LENGTH
        self._highest = b""

    def add(self, tables: _Tables, chunk: Chunk, kept: Sequence[Record]) -> None:
        """Look at the next chunk, and at those of its user records that the shard keeps."""
        hash_keys = tables.hash_keys(chunk)
        if hash_keys:
            self._lowest, self._highest = min(self._lowest, *hash_keys), max(self._highest, *hash_keys)
            if self._fits is None:
                self._fits = bool(kept) and kept[0].sub_sequence_number == 0

    def puts_again(self, tables: _Tables, shard: HashRangeFilter) -> bool:
        """Return whether it does.

        The KPL puts an aggregate under a partition key of its own and the hash key of the first user record, which is
        therefore in the shard. Other producers take the partition key of one of the user records, or any other.
        """
        is_marked = AGGREGATE_KEY not in tables.keys
        return is_marked and bool(self._fits) and shard.is_put_again(self._lowest, self._highest)


class _KeptKeys(dict[int, bool]):
    """Whether the shard keeps each partition key of a table: hashed when it is first used."""

    def __init__(self, shard: HashRangeFilter, keys: Sequence[str]) -> None:
        self._shard = shard
        self._keys = keys

    def __missing__(self, index: int) -> bool:
        (self[index],) = self._shard.keeps([self._keys[index]])
        return self[index]


def _user_records(outer: Record, chunk: Chunk, tables: _Tables, first: int) -> list[Record]:
    """Return the user records of a chunk that the shard keeps. `first`: the index of the first one in the aggregate."""
    users = chunk.message.records[:]  # a list: iterating over protobuf's container takes longer
    if tables.invalid and not tables.invalid.isdisjoint(user.partition_key_index for user in users):
        raise AggregateError(f"the partition key of a user record has not 1 to {MAX_PARTITION_KEY} characters")
    read = _plain_records if chunk.is_plain else _full_records
    try:
        return read(outer, users, tables, first)
    except LookupError as error:
        raise AggregateError(OUTSIDE) from error


def _plain_records(outer: Record, users: Any, tables: _Tables, first: int) -> list[Record]:
    """Return user records that have neither explicit hash keys nor tags."""
    number, at, encryption = outer.sequence_number, outer.approximate_arrival_timestamp, outer.encryption_type
    keys, kept = tables.keys, tables.kept_keys
    if tables.keeps_all_keys():
        return [
            Record(number, at, user.data, keys[user.partition_key_index], encryption, sub)
            for sub, user in enumerate(users, first)
        ]
    return [
        Record(number, at, user.data, keys[index], encryption, sub)
        for sub, user in enumerate(users, first)
        if kept[index := user.partition_key_index]
    ]


def _full_records(outer: Record, users: Any, tables: _Tables, first: int) -> list[Record]:
    number, at, encryption = outer.sequence_number, outer.approximate_arrival_timestamp, outer.encryption_type
    keys, hashes, kept, kept_hashes = tables.keys, tables.hashes, tables.kept_keys, tables.kept_hashes
    keeps_all = tables.keeps_all
    records = []
    for sub, user in enumerate(users, first):
        index, hash_index = user.partition_key_index, user.explicit_hash_key_index
        key, explicit, is_kept = keys[index], hashes[hash_index], True
        if not keeps_all:
            is_kept = kept[index] if explicit is None else kept_hashes[hash_index]
        if is_kept:
            tags = _tags(user.tags) if user.tags else ()
            records.append(Record(number, at, user.data, key, encryption, sub, explicit, tags))
    return records


def _tags(tags: Any) -> tuple[tuple[str, str | None], ...]:
    return tuple((tag.key, tag.value if tag.HasField("value") else None) for tag in tags)
