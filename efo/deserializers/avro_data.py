"""Avro's binary encoding, one value without a container, decoded by fastavro."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from io import BytesIO
from typing import Any, Final, TypeVar, overload

import msgspec

from efo.checks import check_count, shown
from efo.deserializers.avro_bounds import MAX_DECIMAL, AvroBounds
from efo.deserializers.base import Deserializer, missing_extra, refused
from efo.deserializers.json_bounds import MAX_VALUES, facts_of, tree_problem
from efo.deserializers.json_data import check_kind, name_of_kind, safe_reason
from efo.errors import ConfigurationError
from efo.model import Record
from efo.third_party_errors import reason_of

T = TypeVar("T")

AvroSchema = str | Mapping[str, Any]
"""An Avro schema: its JSON, or that JSON decoded."""


MAX_SCHEMA: Final = 1024 * 1024
"""Characters of a schema. A record may choose its schema, and reading one takes some 0.2 µs for each of them."""
_DECIMAL: Final = "efo-decimal"


@overload
def avro(
    schema: AvroSchema, kind: type[T], *, reader_schema: AvroSchema | None = None, max_values: int = MAX_VALUES
) -> Deserializer[T]: ...
@overload
def avro(
    schema: AvroSchema, kind: Any = Any, *, reader_schema: AvroSchema | None = None, max_values: int = MAX_VALUES
) -> Deserializer[Any]: ...
def avro(
    schema: AvroSchema, kind: Any = Any, *, reader_schema: AvroSchema | None = None, max_values: int = MAX_VALUES
) -> Deserializer[Any]:
    """Return a deserializer of one Avro value.

    `schema`: the schema that the value was written with. `kind`: what the value is converted to, as for `json`: a
    msgspec Struct, a dataclass, a TypedDict; by default it is as fastavro returns it. `reader_schema`: the schema that
    values are resolved to; by default that of the writer. `max_values`: data of more values than this is refused.
    Raises MissingExtraError without fastavro, and ConfigurationError for a schema or type that is none.
    """
    try:
        import fastavro  # noqa: PLC0415 - an extra
        from fastavro.read import LOGICAL_READERS  # noqa: PLC0415 - the same
    except ImportError as error:
        raise missing_extra("avro", "fastavro", "avro") from error
    check_kind("avro", kind)
    check_count("max_values", max_values)
    LOGICAL_READERS.setdefault(f"bytes-{_DECIMAL}", partial(_read_decimal, LOGICAL_READERS))
    writer, named = _parsed("schema", schema, fastavro)
    reader, of_reader = (None, {}) if reader_schema is None else _parsed("reader_schema", reader_schema, fastavro)
    bounds = _bounds(schema, writer, named, max_values, of_reader)
    facts, small = facts_of(kind), bounds.small

    def deserialize(record: Record) -> Any:
        if len(record.data) > small and (problem := bounds.problem(record.data)):
            raise refused(record, problem)
        stream = BytesIO(record.data)
        try:
            value = fastavro.schemaless_reader(stream, writer, reader)
        except _LongDecimalError:
            raise refused(record, f"Avro with a decimal of more than {MAX_DECIMAL} bytes") from None
        except Exception as error:  # noqa: BLE001 - damaged bytes make fastavro raise whatever they lead it to
            raise refused(record, f"not Avro that fits the schema: {type(error).__name__}") from None
        if rest := len(record.data) - stream.tell():
            raise refused(record, f"not Avro that fits the schema: {rest} bytes follow the value")
        if kind is Any:
            return value
        if problem := tree_problem(value, facts):
            raise refused(record, problem)
        try:
            return msgspec.convert(value, kind)
        except (ValueError, RecursionError) as error:
            raise refused(record, f"Avro that does not fit {name_of_kind(kind)}: {safe_reason(error)}") from None

    return deserialize


class _LongDecimalError(Exception):
    """A decimal has more bytes than MAX_DECIMAL."""


def _read_decimal(readers: Mapping[str, Any], data: bytes, writer: Any = None, reader: Any = None) -> Any:
    """Read a decimal as fastavro, or the application instead of it, reads it."""
    if len(data) > MAX_DECIMAL:
        raise _LongDecimalError
    return readers["bytes-decimal"](data, writer, reader)


def _parsed(name: str, schema: AvroSchema, fastavro: Any) -> tuple[Any, dict[str, Any]]:
    """Return a schema as fastavro reads by it, and its named types."""
    named: dict[str, Any] = {}
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        if len(text) <= MAX_SCHEMA:
            if "decimal" in text:
                fastavro.parse_schema(json.loads(text, object_hook=_unmarked))  # which checks them
            return fastavro.parse_schema(json.loads(text, object_hook=_bounded), named), named
    except Exception as error:  # noqa: BLE001 - fastavro raises its own errors, KeyError, TypeError and others
        raise ConfigurationError(f"{name}={shown(schema)}: not an Avro schema: {reason_of(error)}") from None
    raise ConfigurationError(f"{name}: an Avro schema of more than {MAX_SCHEMA:,} characters")


def _bounds(
    schema: AvroSchema, parsed: Any, named: Mapping[str, Any], max_values: int, of_reader: Mapping[str, Any]
) -> AvroBounds:
    most_fields = max((len(each.get("fields", ())) for each in of_reader.values()), default=0)
    try:
        return AvroBounds(parsed, named, max_values, most_fields)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"schema={shown(schema)}: not an Avro schema: {reason_of(error)}") from None


def _unmarked(members: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema without what tells fastavro that it need not be checked."""
    return {name: value for name, value in members.items() if not name.startswith("__")}


def _bounded(members: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema so that decimals are read by `_read_decimal`."""
    members = _unmarked(members)
    if members.get("type") == "bytes" and members.get("logicalType") == "decimal":
        members["logicalType"] = _DECIMAL
    return members
