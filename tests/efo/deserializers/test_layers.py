"""Outer layers: compression, the headers of schema registries, CloudEvents; and schemas that are looked up."""

from __future__ import annotations

import gzip as standard_gzip
import json
import struct
import zlib
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from uuid import UUID

import msgspec
import pytest
from google.protobuf.wrappers_pb2 import StringValue

import efo
import efo.testing
from efo.deserializers import (
    CloudEvent,
    avro,
    by_schema,
    cloudevents,
    confluent,
    glue,
    gzip,
    json as json_of,
    protobuf,
    raw,
    schemas,
    zstd,
)
from efo.deserializers.compressed import unpacked, zstd_module

VERSION = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")


class Order(msgspec.Struct):
    id: int


def glue_header(compression: int = 0) -> bytes:
    return bytes([3, compression]) + VERSION.bytes


def confluent_header(schema_id: int = 7) -> bytes:
    return struct.pack(">bI", 0, schema_id)


def refusal(read, data, record, **tags):
    with pytest.raises(efo.errors.DeserializationError) as caught:
        read(record(data, **tags))
    return caught.value.reason


# --- compression ---


@pytest.mark.parametrize(("layer", "compress"), [(gzip, standard_gzip.compress), (zstd, zstd_module().compress)])
def test_compressed_data_reaches_the_inner_deserializer_with_all_its_members(layer, compress, record):
    assert layer(json_of(Order))(record(compress(b'{"id": 1}'))) == Order(1)
    assert layer(raw)(record(compress(b"one") + compress(b"two"))) == b"onetwo"


@pytest.mark.parametrize(
    ("layer", "compress", "name"), [(gzip, standard_gzip.compress, "gzip"), (zstd, zstd_module().compress, "zstd")]
)
def test_damaged_or_huge_compressed_data_is_refused(layer, compress, name, record):
    assert refusal(layer(raw), b"plain", record) == f"not {name}"
    assert refusal(layer(raw), compress(b"x" * 99)[:-3], record) == f"not {name}: its end is missing"
    assert refusal(layer(raw), b"", record) == f"not {name}: its end is missing"
    bomb = compress(b"\0" * 100_000)
    assert len(bomb) < 1000
    assert layer(raw, max_size=100_000)(record(bomb)) == b"\0" * 100_000
    assert "more than 99,999 bytes" in refusal(layer(raw, max_size=99_999), bomb, record)
    assert "more than 150,000 bytes" in refusal(layer(raw, max_size=150_000), bomb * 2, record)
    assert layer(raw)(record(compress(b"x") * 1000)) == b"x" * 1000
    assert "more than 1,000 parts" in refusal(layer(raw), compress(b"x") * 1001, record)


@pytest.mark.parametrize(("layer", "compress"), [(gzip, standard_gzip.compress), (zstd, zstd_module().compress)])
def test_large_data_is_decompressed_in_pieces(layer, compress, record):
    noise = b"".join(sha256(b"%d" % number).digest() for number in range(20_000))  # half a megabyte
    data = compress(noise) + compress(b"") * 9 + compress(noise[:100])
    assert layer(raw)(record(data)) == noise + noise[:100]
    assert "its end is missing" in refusal(layer(raw), data[:-1], record)
    assert refusal(layer(raw), data + b"x", record).startswith("not ")


def test_the_layers_of_a_record_count_what_they_unpacked(record):
    before = unpacked.size
    gzip(gzip(raw))(record(standard_gzip.compress(standard_gzip.compress(b"x" * 1000))))
    assert 1000 < unpacked.size - before < 1100
    with pytest.raises(efo.errors.DeserializationError):
        gzip(raw, max_size=999)(record(standard_gzip.compress(b"x" * 1000)))


# --- registries ---


def test_the_header_of_confluent_is_removed_and_its_id_selects_the_schema(record):
    assert confluent(json_of(Order))(record(confluent_header() + b'{"id": 1}')) == Order(1)
    read = confluent(by_schema({7: '"long"', 8: '"string"'}, avro))
    assert read(record(confluent_header(7) + b"\x02")) == 1
    assert read(record(confluent_header(8) + b"\x02x")) == "x"
    assert refusal(read, confluent_header(9) + b"\x02", record) == "there is no schema 9"
    assert refusal(confluent(raw), b"\x00\x00\x00", record).startswith("no header of Confluent's")
    assert refusal(confluent(raw), b'{"id": 1}', record).startswith("no header of Confluent's")


