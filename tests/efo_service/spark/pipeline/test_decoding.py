from __future__ import annotations

import gzip
import json
import zlib

import pytest

from efo.errors import ConfigurationError
from efo_service.spark.errors import SparkError
from efo_service.spark.pipeline.decoding import Decoding, decode, decoded_rows, failed_rows
from proofs.e2e.kafka.broker import AVRO_MODULE

SCHEMA = "id bigint, name string"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}],
    }
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "json"}, "needs value_schema"),
        ({"format": "avro", "schema": ""}, "needs value_schema"),
        ({"format": "raw", "schema": SCHEMA}, "takes no value_schema"),
        ({"format": "avro", "schema": SCHEMA}, "value_schema is not an Avro schema in JSON"),
        ({"format": "avro", "schema": AVRO, "older": (AVRO, "id")}, r"older_value_schemas\[1\] is not an Avro schema"),
        (
            {"format": "json", "schema": SCHEMA, "older": (SCHEMA,)},
            "takes no older_value_schemas: JSON of every version",
        ),
    ],
)
def test_a_schema_must_fit_the_format(arguments, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Decoding(**arguments)


@pytest.fixture
def frame(spark):
    def frame(*values: bytes | None):
        return spark.createDataFrame(list(enumerate(values)), "number int, value binary")

    return frame


@pytest.mark.spark
def test_raw_values_are_unchanged(frame) -> None:
    values = frame(b"\xff", None)
    assert decoded_rows(decode(values, Decoding()), Decoding()).columns == ["number", "value"]


@pytest.mark.spark
def test_json_is_decoded_and_invalid_values_get_a_reason(frame) -> None:
    decoding = Decoding("json", SCHEMA)
    values = frame(
        b'{"id": 7, "name": "caf\xc3\xa9"}',
        b'{"id": 8}',
        b'{"id": "eight"}',
        b"not json",
        b"",
        b'{"id": 9, "name": "\xff"}',
        b"[1, 2]",
        None,
        b'{"id": 10, "other": true}',
        b'{"id": 11}{"id": 12}',
        b'{"id": 11} garbage',
        b'{"id": 11}\n{"id": 12}\n',
        b'{"id": 11}, {"id": 12}',
        b'{"id": 11}]',
        b' {"id": 13}\r\n',
        b'{"id": 14, "other": NaN, "more": -Infinity}',  # as Python's json module writes them
        b'{"id": 11}, "efo end"',
    )
    decoded = decode(values, decoding)
    rows = decoded_rows(decoded, decoding).orderBy("number").collect()
    assert [(row.number, row.data.id, row.data.name) for row in rows] == [
        (0, 7, "café"),
        (1, 8, None),
        (8, 10, None),
        (14, 13, None),
        (15, 14, None),
    ]
    reasons = {row.number: row.reason for row in failed_rows(decoded, ["number", "value"]).collect()}
    assert set(reasons) == {2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16}
    assert {reasons[number] for number in (*range(9, 14), 16)} == {"more than one JSON value"}
    assert reasons[5] == "not UTF-8"
    assert reasons[3] == "not JSON that fits the schema"


@pytest.mark.spark
def test_json_that_would_take_spark_minutes_is_not_decoded(frame) -> None:
    decoding = Decoding("json", "id decimal(38,2), name string")
    long = b'{"name": "%s"}' % (b"x" * 20_000)
    values = frame(b'{"id": "%s"}' % (b"1" * 900_000), b'{"id": "7"}', long, b"[" * 900_000)
    decoded = decode(values, decoding)
    assert [row.number for row in decoded_rows(decoded, decoding).orderBy("number").collect()] == [1, 2]


@pytest.mark.spark
def test_avro_that_claims_gigabytes_ends_nothing(frame) -> None:
    if AVRO_MODULE is None:
        pytest.skip("Spark's Avro module is not installed: make kafka-install")
    claims = b"\xee\xff\xff\xff\x0f"  # 2**31 - 9
    for kind in ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "string", "bytes"):
        schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "a", "type": kind}]})
        decoding = Decoding("avro", schema)
        decoded = decode(frame(claims + b"\x00", b"\x00"), decoding)
        assert [row.number for row in decoded_rows(decoded, decoding).collect()] == [1]


@pytest.mark.spark
@pytest.mark.parametrize("schema", ["id nothing", "id bigint,", "bigint"])
def test_an_invalid_json_schema_is_rejected(frame, schema) -> None:
    with pytest.raises(ConfigurationError, match="value_schema"):
        decode(frame(b"{}"), Decoding("json", schema))


