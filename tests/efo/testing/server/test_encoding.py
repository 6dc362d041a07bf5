from __future__ import annotations

from contextlib import suppress

import cbor2
import pytest
from hypothesis import given, strategies as st

from efo.testing.errors import FakeError
from efo.testing.operations.requests import GetShardIterator, PutRecord
from efo.testing.server.dispatch import Request
from efo.testing.server.encoding import CBOR, JSON, decode

START = 1_767_225_600.0
FIRST = "shardId-000000000000"


@pytest.fixture
def cbor(api):
    """Return a function that calls an operation in CBOR, and returns the status and the members of the response."""

    def call(operation, **members):
        headers = {"x-amz-target": f"Kinesis_20131202.{operation}", "content-type": CBOR}
        response = api.service.respond(Request("POST", "/", headers, cbor2.dumps(members)))
        assert ("content-type", CBOR) in response.headers
        decoded = cbor2.loads(response.body, semantic_decoders={1: lambda value, _: ("at", value)})
        return response.status, decoded

    return call


def test_cbor_has_data_as_bytes_and_timestamps_in_milliseconds(cbor, api):
    assert cbor("PutRecord", StreamName="s", PartitionKey="k", Data=b"\0\xff", ExplicitHashKey="0")[0] == 200
    _, iterator = cbor("GetShardIterator", StreamName="s", ShardId=FIRST, ShardIteratorType="TRIM_HORIZON")
    _, response = cbor("GetRecords", ShardIterator=iterator["ShardIterator"])
    (record,) = response["Records"]
    assert record["Data"] == b"\0\xff"
    assert record["ApproximateArrivalTimestamp"] == ("at", int(START * 1000))
    _, summary = cbor("DescribeStreamSummary", StreamName="s")
    assert summary["StreamDescriptionSummary"]["StreamCreationTimestamp"] == ("at", int(START * 1000))
    _, shards = cbor("ListShards", StreamName="s")
    assert shards["Shards"][0]["HashKeyRange"]["StartingHashKey"] == "0"


@pytest.mark.parametrize("timestamp", [cbor2.CBORTag(1, int(START * 1000)), cbor2.CBORTag(1, START), START, int(START)])
def test_cbor_timestamps_are_read_in_milliseconds_and_in_seconds(timestamp):
    body = cbor2.dumps({"ShardId": FIRST, "ShardIteratorType": "AT_TIMESTAMP", "Timestamp": timestamp})
    assert decode(body, CBOR, "GetShardIterator", GetShardIterator).timestamp == START


def test_cbor_maps_and_strings_of_indefinite_length_are_read():
    """The AWS SDKs for Java write them."""
    body = b"\xbf" + b"\x64Data" + b"\x5f\x41a\x41b\xff" + b"\x6cPartitionKey" + b"\x7f\x61k\xff" + b"\xff"
    request = decode(body, CBOR, "PutRecord", PutRecord)
    assert (request.data, request.partition_key) == (b"ab", "k")


def test_errors_of_cbor_requests_are_in_cbor(cbor):
    status, error = cbor("DescribeStreamSummary", StreamName="none")
    assert (status, error["__type"]) == (400, "ResourceNotFoundException")
    assert cbor("ListStreams", Limit="x")[1]["__type"] == "SerializationException"
    assert cbor("PutRecord", StreamName="s", PartitionKey="k", Data="text")[1]["__type"] == "SerializationException"


def test_subscribe_to_shard_in_cbor_is_a_500(cbor):
    assert cbor("SubscribeToShard")[0] == 500


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xbf",
        b"\xa1a",
        b"\xff",
        b"\x81" * 5000,
        b"\xc0\x01",
        b"\x9b" + b"\xff" * 8,
        b"\x5b" + b"\xff" * 8,
        b"\x01",
    ],
)
def test_invalid_cbor_is_rejected(body):
    with pytest.raises(FakeError, match="SerializationException"):
        decode(body, CBOR, "PutRecord", PutRecord)


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff", b'{"Data": 1e999}', b"{}{}", b"7", b"null"])
def test_invalid_json_is_rejected(body):
    with pytest.raises(FakeError, match="SerializationException"):
        decode(body, JSON, "PutRecord", PutRecord)


@given(st.binary(max_size=200), st.sampled_from([JSON, CBOR]))
def test_a_random_body_is_rejected(body, kind):
    with pytest.raises(FakeError):
        decode(body, kind, "PutRecord", PutRecord)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["StreamName", "Data", "PartitionKey", "DryRun", "StreamARN", "x"]), _values))
def test_random_members_are_decoded_or_rejected(members):
    with suppress(FakeError):
        assert isinstance(decode(cbor2.dumps(members), CBOR, "PutRecord", PutRecord).data, bytes)
