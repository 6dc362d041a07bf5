"""Data with the header of a schema registry, Confluent's or AWS Glue's: its schema is looked up once, and kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from math import inf
from struct import Struct
from time import monotonic
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from efo.checks import check_async, check_callable, check_type
from efo.deserializers.base import Deserializer, refused, with_data
from efo.deserializers.compressed import MAX_SIZE, inflated
from efo.errors import ConfigurationError, DeserializationError, SchemaNotLoadedError
from efo.model import Record

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")
T = TypeVar("T")

Schemas = Mapping[K, S] | Callable[[K], Awaitable[S]]
"""Schemas by id: a mapping, or an async function, such as a call of a registry. If there is no such schema, the
function raises LookupError; each other exception of it goes to the failure policy as it is."""

MAX_KEPT: Final = 1000
MAX_KEPT_SIZE: Final = 8 * 1024 * 1024
"""How many schemas are kept, and of how many characters together. The ids come from data, which may name any number."""

REFUSED_FOR: Final = 5.0
"""Seconds in which a function of schemas is not asked again for a schema that it does not have, or that cannot be used:
a wrong id is often that of many records, and a failed batch is split until each of them is alone. It is short, since a
registry may answer before it has copied a new schema."""


def by_schema(schemas: Schemas[K, S], deserializer: Callable[[S], Deserializer[T]]) -> BySchema[K, T]:
    """Return what `confluent` and `glue` need for data that can only be read with its writer's schema, such as Avro.

    `schemas`: where schemas are found by their ids. `deserializer`: makes the deserializer for a schema, once for each:
    `by_schema(schemas, lambda schema: avro(schema, Order))`. Raises ConfigurationError.
    """
    return BySchema(schemas, deserializer)


class BySchema(Generic[K, T]):
    """The deserializers of many schemas, by the ids of the schemas. Made by `by_schema`."""

    def __init__(self, schemas: Schemas[K, S], deserializer: Callable[[S], Deserializer[T]]) -> None:
        check_callable("deserializer", deserializer, "a function from a schema to a deserializer", "schema")
        if not isinstance(schemas, Mapping):
            check_async(schemas, "schemas", "schema_id")
        self._known: dict[K, Deserializer[T]] = {}
        self._sizes: dict[K, int] = {}  # of the schemas behind them
        self._refused: dict[K, tuple[float, str]] = {}  # until when, and why
        self._schemas: Schemas[K, Any] = schemas
        self._make: Callable[[Any], Deserializer[T]] = deserializer

    def deserialize(self, schema_id: K, record: Record) -> T:
        """Return the value of a record that was written with this schema.

        Raises DeserializationError and SchemaNotLoadedError.
        """
        if (known := self._known.get(schema_id)) is None:
            if not isinstance(self._schemas, Mapping):
                self._check_refused(schema_id, record)
                raise SchemaNotLoadedError(
                    f"schema {schema_id} is not loaded: await load() of this error, or pass a mapping of schemas",
                    partial(self._load, schema_id, record),
                )
            if schema_id not in self._schemas:
                raise refused(record, f"there is no schema {schema_id}")
            known = self._keep(schema_id, self._schemas[schema_id], record)
        return known(record)

    async def _load(self, schema_id: K, record: Record) -> None:
        assert callable(self._schemas)  # noqa: S101 - a mapping loads nothing
        self._check_refused(schema_id, record)  # several shards may have asked for it
        try:
            try:
                schema = await self._schemas(schema_id)
            except LookupError:
                raise refused(record, f"there is no schema {schema_id}") from None
            self._keep(schema_id, schema, record)
        except DeserializationError as error:
            self._refused.pop(schema_id, None)
            if len(self._refused) >= MAX_KEPT:
                del self._refused[next(iter(self._refused))]
            self._refused[schema_id] = (monotonic() + REFUSED_FOR, error.reason)
            raise

    def _check_refused(self, schema_id: K, record: Record) -> None:
        until, reason = self._refused.get(schema_id, (-inf, ""))
        if monotonic() < until:
            raise refused(record, reason)

    def _made(self, schema_id: K, schema: Any, record: Record) -> Deserializer[T]:
        try:
            return self._make(schema)
        except ConfigurationError as error:  # the registry's mistake: a failure of this record, not of the handler
            raise refused(record, f"schema {schema_id} cannot be used: {error}") from None

    def _keep(self, schema_id: K, schema: Any, record: Record) -> Deserializer[T]:
        made = self._made(schema_id, schema, record)
        size = _size_of(schema)
        while self._known and (len(self._known) >= MAX_KEPT or sum(self._sizes.values()) + size > MAX_KEPT_SIZE):
            oldest = next(iter(self._known))
            del self._known[oldest], self._sizes[oldest]
        self._known[schema_id], self._sizes[schema_id] = made, size
        return made


def _size_of(schema: Any) -> int:
    """Return the characters of a schema: of its text, or of what shows it."""
    if isinstance(schema, str | bytes):
        return len(schema)
    try:
        return len(repr(schema))
    except Exception:  # noqa: BLE001 - the schema is a registry's, and perhaps nested too deep to be shown
        return MAX_KEPT_SIZE


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
