"""Random requests in both encodings get valid responses or error responses."""

from __future__ import annotations

import cbor2
import msgspec
import pytest
import trio
from hypothesis import given, strategies as st

from efo.testing.operations.table import OPERATIONS
from efo.testing.server.dispatch import Request
from efo.testing.server.encoding import CBOR, JSON
from efo.testing.server.shapes import INPUTS

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
FIRST = "shardId-000000000000"

_texts = st.sampled_from(
    [
        "s",
        ARN,
        ARN + "/consumer/c:1767225600",
        FIRST,
        "shardId-9",
        "0",
        "7",
        "9" * 39,
        "9" * 129,
        "alias/k",
        "AAAA",
        "é",
        "",
    ]
) | st.text(max_size=5)


def values(shape):
    """Return a strategy for values of this shape. Some of them violate its constraints."""
    match shape.kind:
        case "string":
            fitting = st.sampled_from(shape.values) if shape.values else _texts
        case "integer":
            fitting = st.sampled_from([0, 1, 2, 24, 25, 1024, 10_000, -1, 2**31, 2**70])
        case "timestamp":
            fitting = st.sampled_from([0, -1, 1_767_225_600, 1e300]) | st.floats()
        case "boolean":
            fitting = st.booleans()
        case "blob":
            fitting = st.binary(max_size=10)
        case "list":
            fitting = st.lists(values(shape.element), max_size=3)
        case "map":
            fitting = st.dictionaries(st.text(max_size=3), values(shape.element), max_size=3)
        case _:
            fitting = members_of(shape)
    return fitting


def members_of(shape):
    required = {name: values(member) for name, member in shape.members.items() if member.required}
    optional = {name: st.none() | values(member) for name, member in shape.members.items() if not member.required}
    return st.fixed_dictionaries(required, optional=optional)


_requests = st.sampled_from(sorted(OPERATIONS)).flatmap(
    lambda name: st.tuples(st.just(name), members_of(INPUTS[name]), st.sampled_from([JSON, CBOR]))
)


def decode(body, kind):
    if kind == JSON:
        return msgspec.json.decode(body)
    return cbor2.loads(body, semantic_decoders={1: lambda millis, _immutable: millis})


@given(st.lists(_requests, min_size=1, max_size=8))
def test_every_random_request_gets_a_valid_response(make_api, requests):
    api = make_api(shard_limit=50)
    api("CreateStream", StreamName="s", ShardCount=2)
    api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    for name, members, kind in requests:
        body = msgspec.json.encode(members) if kind == JSON else cbor2.dumps(members)
        headers = {"x-amz-target": f"Kinesis_20131202.{name}", "content-type": kind}
        response = api.service.respond(Request("POST", "/", headers, body))
        assert response.status in {200, 400}
        decoded = decode(response.body, kind) if response.body else None
        assert response.status == 200 or set(decoded) == {"__type", "message"}
        api.now += 1


@given(members_of(INPUTS["SubscribeToShard"]))
async def test_every_random_subscribe_gets_a_valid_response(make_api, members):
    api = make_api(consumer_creating=0)
    api("CreateStream", StreamName="s", ShardCount=2)
    api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    headers = {"x-amz-target": "Kinesis_20131202.SubscribeToShard", "content-type": JSON}
    response = api.service.respond(Request("POST", "/", headers, msgspec.json.encode(members)))
    assert response.status in {200, 400}
    if response.status == 200:
        response.body.close()
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    "body",
    [
        b'{"StreamName": "s", "PartitionKey": "\\ud800", "Data": ""}',
        b'{"StreamName": "s", "PartitionKey": "\xed\xa0\x80", "Data": ""}',
        b'{"StreamName": "s", "PartitionKey": "k", "Data": "\xff"}',
        b'{"StreamName": "s", "PartitionKey": "k", "Data": "A"}',
        b'{"StreamName": "s", "PartitionKey": "k", "Data": "+/+="}',
        b'{"StreamName": "s", "PartitionKey": "k", "Data": "QR=="}',
    ],
)
def test_invalid_text_in_json_is_a_serialization_exception(api, body):
    status, response = api.raw("Kinesis_20131202.PutRecord", body)
    assert (status, response["__type"]) == (400, "SerializationException")


def test_invalid_text_in_cbor_is_a_serialization_exception(api):
    headers = {"x-amz-target": "Kinesis_20131202.PutRecord", "content-type": CBOR}
    body = b"\xa3\x6aStreamName\x61s\x64Data\x40\x6cPartitionKey\x62\xff\xfe"
    response = api.service.respond(Request("POST", "/", headers, body))
    assert cbor2.loads(response.body)["__type"] == "SerializationException"
