"""Avro's binary encoding, one value without a container, decoded by fastavro."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, TypeVar, overload

import msgspec

from efo.checks import shown
from efo.deserializers.base import Deserializer, missing_extra, refused
from efo.deserializers.json_data import check_kind, name_of_kind, safe_reason
from efo.errors import ConfigurationError
from efo.foreign_errors import reason_of
from efo.model import Record

T = TypeVar("T")

AvroSchema = str | Mapping[str, Any]
"""An Avro schema: its JSON, or that JSON decoded."""


@overload
def avro(schema: AvroSchema, kind: type[T], *, reader_schema: AvroSchema | None = None) -> Deserializer[T]: ...
@overload
def avro(schema: AvroSchema, kind: Any = Any, *, reader_schema: AvroSchema | None = None) -> Deserializer[Any]: ...
def avro(schema: AvroSchema, kind: Any = Any, *, reader_schema: AvroSchema | None = None) -> Deserializer[Any]:
    """Return a deserializer of one Avro value.

    `schema`: the schema that the value was written with. `kind`: what the value is converted to, as for `json`: a
    msgspec Struct, a dataclass, a TypedDict; by default it is as fastavro returns it. `reader_schema`: the schema that
    values are resolved to; by default that of the writer. Raises MissingExtraError without fastavro, and
    ConfigurationError for a schema or type that is none.
    """
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("avro", "fastavro", "avro") from error
    check_kind("avro", kind)
    writer = _parsed("schema", schema, fastavro)
    reader = None if reader_schema is None else _parsed("reader_schema", reader_schema, fastavro)

    def deserialize(record: Record) -> Any:
        stream = BytesIO(record.data)
        try:
            value = fastavro.schemaless_reader(stream, writer, reader)
        except Exception as error:  # noqa: BLE001 - damaged bytes make fastavro raise whatever they lead it to
            raise refused(record, f"not Avro that fits the schema: {type(error).__name__}") from None
        if rest := len(record.data) - stream.tell():
            raise refused(record, f"not Avro that fits the schema: {rest} bytes follow the value")
        if kind is Any:
            return value
        try:
            return msgspec.convert(value, kind)
        except ValueError as error:
            raise refused(record, f"Avro that does not fit {name_of_kind(kind)}: {safe_reason(error)}") from None

    return deserialize


def _parsed(name: str, schema: AvroSchema, fastavro: Any) -> Any:
    try:
        return fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
    except Exception as error:  # noqa: BLE001 - fastavro raises its own errors, KeyError, TypeError and others
        raise ConfigurationError(f"{name}={shown(schema)}: not an Avro schema: {reason_of(error)}") from None
