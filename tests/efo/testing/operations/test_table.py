from __future__ import annotations

import pytest

from efo.model import MAX_HASH_KEY
from efo.testing.server.dispatch import Request

START = 1_767_225_600.0
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"


def shard_id(number):
    return f"shardId-{number:012d}"


def test_create_and_describe(api):
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


def test_describe_stream_pages_its_shards(api):
    first = api("DescribeStream", StreamName="s", Limit=1)["StreamDescription"]
    assert [shard["ShardId"] for shard in first["Shards"]] == [shard_id(0)]
    assert first["HasMoreShards"] is True
    last = api("DescribeStream", StreamName="s", ExclusiveStartShardId=shard_id(0))["StreamDescription"]
    assert [shard["ShardId"] for shard in last["Shards"]] == [shard_id(1)]
    assert last["HasMoreShards"] is False


def test_list_streams_in_pages(api):
    for name in ("a", "z"):
        api("CreateStream", StreamName=name, ShardCount=1)
    page = api("ListStreams", Limit=2)
    assert (page["StreamNames"], page["HasMoreStreams"]) == (["a", "s"], True)
    rest = api("ListStreams", NextToken=page["NextToken"])
    assert (rest["StreamNames"], rest["HasMoreStreams"]) == (["z"], False)
    assert api("ListStreams", ExclusiveStartStreamName="s")["StreamNames"] == ["z"]


def test_the_members_of_a_shard(api):
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


def test_list_shards_gives_pages_of_at_most_a_thousand(api):
    api("CreateStream", StreamName="wide", ShardCount=2500)
    ids, page = [], api("ListShards", StreamName="wide", MaxResults=10_000)
    while True:
        assert len(page["Shards"]) <= 1000
        ids += [shard["ShardId"] for shard in page["Shards"]]
        if "NextToken" not in page:
            break
        page = api("ListShards", NextToken=page["NextToken"])
    assert ids == [shard_id(n) for n in range(2500)]


def test_a_token_keeps_the_filter(api):
    api("SplitShard", StreamName="s", ShardToSplit=shard_id(0), NewStartingHashKey="1000")
    page = api("ListShards", StreamName="s", ShardFilter={"Type": "AT_LATEST"}, MaxResults=1)
    rest = api("ListShards", NextToken=page["NextToken"], MaxResults=9)
    assert [s["ShardId"] for s in page["Shards"] + rest["Shards"]] == [shard_id(n) for n in (1, 2, 3)]


def test_a_token_comes_alone_and_does_not_last(api):
    token = api("ListShards", StreamName="s", MaxResults=1)["NextToken"]
    for member in ({"StreamName": "s"}, {"StreamARN": ARN}, {"ExclusiveStartShardId": shard_id(0)}):
        assert api.refused("ListShards", NextToken=token, **member) == "InvalidArgumentException"
    assert api.refused("ListStreams", NextToken=token) == "InvalidArgumentException"
    for wrong in ("nonsense", "%%%", "\udc80"):
        assert api.refused("ListStreams", NextToken=wrong.encode(errors="replace").decode()) == (
            "InvalidArgumentException"
        )
    api.now += 301
    assert api.refused("ListShards", NextToken=token) == "ExpiredNextTokenException"


def test_the_filters_of_list_shards(api):
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
        assert api.refused("ListShards", StreamName="s", ShardFilter={"Type": kind}) == "InvalidArgumentException"


def test_put_record_and_put_records(api):
    one = api("PutRecord", StreamName="s", PartitionKey="k", Data="AAEC", ExplicitHashKey="0")
    assert one["ShardId"] == shard_id(0)
    entries = [{"PartitionKey": "k", "Data": "AAEC", "ExplicitHashKey": hash_key} for hash_key in ("0", str(2**127))]
    many = api("PutRecords", StreamName="s", Records=entries)
    assert many["FailedRecordCount"] == 0
    assert [result["ShardId"] for result in many["Records"]] == [shard_id(0), shard_id(1)]
    stored = api.core.stream("s").shard(shard_id(0)).records
    assert [record.data for record in stored] == [b"\0\1\2"] * 2
    assert [r.sequence_number for r in stored] == [one["SequenceNumber"], many["Records"][0]["SequenceNumber"]]


def test_put_records_is_all_or_nothing_when_one_is_malformed(api):
    entries = [{"PartitionKey": "k", "Data": ""}, {"Data": ""}]
    assert api.refused("PutRecords", StreamName="s", Records=entries) == "InvalidArgumentException"
    assert api.refused("PutRecords", StreamName="s", Records=entries[:1] * 501) == "ValidationException"
    assert all(not shard.records for shard in api.core.stream("s").open_shards)


def test_the_life_of_a_consumer(api):
    made = api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")["Consumer"]
    assert made["ConsumerARN"] == f"{ARN}/consumer/c:{int(START)}"
    assert made["ConsumerStatus"] == "CREATING"
    assert api.refused("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c") == "ResourceInUseException"
    api.now += 1
    told = api("DescribeStreamConsumer", StreamARN=ARN, ConsumerName="c")["ConsumerDescription"]
    assert told == made | {"ConsumerStatus": "ACTIVE", "StreamARN": ARN}
    assert api("DescribeStreamConsumer", ConsumerARN=made["ConsumerARN"])["ConsumerDescription"] == told
    assert api("DeregisterStreamConsumer", ConsumerARN=made["ConsumerARN"]) is None
    assert api("ListStreamConsumers", StreamARN=ARN)["Consumers"][0]["ConsumerStatus"] == "DELETING"
    assert api.refused("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c") == "ResourceInUseException"
    api.now += 1
    assert api("ListStreamConsumers", StreamARN=ARN)["Consumers"] == []
    assert api.refused("DescribeStreamConsumer", ConsumerARN=made["ConsumerARN"]) == "ResourceNotFoundException"


def test_a_consumer_registered_again_has_another_arn(api):
    arns = set()
    for _ in range(3):
        consumer = api.core.register(ARN, "c")
        arns.add(consumer.arn)
        consumer.deregister(START, 0)
    assert len(arns) == 3


def test_consumers_come_in_pages(api):
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
        ("ListShards", {"StreamName": "s", "ShardFilter": {"Type": "WHAT"}}, "ValidationException"),
        ("RegisterStreamConsumer", {"StreamARN": ARN, "ConsumerName": "a b"}, "ValidationException"),
        ("DescribeStreamConsumer", {"ConsumerName": "c"}, "InvalidArgumentException"),
        ("DescribeStreamConsumer", {"StreamARN": ARN, "ConsumerName": "c"}, "ResourceNotFoundException"),
    ],
)
def test_what_is_refused(api, operation, members, code):
    assert api.refused(operation, **members) == code


@pytest.mark.parametrize(
    ("asked", "status", "code"),
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
def test_a_bad_request_gets_an_answer_of_awss_shape(api, asked, status, code):
    assert api.raw(**asked)[0] == status
    assert api.raw(**asked)[1]["__type"] == code


def test_every_answer_tells_the_fakes_time_and_its_own_id(api):
    ids = set()
    for _ in range(2):
        headers = dict(api.service.answer(Request("GET", "/", {}, b"")).headers)
        assert headers["date"] == "Thu, 01 Jan 2026 00:00:00 GMT"
        ids.add(headers["x-amzn-requestid"])
    assert len(ids) == 2