@pytest.mark.parametrize("path", [b"\x00", b"\x02\x00", b"\x04\x02\x90\x01"], ids=["short", "first", "nested"])
def test_the_path_of_a_message_in_its_file_is_skipped(path, record):
    read = confluent(protobuf(StringValue), message_index=True)
    message = StringValue(value="x")
    assert read(record(confluent_header() + path + message.SerializeToString())) == message
    assert "message index" in refusal(read, confluent_header() + b"\xff" * 9, record)
    assert "message index" in refusal(read, confluent_header() + b"\x06\x00", record)
    assert "message index" in refusal(read, confluent_header() + b"\x01", record)  # minus one


def test_the_header_of_glue_is_removed_and_its_version_selects_the_schema(record):
    assert glue(json_of(Order))(record(glue_header() + b'{"id": 1}')) == Order(1)
    assert glue(json_of(Order))(record(glue_header(5) + zlib.compress(b'{"id": 1}'))) == Order(1)
    assert glue(by_schema({VERSION: '"long"'}, avro))(record(glue_header(5) + zlib.compress(b"\x02"))) == 1
    message = StringValue(value="x")
    read = glue(protobuf(StringValue), message_index=True)
    assert read(record(glue_header() + b"\x81\x01" + message.SerializeToString())) == message
    assert refusal(glue(raw), b"\x03\x01" + VERSION.bytes, record).startswith("no header of the Glue")
    assert refusal(glue(raw), b"\x02\x00" + VERSION.bytes, record).startswith("no header of the Glue")
    assert refusal(glue(raw), glue_header()[:-1], record).startswith("no header of the Glue")
    bomb = glue_header(5) + zlib.compress(b"\0" * 100_000)
    assert "more than 5 bytes" in refusal(glue(raw, max_size=5), bomb, record)


def test_a_schema_that_the_registry_has_but_that_is_none_is_a_failure_of_the_record(record):
    read = confluent(by_schema({7: "no schema"}, avro))
    assert "schema 7 cannot be used: schema='no schema': not an Avro schema" in refusal(
        read, confluent_header() + b"\x02", record
    )


async def test_a_schema_of_a_function_is_loaded_once_and_the_oldest_is_forgotten(record, monkeypatch):
    monkeypatch.setattr(schemas, "MAX_KEPT", 2)
    asked, messages = [], []

    async def find(schema_id: int) -> str:
        asked.append(schema_id)
        if schema_id > 100:
            raise LookupError
        return '"long"'

    read = confluent(by_schema(find, avro))

    async def value(schema_id: int):
        one = record(confluent_header(schema_id) + b"\x02")
        try:
            return read(one)
        except efo.errors.SchemaNotLoadedError as error:
            missing = error
        messages.append(str(missing))
        await missing.load()
        return read(one)

    assert [await value(schema_id) for schema_id in (1, 1, 2, 1, 3, 2, 1)] == [1] * 7
    assert asked == [1, 2, 3, 1]
    assert "schema 1 is not loaded" in messages[0]
    with pytest.raises(efo.errors.DeserializationError, match="there is no schema 101"):
        await value(101)


async def test_a_schema_that_does_not_exist_is_not_asked_for_at_each_record(record, monkeypatch):
    """Nor one that cannot be used. After a short time it is asked for again: a registry copies new ones late."""
    now, asked, found, handled = [1000.0], [], {2: "no schema"}, []
    monkeypatch.setattr(schemas, "monotonic", lambda: now[0])

    async def find(schema_id: int) -> str:
        asked.append(schema_id)
        return found[schema_id]

    async def handle(value: int, record: efo.Record, batch: efo.Batch) -> None:
        handled.append(value)

    handler = efo.deserialize_record(handle, confluent(by_schema(find, avro)))
    batch = efo.testing.make_batch(b"")

    async def refusal(schema_id: int) -> str:
        with pytest.raises(efo.errors.DeserializationError) as caught:
            await handler(record(confluent_header(schema_id) + b"\x02"), batch)
        return caught.value.reason

    for _ in range(3):
        assert await refusal(1) == "there is no schema 1"
        assert "schema 2 cannot be used" in await refusal(2)
        now[0] += schemas.REFUSED_FOR / 3.5
    assert asked == [1, 2]
    now[0] += schemas.REFUSED_FOR / 3.5
    found |= {1: '"long"', 2: '"long"'}
    for schema_id in (1, 2):
        await handler(record(confluent_header(schema_id) + b"\x02"), batch)
    assert (asked, handled) == ([1, 2, 1, 2], [1, 1])


