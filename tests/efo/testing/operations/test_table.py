from __future__ import annotations

from base64 import b64decode

import msgspec
import pytest

from efo.model import MAX_HASH_KEY
from efo.testing.server.dispatch import Request
from efo.testing.state.shards import shard_number

START = 1_767_225_600.0
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"


def shard_id(number):
    return f"shardId-{number:012d}"


def test_a_created_stream_is_described(api):
    assert api("CreateStream", StreamName="on-demand") is None
    assert api("DescribeStreamSummary", StreamName="on-demand")["StreamDescriptionSummary"]["OpenShardCount"] == 4
    summary = api("DescribeStreamSummary", StreamARN=ARN)["StreamDescriptionSummary"]
    assert summary == {
        "StreamName": "s",
        "StreamARN": ARN,
        "StreamStatus": "ACTIVE",
        "StreamModeDetails": {"StreamMode": "PROVISIONED"},
        "StreamCreationTimestamp": START,
        "RetentionPeriodHours": 24,
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
        "OpenShardCount": 2,
        "ConsumerCount": 0,
        "MaxRecordSizeInKiB": 1024,
    }


def test_describe_stream_returns_shards_in_pages(api):
    first = api("DescribeStream", StreamName="s", Limit=1)["StreamDescription"]
    assert [shard["ShardId"] for shard in first["Shards"]] == [shard_id(0)]
    assert first["HasMoreShards"] is True
    last = api("DescribeStream", StreamName="s", ExclusiveStartShardId=shard_id(0))["StreamDescription"]
    assert [shard["ShardId"] for shard in last["Shards"]] == [shard_id(1)]
    assert last["HasMoreShards"] is False


def test_list_streams_returns_pages(api):
    for name in ("a", "z"):
        api("CreateStream", StreamName=name, ShardCount=1)
    page = api("ListStreams", Limit=2)
    assert (page["StreamNames"], page["HasMoreStreams"]) == (["a", "s"], True)
    rest = api("ListStreams", NextToken=page["NextToken"])
    assert (rest["StreamNames"], rest["HasMoreStreams"]) == (["z"], False)
    assert api("ListStreams", ExclusiveStartStreamName="s")["StreamNames"] == ["z"]


def test_list_shards_returns_parents_hash_keys_and_sequence_numbers(api):
    api("SplitShard", StreamName="s", ShardToSplit=shard_id(0), NewStartingHashKey="1000")
    api("MergeShards", StreamName="s", ShardToMerge=shard_id(3), AdjacentShardToMerge=shard_id(1))
    shards = {shard["ShardId"]: shard for shard in api("ListShards", StreamName="s")["Shards"]}
    assert len(shards) == 5
    assert shards[shard_id(2)]["ParentShardId"] == shard_id(0)
    assert "AdjacentParentShardId" not in shards[shard_id(2)]
    assert shards[shard_id(2)]["HashKeyRange"] == {"StartingHashKey": "0", "EndingHashKey": "999"}
    assert "EndingSequenceNumber" not in shards[shard_id(2)]["SequenceNumberRange"]
    merged = shards[shard_id(4)]
    assert (merged["ParentShardId"], merged["AdjacentParentShardId"]) == (shard_id(3), shard_id(1))
    assert merged["HashKeyRange"] == {"StartingHashKey": "1000", "EndingHashKey": str(MAX_HASH_KEY)}
    closed = shards[shard_id(0)]["SequenceNumberRange"]
    assert closed["StartingSequenceNumber"] < closed["EndingSequenceNumber"]


def test_list_shards_returns_pages_of_at_most_a_thousand(api):
    api("CreateStream", StreamName="wide", ShardCount=2500)
    ids, page = [], api("ListShards", StreamName="wide", MaxResults=10_000)
    while True:
        assert len(page["Shards"]) <= 1000
        ids += [shard["ShardId"] for shard in page["Shards"]]
        if "NextToken" not in page:
            break
        page = api("ListShards", NextToken=page["NextToken"])
    assert ids == [shard_id(n) for n in range(2500)]


def test_a_next_token_contains_the_shard_filter(api):
    api("SplitShard", StreamName="s", ShardToSplit=shard_id(0), NewStartingHashKey="1000")
    page = api("ListShards", StreamName="s", ShardFilter={"Type": "AT_LATEST"}, MaxResults=1)
    rest = api("ListShards", NextToken=page["NextToken"], MaxResults=9)
    assert [s["ShardId"] for s in page["Shards"] + rest["Shards"]] == [shard_id(n) for n in (1, 2, 3)]


