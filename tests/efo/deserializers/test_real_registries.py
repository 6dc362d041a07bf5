"""Data that Confluent's own serializers wrote, with its own client of the registry; and AWS's client of Glue.

The registry is the one in memory that Confluent's client has for tests. The response of Glue is botocore's Stubber,
which checks it against AWS's model of the API.
"""

from __future__ import annotations

import json
from uuid import UUID

import botocore.session
import botocore.stub
import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.wrappers_pb2 import StringValue

import efo
from efo.deserializers import avro, by_schema, confluent, glue, protobuf

VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
VALUE = SerializationContext("orders", MessageField.VALUE)


class Order(msgspec.Struct):
    id: int
    state: str = "new"


def schema(*fields: str) -> str:
    kinds = {"id": "long", "state": "string"}
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": f, "type": kinds[f]} for f in fields]})


async def value_of(read, record):
    values = []

    async def handle(value, _record, _batch) -> None:
        values.append(value)

    await efo.deserialize_record(handle, read)(record, efo.Batch("orders", "shard", (record,), None, 0, 0))
    return values[0]


@pytest.fixture
def registry():
    return SchemaRegistryClient.new_client({"url": "mock://efo"})


async def test_avro_of_confluents_serializer_is_read_with_the_schema_of_its_registry(registry, record):
    first = AvroSerializer(registry, schema("id"))
    second = AvroSerializer(registry, schema("state", "id"))
    written = [first({"id": 1}, VALUE), second({"id": 2, "state": "paid"}, VALUE)]

    def find(schema_id: int) -> str:
        return registry.get_schema(schema_id).schema_str

    read = confluent(by_schema(efo.in_thread(find), lambda text: avro(text, Order)))
    assert [await value_of(read, record(data)) for data in written] == [Order(1), Order(2, "paid")]


async def test_protobuf_of_confluents_serializer_is_read(registry, record):
    serialize = ProtobufSerializer(StringValue, registry, {"use.deprecated.format": False})
    data = serialize(StringValue(value="paid"), VALUE)
    assert data[:1] == b"\0"
    assert await value_of(confluent(protobuf(StringValue), message_index=True), record(data)) == StringValue(
        value="paid"
    )


async def test_a_schema_version_is_found_with_awss_client_of_glue(record):
    client = botocore.session.get_session().create_client(
        "glue", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    with botocore.stub.Stubber(client) as stub:
        stub.add_response("get_schema_version", {"SchemaDefinition": schema("id")}, {"SchemaVersionId": VERSION})

        def find(version: UUID) -> str:
            return client.get_schema_version(SchemaVersionId=str(version))["SchemaDefinition"]

        read = glue(by_schema(efo.in_thread(find), lambda text: avro(text, Order)))
        data = b"\x03\x00" + UUID(VERSION).bytes + b"\x02"
        assert [await value_of(read, record(data)) for _ in range(2)] == [Order(1)] * 2  # it is asked only once
        stub.assert_no_pending_responses()