@pytest.mark.spark
def test_avro_is_decoded_and_invalid_values_get_a_reason(frame) -> None:
    if AVRO_MODULE is None:
        pytest.skip("Spark's Avro module is not installed: make kafka-install")
    decoding = Decoding("avro", AVRO)
    seven, nothing = b"\x02\x0e\x02\x0acaf\xc3\xa9", b"\x00\x00"
    framed = b"\x00\x00\x00\x00\x01" + seven  # with the prefix of a schema registry
    values = frame(seven, nothing, b"", seven[:-1], b"\xff", b"\x06\x00", seven + b"\x00", framed, None)
    decoded = decode(values, decoding)
    rows = decoded_rows(decoded, decoding).orderBy("number").collect()
    assert [(row.number, row.data.id, row.data.name) for row in rows] == [(0, 7, "café"), (1, None, None)]
    reasons = {row.number: row.reason for row in failed_rows(decoded, ["number", "value"]).collect()}
    assert reasons == dict.fromkeys(range(2, 9), "not Avro that fits the schema")


@pytest.mark.spark
def test_avro_of_earlier_schemas_is_resolved_to_the_newest(frame) -> None:
    if AVRO_MODULE is None:
        pytest.skip("Spark's Avro module is not installed: make kafka-install")
    number, name = {"name": "id", "type": "int"}, {"name": "name", "type": "string"}
    region = {"name": "region", "type": ["null", "string"], "default": None}
    legacy = {"name": "legacy", "type": "boolean"}
    newest, older, oldest = (
        json.dumps({"type": "record", "name": "Order", "fields": fields})
        for fields in ([{"name": "id", "type": "long"}, name, region], [number, name], [number, legacy, name])
    )
    decoding = Decoding("avro", newest, older=(older, oldest))
    values = frame(b"\x0e\x02x\x02\x04eu", b"\x10\x02y", b"\x12\x01\x02z", b"\x10\x02y\xff", b"", None)
    decoded = decode(values, decoding)
    rows = decoded_rows(decoded, decoding).orderBy("number").collect()
    assert [(row.number, row.data.id, row.data.name, row.data.region) for row in rows] == [
        (0, 7, "x", "eu"),
        (1, 8, "y", None),
        (2, 9, "z", None),
    ]
    reasons = {row.number: row.reason for row in failed_rows(decoded, ["number", "value"]).collect()}
    assert reasons == dict.fromkeys(range(3, 6), "not Avro that fits the schema")


@pytest.mark.spark
def test_avro_without_its_module_or_with_an_invalid_schema_is_rejected(frame) -> None:
    schema = '{"type": "recor"}'
    if AVRO_MODULE is None:
        with pytest.raises(SparkError, match="spark-avro"):
            decode(frame(b""), Decoding("avro", schema))
    else:
        with pytest.raises(ConfigurationError, match="recor"):
            decode(frame(b""), Decoding("avro", schema))


ORDER = b'{"id": 7, "name": "x"}'
GLUE = bytes([3, 5]) + bytes(16)


@pytest.mark.spark
def test_layers_are_taken_off_before_json_is_decoded(frame) -> None:
    decoding = Decoding("json", SCHEMA, unwrap=("gzip", "confluent"))
    header = b"\0\0\0\0\7"
    values = frame(
        gzip.compress(header + ORDER),
        gzip.compress(ORDER),
        header + ORDER,
        gzip.compress(header + b"no json"),
        None,
    )
    decoded = decode(values, decoding)
    assert [(row.number, row.data.id, row.data.name) for row in decoded_rows(decoded, decoding).collect()] == [
        (0, 7, "x")
    ]
    assert {row.number: row.reason for row in failed_rows(decoded, ["number", "value"]).collect()} == {
        1: "no header of Confluent's Schema Registry: expected the byte 0 and four more",
        2: "not gzip",
        3: "not JSON that fits the schema",
        4: "no value",
    }
    assert values.columns == ["number", "value"]
    assert decoded.columns == ["number", "value", "reason", "data"]


@pytest.mark.spark
def test_raw_values_without_their_layers_are_data(frame) -> None:
    decoding = Decoding(unwrap=("glue",))
    decoded = decode(frame(GLUE + zlib.compress(b"\xff"), b"\xff"), decoding)
    assert [(row.number, bytes(row.data)) for row in decoded_rows(decoded, decoding).collect()] == [(0, b"\xff")]
    ((number, value, reason),) = failed_rows(decoded, ["number", "value"]).collect()
    assert (number, bytes(value)) == (1, b"\xff")
    assert reason.startswith("no header of the Glue Schema Registry")
