"""Text, JSON, Avro and Protobuf: what is read, and that an error names the record and the place, but never data."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum

import fastavro
import msgspec
import pydantic
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given, settings, strategies as st

import efo
from efo import deserializers


class Order(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    state: str = "new"


class State(StrEnum):
    NEW = "new"


class Sale(msgspec.Struct):
    state: State


@dataclass
class Point:
    x: int
    y: int


class Item(pydantic.BaseModel):
    id: int
    prices: dict[str, int] = {}


SECRET = "hunter2"  # what data contains, and no message may
ORDER_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "state", "type": "string"}],
}


def avro_of(value, schema=ORDER_SCHEMA):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("read", "data", "value"),
    [
        pytest.param(deserializers.raw, b"\x00", b"\x00", id="raw"),
        pytest.param(deserializers.text(), "é".encode(), "é", id="text"),
        pytest.param(deserializers.text("latin-1"), b"\xe9", "é", id="latin-1"),
        pytest.param(deserializers.text("utf-16-le"), b"x\0", "x", id="utf-16"),
        pytest.param(deserializers.text("punycode"), b"maana-pta", "mañana", id="punycode"),
        pytest.param(deserializers.json(), b'{"id": [1, null]}', {"id": [1, None]}, id="any json"),
        pytest.param(deserializers.json(Order), b'{"id": 1}', Order(1), id="struct"),
        pytest.param(deserializers.json(Point), b'{"x": 1, "y": 2}', Point(1, 2), id="dataclass"),
        pytest.param(deserializers.json(dict[str, int]), b'{"a": 1}', {"a": 1}, id="dict"),
        pytest.param(deserializers.json(Order, strict=False), b'{"id": "1"}', Order(1), id="not strict"),
        pytest.param(deserializers.pydantic(Item), b'{"id": "1"}', Item(id=1), id="model"),
        pytest.param(deserializers.pydantic(list[int]), b"[1]", [1], id="pydantic's other types"),
        pytest.param(deserializers.avro(ORDER_SCHEMA), avro_of({"id": 1, "state": "x"}), {"id": 1, "state": "x"}),
        pytest.param(
            deserializers.avro(json.dumps(ORDER_SCHEMA), Order), avro_of({"id": 1, "state": "x"}), Order(1, "x")
        ),
        pytest.param(deserializers.protobuf(StringValue), b"\n\x01x", StringValue(value="x"), id="protobuf"),
    ],
)
def test_data_becomes_a_value_of_its_type(read, data, value, record):
    assert read(record(data)) == value
    assert type(read(record(data))) is type(value)


@pytest.mark.parametrize(
    ("read", "data", "reason"),
    [
        pytest.param(deserializers.text(), b"\xff" + SECRET.encode(), "not utf-8: invalid start byte (byte 0)"),
        pytest.param(deserializers.text("punycode"), b"\x80" + SECRET.encode(), "not punycode"),
        pytest.param(deserializers.text("Punycode"), b"-b" * 10_000, "Punycode of more than 4,096 bytes"),
        pytest.param(deserializers.text("idna"), b"xn--a9." * 10_000, "idna of more than 4,096 bytes"),
        pytest.param(deserializers.json(Order), b"", "Order: Input data was truncated"),
        pytest.param(deserializers.json(Order), b'{"id": 1}{', "JSON is malformed: trailing characters (byte 10)"),
        pytest.param(deserializers.json(Order), b'{"id": "hunter2"}', "Expected `int`, got `str` - at `$.id`"),
        pytest.param(deserializers.json(Order), b"{}", "Object missing required field `id`"),
        pytest.param(deserializers.json(Order), b'{"id": 1, "hunter2": 1}', "Order: invalid value"),
        pytest.param(deserializers.json(State), b'"hunter2"', "not JSON that fits State: invalid value", id="enum"),
        pytest.param(
            deserializers.json(Sale), b'{"state": "hunter2"}', "Sale: invalid value - at `$.state`", id="field"
        ),
        pytest.param(deserializers.json(str), b'"\xff"', "not JSON that fits str: UnicodeDecodeError"),
        pytest.param(
            deserializers.json(dict[str, int]), b'{"hunter2": "x"}', "Expected `int`, got `str` - at `$[...]`"
        ),
        pytest.param(deserializers.json(), b"[" * 100_000, "not JSON that fits any value: RecursionError"),
        pytest.param(deserializers.pydantic(Item), b'{"id": "hunter2"}', "Item: int_parsing at id"),
        pytest.param(deserializers.pydantic(Item), b'{"id":1,"prices":{"hunter2":"x"}}', "Item: int_parsing at prices"),
        pytest.param(deserializers.pydantic(Item), b'["hunter2"]', "Item: model_type"),
        pytest.param(
            deserializers.pydantic(list[int]), b'["h","u","n","t"]', "int_parsing, int_parsing, int_parsing, ..."
        ),
        pytest.param(deserializers.avro(ORDER_SCHEMA), b"\x02\x0ehunter", "not Avro that fits the schema"),
        pytest.param(deserializers.avro(ORDER_SCHEMA), b"", "not Avro that fits the schema: EOFError"),
        pytest.param(
            deserializers.avro(ORDER_SCHEMA), avro_of({"id": 1, "state": SECRET}) + b"xx", "2 bytes follow the value"
        ),
        pytest.param(
            deserializers.avro(ORDER_SCHEMA, Point), avro_of({"id": 1, "state": SECRET}), "required field `x`"
        ),
        pytest.param(
            deserializers.protobuf(StringValue), b"\n\x7fhunter2", "not a Protobuf message that fits StringValue"
        ),
    ],
)
def test_wrong_data_is_refused_with_the_record_and_the_place_and_without_the_data(read, data, reason, record):
    with pytest.raises(efo.errors.DeserializationError) as caught:
        read(record(data))
    error = caught.value
    assert str(error).startswith("record 49590/3: ")
    assert reason in str(error)
    assert SECRET not in str(error)
    assert (error.sequence_number, error.sub_sequence_number) == ("49590", 3)
    assert (
        error.__context__ is None or error.__suppress_context__
    )  # a traceback would show the message of the library, which may have data
    assert not error.retryable


def test_avro_is_resolved_to_the_readers_schema(record):
    reader = {**ORDER_SCHEMA, "fields": [*ORDER_SCHEMA["fields"][:1], {"name": "n", "type": "int", "default": 7}]}
    read = deserializers.avro(ORDER_SCHEMA, reader_schema=reader)
    assert read(record(avro_of({"id": 1, "state": "x"}))) == {"id": 1, "n": 7}


def test_logical_types_of_avro_reach_the_struct(record):
    class Payment(msgspec.Struct):
        at: datetime
        price: Decimal

    schema = {
        "type": "record",
        "name": "Payment",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    value = {"at": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("9.50")}
    assert deserializers.avro(schema, Payment)(record(avro_of(value, schema))) == Payment(**value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: deserializers.text("utf-9"), "encoding='utf-9': unknown encoding"),
        pytest.param(lambda: deserializers.json(Item), "efo.deserializers.pydantic", id="pydantic model for json"),
        pytest.param(lambda: deserializers.json(object()), "msgspec cannot use this type"),
        pytest.param(lambda: deserializers.json(io.BytesIO), "expected a type that msgspec decodes"),
        pytest.param(lambda: deserializers.pydantic(io.BytesIO), "pydantic cannot use this type"),
        pytest.param(lambda: deserializers.avro("{"), "schema='{': not an Avro schema"),
        pytest.param(lambda: deserializers.avro({"type": "nothing"}), "not an Avro schema"),
        pytest.param(lambda: deserializers.avro("long", reader_schema='"lung"'), "schema='long': not an Avro schema"),
        pytest.param(lambda: deserializers.avro('"long"', reader_schema='"lung"'), "reader_schema='\"lung\"'"),
        pytest.param(lambda: deserializers.avro('"long"', Item), "efo.deserializers.pydantic"),
        pytest.param(lambda: deserializers.protobuf(Order), "expected a class of messages"),
        pytest.param(lambda: deserializers.protobuf(StringValue()), "expected a class of messages"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_deserializer_is_made(make, message):
    with pytest.raises(efo.errors.ConfigurationError) as caught:
        make()
    assert message in str(caught.value)


@given(data=st.binary(max_size=200))
@settings(deadline=None, derandomize=True, database=None, max_examples=200)
def test_any_bytes_give_a_value_or_a_deserialization_error(data):
    record = efo.Record("1", 0.0, data, "k")
    for read in (
        deserializers.text(),
        deserializers.json(Order),
        deserializers.pydantic(Item),
        deserializers.avro(ORDER_SCHEMA, Order),
        deserializers.protobuf(StringValue),
        deserializers.gzip(deserializers.raw),
        deserializers.zstd(deserializers.raw),
        deserializers.confluent(deserializers.raw, message_index=True),
        deserializers.glue(deserializers.raw, message_index=True),
        deserializers.cloudevents(deserializers.json()),
    ):
        with contextlib.suppress(efo.errors.DeserializationError):
            read(record)