def test_a_next_token_is_exclusive_and_expires(api):
    token = api("ListShards", StreamName="s", MaxResults=1)["NextToken"]
    for member in ({"StreamName": "s"}, {"StreamARN": ARN}, {"ExclusiveStartShardId": shard_id(0)}):
        assert api.error_of("ListShards", NextToken=token, **member) == "InvalidArgumentException"
    assert api.error_of("ListStreams", NextToken=token) == "InvalidArgumentException"
    for wrong in ("nonsense", "%%%", "\udc80"):
        assert api.error_of("ListStreams", NextToken=wrong.encode(errors="replace").decode()) == (
            "InvalidArgumentException"
        )
    api.now += 301
    assert api.error_of("ListShards", NextToken=token) == "ExpiredNextTokenException"


def test_each_shard_filter_returns_the_right_shards(api):
    api.now += 100
    api("SplitShard", StreamName="s", ShardToSplit=shard_id(0), NewStartingHashKey="1000")  # -> 2, 3
    api.now += 100

    def listed(kind, **members):
        shards = api("ListShards", StreamName="s", ShardFilter={"Type": kind, **members})["Shards"]
        return [int(shard["ShardId"][-12:]) for shard in shards]

    assert listed("FROM_TRIM_HORIZON") == [0, 1, 2, 3]
    assert listed("AT_TRIM_HORIZON") == [0, 1]
    assert listed("AT_LATEST") == [1, 2, 3]
    assert listed("AFTER_SHARD_ID", ShardId=shard_id(1)) == [2, 3]
    assert listed("AT_TIMESTAMP", Timestamp=START + 50) == [0, 1]
    assert listed("AT_TIMESTAMP", Timestamp=START + 150) == [1, 2, 3]
    assert listed("FROM_TIMESTAMP", Timestamp=START + 50) == [0, 1, 2, 3]
    assert listed("FROM_TIMESTAMP", Timestamp=START + 150) == [1, 2, 3]
    for kind in ("AFTER_SHARD_ID", "AT_TIMESTAMP", "FROM_TIMESTAMP"):
        assert api.error_of("ListShards", StreamName="s", ShardFilter={"Type": kind}) == "InvalidArgumentException"


def test_put_record_and_put_records_store_records(api):
    one = api("PutRecord", StreamName="s", PartitionKey="k", Data="AAEC", ExplicitHashKey="0")
    assert one["ShardId"] == shard_id(0)
    entries = [{"PartitionKey": "k", "Data": "AAEC", "ExplicitHashKey": hash_key} for hash_key in ("0", str(2**127))]
    many = api("PutRecords", StreamName="s", Records=entries)
    assert many["FailedRecordCount"] == 0
    assert [result["ShardId"] for result in many["Records"]] == [shard_id(0), shard_id(1)]
    stored = api.core.stream("s").shard(shard_id(0)).records
    assert [record.data for record in stored] == [b"\0\1\2"] * 2
    assert [r.sequence_number for r in stored] == [one["SequenceNumber"], many["Records"][0]["SequenceNumber"]]


def test_put_records_stores_nothing_if_one_record_is_invalid(api):
    entries = [{"PartitionKey": "k", "Data": ""}, {"Data": ""}]
    assert api.error_of("PutRecords", StreamName="s", Records=entries) == "ValidationException"
    assert api.error_of("PutRecords", StreamName="s", Records=entries[:1] * 501) == "ValidationException"
    assert all(not shard.records for shard in api.core.stream("s").open_shards)


def test_a_consumer_passes_through_creating_active_and_deleting(api):
    registered = api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")["Consumer"]
    assert registered["ConsumerARN"] == f"{ARN}/consumer/c:{int(START)}"
    assert registered["ConsumerStatus"] == "CREATING"
    assert api.error_of("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c") == "ResourceInUseException"
    api.now += 1
    described = api("DescribeStreamConsumer", StreamARN=ARN, ConsumerName="c")["ConsumerDescription"]
    assert described == registered | {"ConsumerStatus": "ACTIVE", "StreamARN": ARN}
    assert api("DescribeStreamConsumer", ConsumerARN=registered["ConsumerARN"])["ConsumerDescription"] == described
    assert api("DeregisterStreamConsumer", ConsumerARN=registered["ConsumerARN"]) is None
    assert api("ListStreamConsumers", StreamARN=ARN)["Consumers"][0]["ConsumerStatus"] == "DELETING"
    assert api.error_of("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c") == "ResourceInUseException"
    api.now += 1
    assert api("ListStreamConsumers", StreamARN=ARN)["Consumers"] == []
    assert api.error_of("DescribeStreamConsumer", ConsumerARN=registered["ConsumerARN"]) == "ResourceNotFoundException"


