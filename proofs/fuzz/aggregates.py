"""The parser of KPL aggregates: it agrees with Google's protobuf library, or it passes the record on unchanged.

An input is the bytes after the magic bytes, as they are or with a correct MD5. Or it is a list of user records, which
this module aggregates and the parser expands again.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from typing import Any, Final

import aws_kinesis_agg.aggregator  # noqa: F401 - adds the directory to sys.path from which messages_pb2 imports config_pb2
from aws_kinesis_agg import messages_pb2

from efo.model import MAX_HASH_KEY, HashKeyRange, Record
from efo.protocol.aggregation import MAGIC, AggregateMode, Deaggregation, Entry, aggregate, deaggregate, hash_key
from proofs.fuzz.cursor import Cursor
from proofs.fuzz.target import Target, require

_BARE, _SEALED, _ENTRIES = range(3)
_RANGES: Final = (None, HashKeyRange("0", str(MAX_HASH_KEY)), HashKeyRange("0", str(MAX_HASH_KEY // 2)))
_MODES: Final = tuple(AggregateMode)
_DIGEST: Final = 16
_MAX_ENTRIES: Final = 64


def check(data: bytes) -> None:
    """Expand the record that the input describes, and compare the result with Google's protobuf library."""
    cursor = Cursor(data)
    kind, choice = cursor.byte() % 3, cursor.byte()
    shard, mode = _RANGES[choice % 3], _MODES[choice // 3 % 3]
    if kind == _BARE:
        deaggregation = deaggregate(record := _outer(MAGIC + cursor.rest()), shard, mode)
        _check(record, deaggregation, shard, mode)
    elif kind == _SEALED:
        deaggregation = deaggregate(record := _outer(_seal(cursor.rest())), shard, mode)
        _check(record, deaggregation, shard, mode)
    else:
        entries = list(_entries(cursor))
        record = _outer(aggregate(entries))
        if entries:
            expanded = [
                Entry(user.partition_key, user.data, user.explicit_hash_key) for user in deaggregate(record).records
            ]
            require(expanded == entries, "the expanded records differ from the aggregated ones")
        _check(record, deaggregate(record, shard, mode), shard, mode)


def _check(record: Record, deaggregation: Deaggregation, shard: HashKeyRange | None, mode: AggregateMode) -> None:
    if deaggregation.problem is not None:
        require(
            deaggregation.records == (record,) and not deaggregation.filtered,
            "a damaged aggregate is not passed on unchanged",
        )
        return
    message: Any = messages_pb2.AggregatedRecord.FromString(record.data[len(MAGIC) : -_DIGEST])
    expected = [_user_record(record, message, number) for number in range(len(message.records))]
    if shard is not None and mode is not AggregateMode.KEEP:
        own = [user for user in expected if hash_key(user.partition_key, user.explicit_hash_key) in shard]
        require(deaggregation.filtered == len(expected) - len(own) or mode is AggregateMode.DROP, "filtered is wrong")
        expected = own if mode is AggregateMode.FILTER or len(own) == len(expected) else []
    require(list(deaggregation.records) == expected, f"read {deaggregation.records!r}, expected {expected!r}")


def _user_record(outer: Record, message: Any, number: int) -> Record:
    """Return a user record as Google's protobuf library reads it."""
    user = message.records[number]
    explicit = user.HasField("explicit_hash_key_index")
    return Record(
        sequence_number=outer.sequence_number,
        approximate_arrival_timestamp=outer.approximate_arrival_timestamp,
        data=user.data,
        partition_key=message.partition_key_table[user.partition_key_index],
        encryption_type=outer.encryption_type,
        sub_sequence_number=number,
        explicit_hash_key=message.explicit_hash_key_table[user.explicit_hash_key_index] if explicit else None,
        tags=tuple((tag.key, tag.value if tag.HasField("value") else None) for tag in user.tags),
    )


def _outer(data: bytes) -> Record:
    return Record("42", 1700000000.5, data, "outer key", "KMS")


def _seal(message: bytes) -> bytes:
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def _entries(cursor: Cursor) -> Iterator[Entry]:
    for _ in range(_MAX_ENTRIES):
        if not cursor.left:
            return
        kind = cursor.byte()
        key = cursor.take(kind % 16).decode("latin-1") or "k"
        explicit = str(cursor.number() << kind % 113) if kind & 0x80 else None
        yield Entry(key, cursor.take(cursor.byte()), explicit)


def seeds() -> Iterator[bytes]:
    """Make aggregates as the KPL does: with and without explicit hash keys, tags, and unknown fields."""
    entries = [Entry("a", b"one"), Entry("b", b"", "0"), Entry("a", b"three", str(MAX_HASH_KEY)), Entry("\u00fc", b"x")]
    message: Any = messages_pb2.AggregatedRecord(partition_key_table=["k", "l"], explicit_hash_key_table=["7"])
    message.records.add(partition_key_index=0, data=b"plain")
    tagged = message.records.add(partition_key_index=1, data=b"tagged", explicit_hash_key_index=0)
    tagged.tags.add(key="t", value="v")
    tagged.tags.add(key="bare")
    unknown = b"\x31" + bytes(8) + b"\x35" + bytes(4) + b"\x38\x96\x01" + b"\x42\x02hi"
    for choice in range(0, 9, 2):
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
    ),
)
