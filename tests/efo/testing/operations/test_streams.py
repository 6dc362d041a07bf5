from __future__ import annotations

import pytest

START = 1_767_225_600.0
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
FIRST = "shardId-000000000000"
KEY = {"EncryptionType": "KMS", "KeyId": "alias/k"}


def status(api, name="s"):
    return api("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]["StreamStatus"]


def test_a_stream_passes_through_creating_active_updating_and_deleting(make_api):
    api = make_api(stream_creating=2, stream_updating=3, stream_deleting=4)
    api("CreateStream", StreamName="s", ShardCount=2)
    assert status(api) == "CREATING"
    assert api("DescribeStream", StreamName="s")["StreamDescription"]["Shards"] == []
    assert api.error_of("ListShards", StreamName="s") == "ResourceInUseException"
    assert api.error_of("PutRecord", StreamName="s", PartitionKey="k", Data="") == "ResourceNotFoundException"
    assert api.error_of("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c") == "ResourceInUseException"
    api.now += 2
    assert status(api) == "ACTIVE"
    api("SplitShard", StreamName="s", ShardToSplit=FIRST, NewStartingHashKey="1000")
    assert status(api) == "UPDATING"
    again = {"StreamName": "s", "ShardToSplit": "shardId-000000000001", "NewStartingHashKey": str(2**127 + 9)}
    assert api.error_of("SplitShard", **again) == "ResourceInUseException"
    api("PutRecord", StreamName="s", PartitionKey="k", Data="")
    api.now += 3
    assert status(api) == "ACTIVE"
    api("SplitShard", **again)
    api("DeleteStream", StreamName="s")
    assert status(api) == "DELETING"
    assert api.error_of("CreateStream", StreamName="s", ShardCount=1) == "ResourceInUseException"
    assert api.error_of("PutRecord", StreamName="s", PartitionKey="k", Data="") == "ResourceNotFoundException"
    api.now += 4
    assert api.error_of("DescribeStreamSummary", StreamName="s") == "ResourceNotFoundException"
    assert api("ListStreams")["StreamNames"] == []
    api("CreateStream", StreamName="s", ShardCount=1)


RESHARDS = {
    "split": ("SplitShard", {"ShardToSplit": FIRST, "NewStartingHashKey": "1000"}, 4),
    "merge": ("MergeShards", {"ShardToMerge": FIRST, "AdjacentShardToMerge": "shardId-000000000001"}, 3),
    "scaling": ("UpdateShardCount", {"TargetShardCount": 4, "ScalingType": "UNIFORM_SCALING"}, 6),
}


@pytest.mark.parametrize(("operation", "members", "count"), RESHARDS.values(), ids=RESHARDS)
def test_a_reshard_takes_effect_when_the_updating_ends(make_api, operation, members, count):
    api = make_api(stream_updating=3)
    api("CreateStream", StreamName="s", ShardCount=2)

    def described():
        shards = api("DescribeStream", StreamName="s")["StreamDescription"]["Shards"]
        assert shards == api("ListShards", StreamName="s")["Shards"]
        return shards

    before = described()
    api(operation, StreamName="s", **members)
    api.now += 2.999
    assert described() == before
    last = api("PutRecord", StreamName="s", PartitionKey="k", Data="", ExplicitHashKey="1")
    assert last["ShardId"] == FIRST
    assert api("DescribeLimits")["OpenShardCount"] == 2
    api.now += 0.001
    assert api("DescribeLimits")["OpenShardCount"] != 2
    after = described()
    assert len(after) == count
    assert last["SequenceNumber"] < after[0]["SequenceNumberRange"]["EndingSequenceNumber"]
    assert api("PutRecord", StreamName="s", PartitionKey="k", Data="", ExplicitHashKey="1")["ShardId"] != FIRST


def test_an_invalid_reshard_is_rejected_at_once(make_api):
    api = make_api(stream_updating=3)
    api("CreateStream", StreamName="s", ShardCount=2)
    wrong = {"StreamName": "s", "ShardToSplit": FIRST, "NewStartingHashKey": "1"}
    assert api.error_of("SplitShard", **wrong) == "InvalidArgumentException"
    wrong = {"StreamName": "s", "ShardToMerge": "shardId-000000000001", "AdjacentShardToMerge": FIRST}
    assert api.error_of("MergeShards", **wrong) == "InvalidArgumentException"
    assert status(api) == "ACTIVE"


def test_deleting_a_stream_with_consumers_requires_enforce_consumer_deletion(api):
    api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    assert api.error_of("DeleteStream", StreamName="s") == "ResourceInUseException"
    api("DeleteStream", StreamName="s", EnforceConsumerDeletion=True)
    assert api.error_of("DescribeStreamSummary", StreamName="s") == "ResourceNotFoundException"
    assert api.error_of("DescribeStreamConsumer", StreamARN=ARN, ConsumerName="c") == "ResourceNotFoundException"


def test_at_most_five_streams_are_creating_at_the_same_time(make_api):
    api = make_api(stream_creating=1)
    for number in range(5):
        api("CreateStream", StreamName=f"s{number}", ShardCount=1)
    assert api.error_of("CreateStream", StreamName="one-more", ShardCount=1) == "LimitExceededException"
    api.now += 1
    api("CreateStream", StreamName="one-more", ShardCount=1)


def test_the_shard_limit_of_the_account_is_enforced(make_api):
    api = make_api(shard_limit=5)
    api("CreateStream", StreamName="s", ShardCount=3)
    api("CreateStream", StreamName="d", StreamModeDetails={"StreamMode": "PROVISIONED"}, ShardCount=1)
    assert api.error_of("CreateStream", StreamName="t", ShardCount=2) == "LimitExceededException"
    assert api("DescribeLimits") == {
        "ShardLimit": 5,
        "OpenShardCount": 4,
        "OnDemandStreamCount": 0,
        "OnDemandStreamCountLimit": 50,
    }
    api("SplitShard", StreamName="s", ShardToSplit=FIRST, NewStartingHashKey="1000")
    split = {"StreamName": "s", "ShardToSplit": "shardId-000000000003", "NewStartingHashKey": "500"}
    assert api.error_of("SplitShard", **split) == "LimitExceededException"
    assert (
        api.error_of("UpdateShardCount", StreamName="s", TargetShardCount=6, ScalingType="UNIFORM_SCALING")
        == "LimitExceededException"
    )


def test_an_on_demand_stream_has_four_shards_and_cannot_be_resharded(api):
    on_demand = {"StreamMode": "ON_DEMAND"}
    api("CreateStream", StreamName="o", StreamModeDetails=on_demand)
    summary = api("DescribeStreamSummary", StreamName="o")["StreamDescriptionSummary"]
    assert (summary["StreamModeDetails"], summary["OpenShardCount"]) == (on_demand, 4)
    assert api("DescribeLimits")["OnDemandStreamCount"] == 1
    split = {"ShardToSplit": FIRST, "NewStartingHashKey": "1000"}
    assert api.error_of("SplitShard", StreamName="o", **split) == "ValidationException"
    wrong = {"StreamName": "w", "StreamModeDetails": on_demand, "ShardCount": 1}
    assert api.error_of("CreateStream", **wrong) == "ValidationException"
    missing = {"StreamName": "w", "StreamModeDetails": {"StreamMode": "PROVISIONED"}}
    assert api.error_of("CreateStream", **missing) == "ValidationException"
    api("UpdateStreamMode", StreamARN=ARN[:-1] + "o", StreamModeDetails={"StreamMode": "PROVISIONED"})
    api("SplitShard", StreamName="o", **split)


def test_the_retention_period_can_be_increased_and_decreased(api):
    def hours():
        return api("DescribeStreamSummary", StreamName="s")["StreamDescriptionSummary"]["RetentionPeriodHours"]

    api("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=8760)
    assert hours() == 8760
    api("DecreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=24)
    assert hours() == 24
    for operation, wrong in (
        ("Increase", 23), ("Increase", 8761), ("Decrease", 25), ("Decrease", 23)
    ):  # fmt: skip
        error = api.error_of(f"{operation}StreamRetentionPeriod", StreamName="s", RetentionPeriodHours=wrong)
        assert error == "InvalidArgumentException"
    assert hours() == 24


@pytest.mark.parametrize("operation", ["IncreaseStreamRetentionPeriod", "DecreaseStreamRetentionPeriod"])
def test_the_present_retention_period_is_accepted(api, operation):
    api("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=48)
    assert api(operation, StreamName="s", RetentionPeriodHours=48) is None
    summary = api("DescribeStreamSummary", StreamName="s")["StreamDescriptionSummary"]
    assert summary["RetentionPeriodHours"] == 48


def test_the_maximum_record_size_of_a_stream_can_be_raised(api):
    large = {"StreamName": "s", "PartitionKey": "k", "Data": "A" * 4 * 700_000}  # 2.1 MB
    assert api.error_of("PutRecord", **large) == "InvalidArgumentException"
    api("UpdateMaxRecordSize", StreamARN=ARN, MaxRecordSizeInKiB=10_240)
    summary = api("DescribeStreamSummary", StreamName="s")["StreamDescriptionSummary"]
    assert summary["MaxRecordSizeInKiB"] == 10_240
    api("PutRecord", **large)
    api("CreateStream", StreamName="big", ShardCount=1, MaxRecordSizeInKiB=4096)
    api("PutRecord", **large | {"StreamName": "big"})
    assert api.error_of("UpdateMaxRecordSize", StreamARN=ARN, MaxRecordSizeInKiB=512) == "ValidationException"
    assert api.error_of("UpdateMaxRecordSize", MaxRecordSizeInKiB=1024) == "InvalidArgumentException"


def test_a_request_of_more_than_ten_mebibytes_is_rejected(api):
    api("UpdateMaxRecordSize", StreamARN=ARN, MaxRecordSizeInKiB=10_240)
    entry = {"PartitionKey": "k", "Data": "A" * 4 * 1_800_000}  # 5.4 MB
    assert api.error_of("PutRecords", StreamName="s", Records=[entry] * 2) == "InvalidArgumentException"
    assert api.core.stream("s").shards[FIRST].records == []


def test_a_stream_and_each_encrypted_record_have_an_encryption_type(api):
    record = {"StreamName": "s", "PartitionKey": "k", "Data": "", "ExplicitHashKey": "0"}
    many = {"StreamName": "s", "Records": [{"PartitionKey": "k", "Data": "", "ExplicitHashKey": "0"}]}
    summary = api("DescribeStreamSummary", StreamName="s")["StreamDescriptionSummary"]
    assert summary["EncryptionType"] == "NONE"
    assert "EncryptionType" not in api("PutRecord", **record)
    assert "EncryptionType" not in api("PutRecords", **many)
    api("StartStreamEncryption", StreamName="s", **KEY)
    summary = api("DescribeStreamSummary", StreamName="s")["StreamDescriptionSummary"]
    assert (summary["EncryptionType"], summary["KeyId"]) == ("KMS", "alias/k")
    assert api("PutRecord", **record)["EncryptionType"] == "KMS"
    assert api("PutRecords", **many)["EncryptionType"] == "KMS"
    other = KEY | {"KeyId": "alias/other"}
    assert api.error_of("StopStreamEncryption", StreamName="s", **other) == "InvalidArgumentException"
    none = KEY | {"EncryptionType": "NONE"}
    assert api.error_of("StopStreamEncryption", StreamName="s", **none) == "InvalidArgumentException"
    api("StopStreamEncryption", StreamName="s", **KEY)
    assert "EncryptionType" not in api("PutRecord", **record)
    iterator = api("GetShardIterator", StreamName="s", ShardId=FIRST, ShardIteratorType="TRIM_HORIZON")
    records = api("GetRecords", ShardIterator=iterator["ShardIterator"])["Records"]
    assert [record.get("EncryptionType", "missing") for record in records] == [
        "missing", "missing", "KMS", "KMS", "missing"
    ]  # fmt: skip


def test_enhanced_monitoring_can_be_enabled_and_disabled(api):
    enabled = api("EnableEnhancedMonitoring", StreamName="s", ShardLevelMetrics=["IncomingBytes", "OutgoingBytes"])
    assert enabled["CurrentShardLevelMetrics"] == []
    assert enabled["DesiredShardLevelMetrics"] == ["IncomingBytes", "OutgoingBytes"]
    disabled = api("DisableEnhancedMonitoring", StreamName="s", ShardLevelMetrics=["OutgoingBytes"])
    assert disabled["DesiredShardLevelMetrics"] == ["IncomingBytes"]
    assert (
        len(api("EnableEnhancedMonitoring", StreamName="s", ShardLevelMetrics=["ALL"])["DesiredShardLevelMetrics"]) == 7
    )


def test_tags_are_added_listed_and_removed(api):
    api("AddTagsToStream", StreamName="s", Tags={"a": "1", "b": "2"})
    api("AddTagsToStream", StreamName="s", Tags={"a": "3"})
    page = api("ListTagsForStream", StreamName="s", Limit=1)
    assert page == {"Tags": [{"Key": "a", "Value": "3"}], "HasMoreTags": True}
    rest = api("ListTagsForStream", StreamName="s", ExclusiveStartTagKey="a")
    assert rest == {"Tags": [{"Key": "b", "Value": "2"}], "HasMoreTags": False}
    api("RemoveTagsFromStream", StreamName="s", TagKeys=["a", "missing"])
    assert api("ListTagsForResource", ResourceARN=ARN) == {"Tags": [{"Key": "b", "Value": "2"}]}
    many = {f"k{number}": "" for number in range(50)}
    assert api.error_of("TagResource", ResourceARN=ARN, Tags=many) == "InvalidArgumentException"


def test_streams_and_consumers_can_be_created_with_tags(api):
    api("CreateStream", StreamName="t", ShardCount=1, Tags={"a": "1"})
    assert api("ListTagsForStream", StreamName="t")["Tags"] == [{"Key": "a", "Value": "1"}]
    consumer = api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c", Tags={"b": "2"})["Consumer"]
    api("TagResource", ResourceARN=consumer["ConsumerARN"], Tags={"c": "3"})
    api("UntagResource", ResourceARN=consumer["ConsumerARN"], TagKeys=["b"])
    assert api("ListTagsForResource", ResourceARN=consumer["ConsumerARN"])["Tags"] == [{"Key": "c", "Value": "3"}]


@pytest.mark.parametrize("character", ";,%\t\n\x00!\u200b")
def test_a_tag_with_a_character_that_is_not_allowed_is_rejected(api, character):
    wrong = f"abc{character}def"
    for tags in ({wrong: "1"}, {"a": wrong}):
        assert api.error_of("AddTagsToStream", StreamName="s", Tags=tags) == "InvalidArgumentException"
        assert api.error_of("TagResource", ResourceARN=ARN, Tags=tags) == "InvalidArgumentException"
        assert api.error_of("CreateStream", StreamName="t", ShardCount=1, Tags=tags) == "InvalidArgumentException"
        consumer = {"StreamARN": ARN, "ConsumerName": "c", "Tags": tags}
        assert api.error_of("RegisterStreamConsumer", **consumer) == "InvalidArgumentException"
    assert api.error_of("RemoveTagsFromStream", StreamName="s", TagKeys=[wrong]) == "InvalidArgumentException"
    assert api("ListTagsForStream", StreamName="s")["Tags"] == []
    assert api("ListStreams")["StreamNames"] == ["s"]
    assert api("ListStreamConsumers", StreamARN=ARN)["Consumers"] == []


def test_letters_digits_spaces_and_some_marks_are_allowed_in_tags(api):
    tags = {"ü0 _.": "日本", "/=+-@:": "", "a b": "٣"}
    api("AddTagsToStream", StreamName="s", Tags=tags)
    assert len(api("ListTagsForStream", StreamName="s")["Tags"]) == 3
    api("RemoveTagsFromStream", StreamName="s", TagKeys=list(tags))
    assert api("ListTagsForStream", StreamName="s")["Tags"] == []


@pytest.mark.parametrize("name", ["StreamName", "StreamARN"])
def test_the_creation_timestamp_distinguishes_streams_of_the_same_name(api, name):
    token = api("ListShards", StreamName="s", MaxResults=1)["NextToken"]
    stream = {"StreamName": "s"} if name == "StreamName" else {"StreamARN": ARN}
    assert api.error_of("ListShards", **stream, StreamCreationTimestamp=START - 1) == "ResourceNotFoundException"
    assert len(api("ListShards", **stream, StreamCreationTimestamp=START)["Shards"]) == 2
    api("DeleteStream", StreamName="s")
    assert api.error_of("ListShards", NextToken=token) == "ResourceNotFoundException"