def test_a_consumer_that_is_registered_again_has_a_new_arn(api):
    arns = set()
    for _ in range(3):
        consumer = api.core.register(ARN, "c")
        arns.add(consumer.arn)
        consumer.deregister(START, 0)
    assert len(arns) == 3


def test_list_stream_consumers_returns_pages(api):
    for name in "bca":
        api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName=name)
    page = api("ListStreamConsumers", StreamARN=ARN, MaxResults=2)
    rest = api("ListStreamConsumers", StreamARN=ARN, NextToken=page["NextToken"])
    assert [c["ConsumerName"] for c in page["Consumers"] + rest["Consumers"]] == ["a", "b", "c"]
    assert "NextToken" not in rest


@pytest.mark.parametrize(
    ("operation", "members", "code"),
    [
        ("CreateStream", {"StreamName": "s"}, "ResourceInUseException"),
        ("CreateStream", {"StreamName": "has space"}, "ValidationException"),
        ("CreateStream", {"StreamName": "t", "ShardCount": 0}, "ValidationException"),
        ("CreateStream", {}, "ValidationException"),
        ("DescribeStreamSummary", {}, "InvalidArgumentException"),
        ("DescribeStreamSummary", {"StreamName": "none"}, "ResourceNotFoundException"),
        ("DescribeStreamSummary", {"StreamARN": ARN + "x"}, "ResourceNotFoundException"),
        ("DescribeStreamSummary", {"StreamARN": ARN, "StreamName": "t"}, "InvalidArgumentException"),
        ("DescribeStream", {"StreamName": "s", "Limit": 0}, "ValidationException"),
        ("PutRecord", {"StreamName": "s", "PartitionKey": "k"}, "ValidationException"),
        ("PutRecord", {"StreamName": "s", "PartitionKey": "k", "Data": "not base64"}, "SerializationException"),
        (
            "SplitShard",
            {"StreamName": "s", "ShardToSplit": "shardId-000000000000", "NewStartingHashKey": "a"},
            "ValidationException",
        ),
        ("ListShards", {"StreamName": "s", "ShardFilter": {"Type": "UNKNOWN"}}, "ValidationException"),
        ("RegisterStreamConsumer", {"StreamARN": ARN, "ConsumerName": "a b"}, "ValidationException"),
        ("DescribeStreamConsumer", {"ConsumerName": "c"}, "InvalidArgumentException"),
        ("DescribeStreamConsumer", {"StreamARN": ARN, "ConsumerName": "c"}, "ResourceNotFoundException"),
    ],
)
def test_an_invalid_request_is_rejected(api, operation, members, code):
    assert api.error_of(operation, **members) == code


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        ({"target": "Kinesis_20131202.Nothing", "body": b"{}"}, 400, "UnknownOperationException"),
        ({"target": "", "body": b"{}"}, 400, "UnknownOperationException"),
        ({"target": "DynamoDB_20120810.ListStreams", "body": b"{}"}, 400, "UnknownOperationException"),
        ({"target": "Kinesis_20131202.ListStreams", "body": b"{}", "method": "GET"}, 400, "UnknownOperationException"),
        ({"target": "Kinesis_20131202.ListStreams", "body": b"{}", "path": "/x"}, 400, "UnknownOperationException"),
        ({"target": "Kinesis_20131202.ListStreams", "body": b"{"}, 400, "SerializationException"),
        ({"target": "Kinesis_20131202.ListStreams", "body": b"\xff\xfe"}, 400, "SerializationException"),
        ({"target": "Kinesis_20131202.ListStreams", "body": b"[]"}, 400, "SerializationException"),
        ({"target": "Kinesis_20131202.ListStreams", "body": b'{"Limit":"x"}'}, 400, "SerializationException"),
        ({"target": "Kinesis_20131202.ListStreams", "body": None}, 413, "RequestEntityTooLargeException"),
        (
            {"target": "Kinesis_20131202.ListStreams", "body": b"{}", "content_type": "text/xml"},
            400,
            "SerializationException",
        ),
    ],
)
def test_a_malformed_request_gets_an_error_response(api, request_, status, code):
    assert api.raw(**request_)[0] == status
    assert api.raw(**request_)[1]["__type"] == code


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("Kinesis_20131202.ListStreams", b"hello", "SerializationException"),
        ("Kinesis_20131202.ListStreams", b"", "SerializationException"),
        ("Kinesis_20131202.Nothing", b"{}", "UnknownOperationException"),
    ],
)
def test_the_error_of_an_unreadable_request_has_no_message(api, target, body, code):
    assert api.raw(target, body) == (400, {"__type": code})