async def test_so_many_schemas_that_do_not_exist_are_remembered(record, monkeypatch):
    monkeypatch.setattr(schemas, "MAX_KEPT", 2)
    asked = []

    async def find(schema_id: int) -> str:
        asked.append(schema_id)
        raise LookupError

    read = by_schema(find, avro)

    async def value(schema_id: int) -> None:
        try:
            read.deserialize(schema_id, record(b""))
        except efo.errors.SchemaNotLoadedError as missing:
            await missing.load()

    for schema_id in (1, 2, 3, 3, 2, 1):
        with pytest.raises(efo.errors.DeserializationError):
            await value(schema_id)
    assert asked == [1, 2, 3, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gzip(b"x"), "inner=<bytes>: expected a deserializer"),
        (lambda: gzip(raw, max_size=0), "max_size=0"),
        (lambda: confluent(len, message_index=1), "message_index=1"),
        (lambda: confluent({7: avro}), "expected a deserializer, or what by_schema returns"),
        (lambda: by_schema({}, "avro"), "a function from a schema to a deserializer"),
        (lambda: by_schema(lambda _id: "long", avro), "not an async function"),
        (lambda: cloudevents(None), "inner=None"),
    ],
)
def test_a_wrong_layer_is_refused_when_it_is_made(make, message):
    with pytest.raises(efo.errors.ConfigurationError) as caught:
        make()
    assert message in str(caught.value)


# --- CloudEvents ---


def event(**changes):
    attributes = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.made", **changes}
    return json.dumps({name: value for name, value in attributes.items() if value is not None}).encode()


def test_a_structured_event_has_its_attributes_and_its_data(record):
    data = event(
        data={"id": 1}, time="2026-01-02T03:04:05Z", subject="s", dataschema="urn:x", partitionkey="k", retries=2
    )
    assert cloudevents(json_of(Order))(record(data)) == CloudEvent(
        id="1",
        source="/shop",
        type="order.made",
        data=Order(1),
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        subject="s",
        dataschema="urn:x",
        extensions={"partitionkey": "k", "retries": 2},
    )


@pytest.mark.parametrize(
    ("members", "data"),
    [
        ({"data": {"id": 1}}, b'{"id": 1}'),
        ({"data": "x", "datacontenttype": "application/vnd.x+json; charset=utf-8"}, b'"x"'),
        ({"data": "<x/>", "datacontenttype": "text/xml"}, b"<x/>"),
        ({"data_base64": "AAE="}, b"\x00\x01"),
        ({}, None),
        ({"data": None}, None),
    ],
)
def test_the_data_of_an_event_is_json_text_base64_or_nothing(members, data, record):
    body = json.dumps({"specversion": "1.0", "id": "1", "source": "s", "type": "t", **members}).encode()
    assert cloudevents(raw)(record(body)).data == data


def test_an_event_in_binary_mode_has_its_attributes_in_the_tags(record):
    read = cloudevents(gzip(json_of(Order)))
    one = record(
        standard_gzip.compress(b'{"id": 1}'),
        ce_specversion="1.0",
        ce_id="1",
        ce_source="/shop",
        ce_type="order.made",
        ce_partitionkey="k",
        content_type="application/json",
        other="no attribute",
    )
    assert read(one) == CloudEvent(
        id="1",
        source="/shop",
        type="order.made",
        data=Order(1),
        datacontenttype="application/json",
        extensions={"partitionkey": "k"},
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" + event() + b"]", "not a CloudEvent in JSON: Expected `object`, got `array`"),
        (b"no json", "JSON is malformed"),
        (event(specversion=None), "the attribute specversion is missing"),
        (event(specversion="0.3"), "the attribute specversion is another"),
        (event(source=None), "the attribute source is missing"),
        (event(id=""), "the attribute id is missing, empty or no text"),
        (event(type=5), "the attribute type is missing, empty or no text"),
        (event(time="yesterday"), "at `$.time`"),
        (event(data_base64="###"), "not a CloudEvent in JSON: Error"),
        (event(data={"id": "x"}), "Expected `int`, got `str` - at `$.id`"),
        (event(**{f"a{number}": 1 for number in range(1000)}), "more than 1,000 attributes"),
        (event(a=[[]] * 250_000), "JSON of more than 100,000 values"),
        (event().replace(b"{", b'{"a": [' + b"1e308," * 6000 + b"0],", 1), "exponents have three digits"),
    ],
)
def test_what_is_no_event_is_refused(data, reason, record):
    assert reason in refusal(cloudevents(json_of(Order)), data, record)


def test_an_event_with_very_many_tags_is_refused(record):
    tags = {f"ce_a{number}": "x" for number in range(1001)}
    assert "more than 1,000 attributes" in refusal(cloudevents(raw), b"", record, ce_specversion="1.0", **tags)


# --- composition ---


def test_layers_compose(record):
    read = gzip(glue(by_schema({VERSION: '"long"'}, partial(avro, kind=int))))
    assert read(record(standard_gzip.compress(glue_header() + b"\x02"))) == 1
