"""The headers that schema registries put before the data: Confluent's and that of AWS Glue."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeVar
from uuid import UUID

from efo.checks import check_callable, check_type
from efo.deserializers.base import Deserializer, refused, with_data
from efo.deserializers.compressed import MAX_SIZE, inflated
from efo.deserializers.schemas import BySchema
from efo.model import Record

T = TypeVar("T")

_CONFLUENT: Final = Struct(">BI")
"""Confluent's wire format: the byte 0, the id of the schema in four bytes, big endian."""
_GLUE: Final = Struct(">BB16s")
"""AwsSchemaRegistry's header: version, compression, the id of the schema version."""
_GLUE_VERSION: Final = 3
_GLUE_PLAIN: Final = 0
_GLUE_ZLIB: Final = 5
_MAX_INDEXES: Final = 100
"""How deep a message may be nested in its file; nobody nests as deep, and data may claim anything."""


def confluent(inner: Deserializer[T] | BySchema[int, T], *, message_index: bool = False) -> Deserializer[T]:
    """Return a deserializer of data with the header of Confluent's Schema Registry.

    `inner`: what the data behind the header is. With `by_schema(...)`, the schema's id selects the deserializer; any
    other deserializer gets the data, and the id is ignored.
    `message_index`: skip the index of the message in its file, which Confluent's Protobuf serializers write. Raises
    ConfigurationError.
    """
    call = _caller(inner, message_index)

    def deserialize(record: Record) -> T:
        data = record.data
        if len(data) < _CONFLUENT.size or data[0] != 0:
            raise refused(record, "no header of Confluent's Schema Registry: expected the byte 0 and four more")
        _, schema_id = _CONFLUENT.unpack_from(data)
        at = _after_path(record, _CONFLUENT.size) if message_index else _CONFLUENT.size
        return call(schema_id, with_data(record, data[at:]))

    return deserialize


def glue(
    inner: Deserializer[T] | BySchema[UUID, T], *, message_index: bool = False, max_size: int = MAX_SIZE
) -> Deserializer[T]:
    """Return a deserializer of data with the header of the AWS Glue Schema Registry; the KPL writes it too.

    `inner`: as for `confluent`; the id is that of a schema version. `message_index`: skip the index of the message in
    its file, which the Protobuf serializer of AWS writes. `max_size`: as for `gzip`, for data that the serializer
    compressed. Raises ConfigurationError.
    """
    call = _caller(inner, message_index)

    def deserialize(record: Record) -> T:
        data = record.data
        if len(data) < _GLUE.size or data[0] != _GLUE_VERSION or data[1] not in (_GLUE_PLAIN, _GLUE_ZLIB):
            raise refused(
                record,
                "no header of the Glue Schema Registry: expected the byte 3, a compression of 0 or 5, and 16 more",
            )
        _, compression, version = _GLUE.unpack_from(data)
        body = data[_GLUE.size :]
        plain = with_data(record, inflated(record, body, max_size) if compression == _GLUE_ZLIB else body)
        if message_index:
            _, at = _varint(plain, 0)
            plain = with_data(plain, plain.data[at:])
        return call(UUID(bytes=version), plain)

    return deserialize


def _caller(inner: Deserializer[T] | BySchema[Any, T], message_index: object) -> Callable[[Any, Record], T]:
    check_type("message_index", message_index, bool, "True or False")
    if isinstance(inner, BySchema):
        return inner.deserialize
    check_callable("inner", inner, "a deserializer, or what by_schema returns", "record")
    deserializer = inner
    return lambda _schema_id, record: deserializer(record)


def _after_path(record: Record, at: int) -> int:
    """Return where the path of a message in its file ends: its length, then as many indexes; 0 is short for 1, 0."""
    length, at = _varint(record, at)
    length = _zigzag(length)
    if not 0 <= length <= _MAX_INDEXES:
        raise refused(record, "no message index of Confluent's Protobuf serializer")
    for _ in range(length):
        _, at = _varint(record, at)
    return at


def _varint(record: Record, at: int) -> tuple[int, int]:
    """Return a number of Protobuf's variable length, and where it ends."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(record.data):
            break
        byte = record.data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says whether more follows
            return value, at
    raise refused(record, "no message index before the Protobuf message")


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
