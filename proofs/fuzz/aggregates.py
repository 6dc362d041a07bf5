"""The reader of KPL aggregates: it agrees with a plain reader in Python and with Google's protobuf library.

An input is the bytes after the magic bytes, as they are or with a correct MD5. Or it is a list of user records, which
this module aggregates and the reader expands again. Aggregates are also read as if they were large: in small chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from typing import Any, Final

import aws_kinesis_agg.aggregator  # noqa: F401 - adds the directory to sys.path from which messages_pb2 imports config_pb2
from aws_kinesis_agg import messages_pb2

from efo.model import MAX_HASH_KEY, HashKeyRange, Record
from efo.protocol.aggregate_message import MAX_FIELDS
from efo.protocol.aggregation import AGGREGATE_KEY, MAGIC, AggregateEntry, AggregateMode, aggregate, hash_key
from efo.protocol.deaggregation import deaggregate
from proofs.fuzz import plain_aggregates
from proofs.fuzz.cursor import Cursor
from proofs.fuzz.target import Target, require

_BARE, _SEALED, _ENTRIES = range(3)
_RANGES: Final = (None, HashKeyRange("0", str(MAX_HASH_KEY)), HashKeyRange("0", str(MAX_HASH_KEY // 2)))
_MODES: Final = tuple(AggregateMode)
_ANCESTOR: Final = HashKeyRange("0", str(MAX_HASH_KEY))
_DIGEST: Final = 16
_MAX_ENTRIES: Final = 64
_UNSPLITTABLE: Final = "a large aggregate has a field of an unknown wire type"


def check(data: bytes) -> None:
    """Expand the record that the input describes, and compare the result with the other readers."""
    cursor = Cursor(data)
    kind, choice = cursor.byte() % 3, cursor.byte()
    shard, mode = _RANGES[choice % 3], _MODES[choice // 3 % 4]
    key = AGGREGATE_KEY if choice & 0x80 else "outer key"
    if kind == _BARE:
        _check(_outer(MAGIC + cursor.rest(), key), shard, mode)
    elif kind == _SEALED:
        _check(_outer(_seal(cursor.rest()), key), shard, mode)
    else:
        entries = list(_entries(cursor))
        record = _outer(aggregate(entries), key)
        if entries:
            expanded = [
                AggregateEntry(user.partition_key or "", user.data, user.explicit_hash_key)
                for user in deaggregate(record).records
            ]
            require(expanded == entries, "the expanded records differ from the aggregated ones")
        _check(record, shard, mode)


def _check(record: Record, shard: HashKeyRange | None, mode: AggregateMode) -> None:
    """Expand the record at once and as if it were large, and compare with the other readers."""
    expected = _expected(record)
    for max_fields in (MAX_FIELDS, 2):
        deaggregation = deaggregate(record, shard, mode, ancestors=[_ANCESTOR], max_fields=max_fields)
        if deaggregation.problem is None:
            require(expected is not None, f"a damaged aggregate is expanded to {deaggregation.records!r}")
            own = _own(record, expected or [], shard, mode)
            require(list(deaggregation.records) == own, f"read {deaggregation.records!r}, expected {own!r}")
            require(deaggregation.filtered == len(expected or []) - len(own), "filtered is wrong")
        else:
            require(
                deaggregation == ((record,), 0, deaggregation.problem), "a damaged aggregate is not passed on unchanged"
            )
            require(expected is None or _UNSPLITTABLE in deaggregation.problem, deaggregation.problem)


def _expected(record: Record) -> list[Record] | None:
    """Return the user records as the other readers read them; None for a damaged aggregate."""
    try:
        users = plain_aggregates.read(record)
    except plain_aggregates.Damaged:
        return None
    message: Any = messages_pb2.AggregatedRecord.FromString(record.data[len(MAGIC) : -_DIGEST])
    require([user.data for user in users] == [user.data for user in message.records], "protobuf reads other data")
    return users


def _own(record: Record, users: list[Record], shard: HashKeyRange | None, mode: AggregateMode) -> list[Record]:
    """Return the user records that are delivered. All are in the range of the only ancestor."""
    if shard is None or mode is AggregateMode.KEEP:
        return users
    own = [user for user in users if hash_key(user.partition_key or "", user.explicit_hash_key) in shard]
    if mode is AggregateMode.DEDUPLICATE:
        message: Any = messages_pb2.AggregatedRecord.FromString(record.data[len(MAGIC) : -_DIGEST])
        is_of_kpl = record.partition_key == AGGREGATE_KEY not in message.partition_key_table
        return own if is_of_kpl and own[:1] == users[:1] else users
    return own if mode is AggregateMode.FILTER or len(own) == len(users) else []


def _outer(data: bytes, key: str = "outer key") -> Record:
    return Record("42", 1700000000.5, data, key, "KMS")


def _seal(message: bytes) -> bytes:
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def _entries(cursor: Cursor) -> Iterator[AggregateEntry]:
    for _ in range(_MAX_ENTRIES):
        if not cursor.left:
            return
        kind = cursor.byte()
        key = cursor.take(kind % 16).decode("latin-1") or "k"
        explicit = str(cursor.number() << kind % 113) if kind & 0x80 else None
        yield AggregateEntry(key, cursor.take(cursor.byte()), explicit)


def seeds() -> Iterator[bytes]:
    """Make aggregates as the KPL does: with and without explicit hash keys, tags, and unknown fields."""
    entries = [
        AggregateEntry("a", b"one"),
        AggregateEntry("b", b"", "0"),
        AggregateEntry("a", b"three", str(MAX_HASH_KEY)),
        AggregateEntry("\u00fc", b"x"),
    ]
    message: Any = messages_pb2.AggregatedRecord(partition_key_table=["k", "l"], explicit_hash_key_table=["7"])
    message.records.add(partition_key_index=0, data=b"plain")
    tagged = message.records.add(partition_key_index=1, data=b"tagged", explicit_hash_key_index=0)
    tagged.tags.add(key="t", value="v")
    tagged.tags.add(key="bare")
    foreign: Any = messages_pb2.AggregatedRecord(
        partition_key_table=["k", "", "x" * 257], explicit_hash_key_table=["undefined"]
    )
    foreign.records.add(partition_key_index=0, data=b"an invalid hash key", explicit_hash_key_index=0)
    poison: Any = messages_pb2.AggregatedRecord(partition_key_table=["k", "x" * 257])
    poison.records.add(partition_key_index=0, data=b"")
    poison.records.add(partition_key_index=1, data=b"")
    unknown = b"\x31" + bytes(8) + b"\x35" + bytes(4) + b"\x38\x96\x01" + b"\x42\x02hi"
    groups = b"\x3b\x08\x01\x3c" + b"\x0a\x01k" + b"\x1a\x07\x08\0\x1a\x01x\x33\x34"
    for choice in range(0, 9, 2):
        for body in (foreign.SerializeToString(), poison.SerializeToString(), groups):
            yield bytes([_SEALED, choice]) + body
        for data in (aggregate(entries), _seal(message.SerializeToString()), _seal(unknown)):
            yield bytes([_BARE, choice]) + data[len(MAGIC) :]
            yield bytes([_SEALED, choice]) + data[len(MAGIC) : -_DIGEST]
    yield bytes([_ENTRIES, 1]) + b"\x81k\0\x09\x03one" + b"\x02kk\x03two" + b"\x01k\0"


TARGET: Final = Target(
    "aggregates",
    "the parser of KPL aggregates",
    check,
    seeds,
    dictionary=(
        b"\x0a\x01k",
        b"\x12\x017",
        b"\x1a\x06\x08\0\x1a\x02hi",
        b"\x10\0",
        b"\x22\x03\x0a\x01t",
        b"\x08" + b"\xff" * 9,
        b"\x10" + b"\xff" * 9 + b"\x01",
        b"\x33\x34",
    ),
)