STREAM = "stream s under account 123456789012"


@pytest.mark.parametrize(
    ("operation", "members", "message"),
    [
        ("DescribeStream", {"StreamName": "none"}, "Stream none under account 123456789012 not found."),
        ("DescribeStream", {"StreamARN": ARN[:-1] + "none"}, "Stream none under account 123456789012 not found."),
        (
            "GetShardIterator",
            {"StreamName": "s", "ShardId": "shardId-5", "ShardIteratorType": "LATEST"},
            f"Shard {shard_id(5)} in {STREAM} does not exist",
        ),
        (
            "GetShardIterator",
            {"StreamName": "s", "ShardId": "shardId-002147483648", "ShardIteratorType": "LATEST"},
            f"Could not find shard shardId-002147483648 in {STREAM}.",
        ),
        (
            "SplitShard",
            {"StreamName": "s", "ShardToSplit": "x-5", "NewStartingHashKey": "9"},
            f"Could not find shard {shard_id(5)} in {STREAM}.",
        ),
        (
            "SplitShard",
            {"StreamName": "s", "ShardToSplit": "x-0", "NewStartingHashKey": "1"},
            (
                f"NewStartingHashKey 1 used in SplitShard() on shard {shard_id(0)} in {STREAM} is not both "
                "greater than one plus the shard's StartingHashKey 0 and less than the shard's EndingHashKey "
                f"{MAX_HASH_KEY // 2}."
            ),
        ),
        (
            "MergeShards",
            {"StreamName": "s", "ShardToMerge": "1", "AdjacentShardToMerge": "0"},
            (
                f"Shards {shard_id(1)} and {shard_id(0)} in {STREAM} are not an adjacent pair of shards eligible for "
                "merging"
            ),
        ),
        (
            "IncreaseStreamRetentionPeriod",
            {"StreamName": "s", "RetentionPeriodHours": 23},
            "Minimum allowed retention period is 24 hours. Requested retention period (23 hours) is too short.",
        ),
        (
            "DecreaseStreamRetentionPeriod",
            {"StreamName": "s", "RetentionPeriodHours": 25},
            (
                "Requested retention period (25 hours) for stream s can not be longer than existing retention period "
                "(24 hours). Use IncreaseRetentionPeriod API."
            ),
        ),
        (
            "DescribeStreamConsumer",
            {"StreamARN": ARN, "ConsumerName": "c"},
            f"Consumer c under {STREAM} not found.",
        ),
    ],
)
def test_an_error_has_the_text_of_aws(api, operation, members, message):
    _, response = api.raw(f"Kinesis_20131202.{operation}", msgspec.json.encode(members))
    assert response["message"] == message


def test_the_shards_of_a_stream_that_is_creating_cannot_be_listed(make_api):
    api = make_api(stream_creating=1)
    api("CreateStream", StreamName="s", ShardCount=1)
    assert api.raw("Kinesis_20131202.ListShards", b'{"StreamName":"s"}') == (
        400,
        {
            "__type": "ResourceInUseException",
            "message": "Stream s under account 123456789012 not ACTIVE or UPDATING, instead in state CREATING",
        },
    )


@pytest.mark.parametrize("name", ["0", "x-0", "shardId-0", "shardId-000000000000"])
def test_only_the_number_of_a_shard_id_counts(api, name):
    api("PutRecord", StreamName="s", PartitionKey="k", Data="", ExplicitHashKey="0")
    iterator = api("GetShardIterator", StreamName="s", ShardId=name, ShardIteratorType="TRIM_HORIZON")
    assert len(api("GetRecords", ShardIterator=iterator["ShardIterator"])["Records"]) == 1


@pytest.mark.parametrize("name", ["", "ABKLFD8", "2.14E4", "2147483648", "shardId-002147483648", "-", "x-0-0", "x-٣"])
def test_a_shard_id_without_a_number_names_no_shard(name):
    assert shard_number(name) is None


def test_every_response_has_the_fakes_date_and_unique_request_ids(api):
    ids = set()
    for _ in range(2):
        headers = dict(api.service.respond(Request("GET", "/", {}, b"")).headers)
        assert headers["date"] == "Thu, 01 Jan 2026 00:00:00 GMT"
        assert 72 <= len(b64decode(headers["x-amz-id-2"], validate=True)) <= 80
        ids |= {headers["x-amzn-requestid"], headers["x-amz-id-2"]}
    assert len(ids) == 4
