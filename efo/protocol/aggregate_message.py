"""The protobuf message of a KPL aggregate, described at run time for protobuf's C parser.

    AggregatedRecord { 1: repeated string partition_key_table  2: repeated string explicit_hash_key_table
                       3: repeated Record }
    Record { 1: partition key index   2: explicit hash key index (optional)   3: data   4: repeated Tag }
    Tag { 1: key   2: value (optional) }

To import protobuf takes longer than to import the rest of efo's protocol: import this module with the first aggregate.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError

from efo.errors import EfoError

MAX_FIELDS: Final = 10_000
MAX_CHUNK: Final = 1024 * 1024
"""A chunk of an aggregate ends after this many user records and keys, or with the one that exceeds this many bytes."""

NO_INDEX: Final = 2**64 - 1
"""The explicit hash key index of a user record that has none."""

OUTSIDE: Final = "the aggregate does not parse: an index is outside its table"
_INCOMPLETE: Final = "a user record has no partition key or no data, or a tag has no key"
_LENGTH_DELIMITED: Final = 2
_MAX_LENGTH_SHIFT: Final = 28


class AggregateError(EfoError):
    """The bytes after MAGIC are not a valid KPL aggregate."""

    error_type = "aggregation"


class Chunk(NamedTuple):
    """An aggregate, or a part of a large one: some fields of its AggregatedRecord.

    `message`: the AggregatedRecord. `is_plain`: no user record has an explicit hash key or a tag.
    """

    message: Any
    is_plain: bool


def parse(data: bytes) -> Chunk:
    """Parse an aggregate without MAGIC and MD5, or a chunk of one. Raises AggregateError.

    Most producers write neither explicit hash keys nor tags, and their absence is known after one comparison: a
    message without them has the same bytes. So they need not be read from each user record.
    """
    try:
        message = _PLAIN.FromString(data)
        if not message.explicit_hash_key_table:
            message.DiscardUnknownFields()
            if message.SerializeToString() == data:
                return Chunk(message, is_plain=True)
        message = _FULL.FromString(data)
    except DecodeError as error:
        raise AggregateError(f"the aggregate does not parse: {str(error).rpartition(': ')[2]}") from error
    except EncodeError as error:
        raise AggregateError(_INCOMPLETE) from error
    if not message.IsInitialized():
        raise AggregateError(_INCOMPLETE)
    if b"\xff" * 9 in data and any(_has_last_index(user) for user in message.records):
        raise AggregateError(OUTSIDE)
    return Chunk(message, is_plain=False)


def end_of_chunk(data: bytes, at: int, max_fields: int) -> int:
    """Return where the chunk of an aggregate ends that begins at `at`: between two fields of the AggregatedRecord.

    Concatenated protobuf messages are one message, so each chunk can be parsed alone. Raises AggregateError for a field
    that is cut off, or of another wire type than those of an AggregatedRecord.
    """
    stop = min(len(data), at + MAX_CHUNK)
    for _ in range(max_fields):
        if at >= stop:
            break
        if data[at] & 0x87 != _LENGTH_DELIMITED:
            raise AggregateError("a large aggregate has a field of an unknown wire type")
        length = shift = 0
        byte = 0x80
        while byte & 0x80 and shift <= _MAX_LENGTH_SHIFT and at + 1 < len(data):
            at += 1
            byte = data[at]
            length |= (byte & 0x7F) << shift
            shift += 7
        at += 1 + length
    if at > len(data):
        raise AggregateError("a field is longer than its message")
    return at


def serialize(keys: list[str], hashes: list[str], users: list[dict[str, Any]]) -> bytes:
    """Return an aggregate without MAGIC and MD5. `users`: the fields of each user record."""
    message = _FULL(partition_key_table=keys, explicit_hash_key_table=hashes, records=users)
    data: bytes = message.SerializeToString()
    return data


def _has_last_index(user: Any) -> bool:
    return bool(user.explicit_hash_key_index == NO_INDEX and user.HasField("explicit_hash_key_index"))


# --- the descriptors ---------------------------------------------------------------------------------------

_FIELD: Final = descriptor_pb2.FieldDescriptorProto


def _message_class(package: str, *, is_plain: bool) -> Any:
    """Return the class AggregatedRecord. To a plain one, explicit hash key indexes and tags are unknown fields.

    Edition 2023 of protobuf has required fields, and it refuses text that is not UTF-8.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="editions", edition=descriptor_pb2.EDITION_2023
    )
    record = file.message_type.add(name="Record")
    _add(record, 1, "partition_key_index", _FIELD.TYPE_UINT64, required=True)
    _add(record, 3, "data", _FIELD.TYPE_BYTES, required=True)
    if not is_plain:
        tag = file.message_type.add(name="Tag")
        _add(tag, 1, "key", _FIELD.TYPE_STRING, required=True)
        _add(tag, 2, "value", _FIELD.TYPE_STRING)
        _add(record, 2, "explicit_hash_key_index", _FIELD.TYPE_UINT64, default_value=str(NO_INDEX))
        _add(record, 4, "tags", _FIELD.TYPE_MESSAGE, repeated=True, type_name=f".{package}.Tag")
    aggregated = file.message_type.add(name="AggregatedRecord")
    _add(aggregated, 1, "partition_key_table", _FIELD.TYPE_STRING, repeated=True)
    _add(aggregated, 2, "explicit_hash_key_table", _FIELD.TYPE_STRING, repeated=True)
    _add(aggregated, 3, "records", _FIELD.TYPE_MESSAGE, repeated=True, type_name=f".{package}.Record")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.AggregatedRecord"))


def _add(
    message: Any, number: int, name: str, kind: int, *, repeated: bool = False, required: bool = False, **options: str
) -> None:
    label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, type=kind, label=label, **options)
    if required:
        field.options.features.field_presence = descriptor_pb2.FeatureSet.LEGACY_REQUIRED


_PLAIN: Final = _message_class("efo.plain", is_plain=True)
_FULL: Final = _message_class("efo.full", is_plain=False)
