from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

START = 1_767_225_600.0
FIRST = "shardId-000000000000"
MIB = 1024 * 1024


def put(api, data=b"x", key="k"):
    answer = api("PutRecord", StreamName="s", PartitionKey=key, Data=b64encode(data).decode(), ExplicitHashKey="0")
    return answer["SequenceNumber"]


def iterator(api, kind="TRIM_HORIZON", **members):
    return api("GetShardIterator", StreamName="s", ShardId=FIRST, ShardIteratorType=kind, **members)["ShardIterator"]


def numbers(answer):
    return [record["SequenceNumber"] for record in answer["Records"]]


def test_a_shard_is_read_on_by_its_iterators(api):
    given = [put(api, b"%d" % number) for number in range(5)]
    page = api("GetRecords", ShardIterator=iterator(api), Limit=3)
    rest = api("GetRecords", ShardIterator=page["NextShardIterator"])
    assert numbers(page) + numbers(rest) == given
    assert [b64decode(record["Data"]) for record in rest["Records"]] == [b"3", b"4"]
    empty = api("GetRecords", ShardIterator=rest["NextShardIterator"])
    assert (empty["Records"], empty["MillisBehindLatest"]) == ([], 0)
    given.append(put(api))
    assert numbers(api("GetRecords", ShardIterator=empty["NextShardIterator"])) == given[-1:]


def test_the_age_of_the_next_record_is_told(api):
    put(api)
    api.now += 3
    put(api)
    api.now += 4
    page = api("GetRecords", ShardIterator=iterator(api), Limit=1)
    assert page["MillisBehindLatest"] == 4000


def test_the_five_kinds_of_iterators(api):
    given = []
    for _ in range(4):
        given.append(put(api))
        api.now += 10
    cases = [
        ({"kind": "TRIM_HORIZON"}, given),
        ({"kind": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": given[1]}, given[1:]),
        ({"kind": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": given[1]}, given[2:]),
        ({"kind": "AT_TIMESTAMP", "Timestamp": START + 15}, given[2:]),
        ({"kind": "LATEST"}, []),
    ]
    for members, expected in cases:
        assert numbers(api("GetRecords", ShardIterator=iterator(api, **members))) == expected


@pytest.mark.parametrize(
    "members",
    [
        {"ShardIteratorType": "AT_SEQUENCE_NUMBER"},
        {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": "7"},
        {"ShardIteratorType": "AT_TIMESTAMP"},
        {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": START + 1},
        {"ShardIteratorType": "LATEST", "StartingSequenceNumber": "7"},
        {"ShardIteratorType": "TRIM_HORIZON", "Timestamp": START},
    ],
)
def test_a_position_without_its_part_or_with_anothers_is_refused(api, members):
    assert api.refused("GetShardIterator", StreamName="s", ShardId=FIRST, **members) == "InvalidArgumentException"


def test_an_iterator_lasts_five_minutes(api):
    old = iterator(api)
    api.now += 300
    api("GetRecords", ShardIterator=old)
    api.now += 1
    assert api.refused("GetRecords", ShardIterator=old) == "ExpiredIteratorException"


@pytest.mark.parametrize("text", ["nonsense", "%%%", "e30=", "AAAA"])
def test_an_iterator_that_is_none_is_refused(api, text):
    assert api.refused("GetRecords", ShardIterator=text) == "InvalidArgumentException"


def test_an_iterator_of_a_deleted_stream_is_of_no_use_in_its_successor(api):
    old = iterator(api)
    api("DeleteStream", StreamName="s")
    api.now += 5
    api("CreateStream", StreamName="s", ShardCount=2)
    assert api.refused("GetRecords", ShardIterator=old) == "ResourceNotFoundException"


def test_the_end_of_a_closed_shard_tells_its_children(api):
    given = [put(api), put(api)]
    api("SplitShard", StreamName="s", ShardToSplit=FIRST, NewStartingHashKey="1000")
    page = api("GetRecords", ShardIterator=iterator(api), Limit=1)
    assert "ChildShards" not in page
    last = api("GetRecords", ShardIterator=page["NextShardIterator"])
    assert numbers(page) + numbers(last) == given
    assert "NextShardIterator" not in last
    assert [child["ShardId"] for child in last["ChildShards"]] == ["shardId-000000000002", "shardId-000000000003"]
    assert last["ChildShards"][0]["ParentShards"] == [FIRST]


def test_one_answer_has_ten_thousand_records_or_ten_mebibytes(api):
    shard = api.core.stream("s").shards[FIRST]
    for _ in range(10_001):
        shard.append("k", b"", int(START * 1000))
    assert len(api("GetRecords", ShardIterator=iterator(api))["Records"]) == 10_000
    after = shard.records[-1].sequence_number
    for _ in range(3):
        shard.append("k", b"x" * 4 * MIB, int(START * 1000))
    large = api("GetRecords", ShardIterator=iterator(api, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=after))
    assert len(large["Records"]) == 2


def test_reading_is_throttled_by_calls(make_api):
    api = make_api(throttle=True)
    api("CreateStream", StreamName="s", ShardCount=2)
    where = iterator(api)
    for _ in range(5):
        api("GetRecords", ShardIterator=where)
    assert api.refused("GetRecords", ShardIterator=where) == "ProvisionedThroughputExceededException"
    other = api("GetShardIterator", StreamName="s", ShardId="shardId-000000000001", ShardIteratorType="LATEST")
    api("GetRecords", ShardIterator=other["ShardIterator"])
    api.now += 1
    api("GetRecords", ShardIterator=where)


def test_reading_is_throttled_by_bytes(make_api):
    api = make_api(throttle=True)
    api("CreateStream", StreamName="s", ShardCount=2)
    shard = api.core.stream("s").shards[FIRST]
    for _ in range(10):
        shard.append("", b"x" * MIB, int(START * 1000))
    where = iterator(api)
    assert len(api("GetRecords", ShardIterator=where)["Records"]) == 10
    for _ in range(2):
        assert api.refused("GetRecords", ShardIterator=where) == "ProvisionedThroughputExceededException"
        api.now += 2.4
    api.now += 0.2
    api("GetRecords", ShardIterator=where, Limit=1)


def test_writing_is_throttled_by_records(make_api):
    api = make_api(throttle_writes=True)
    api("CreateStream", StreamName="s", ShardCount=2)
    entry = {"PartitionKey": "k", "Data": "", "ExplicitHashKey": "0"}
    elsewhere = {**entry, "ExplicitHashKey": str(2**128 - 1)}
    for _ in range(2):
        assert api("PutRecords", StreamName="s", Records=[entry] * 450)["FailedRecordCount"] == 0
    answer = api("PutRecords", StreamName="s", Records=[entry] * 101 + [elsewhere, entry])
    assert answer["FailedRecordCount"] == 2
    assert [set(result) for result in answer["Records"][99:]] == [
        {"ShardId", "SequenceNumber"}, {"ErrorCode", "ErrorMessage"}, {"ShardId", "SequenceNumber"},
        {"ErrorCode", "ErrorMessage"},
    ]  # fmt: skip
    assert answer["Records"][-1] == {
        "ErrorCode": "ProvisionedThroughputExceededException",
        "ErrorMessage": f"Rate exceeded for shard s/{FIRST}",
    }
    assert api.refused("PutRecord", StreamName="s", **entry) == "ProvisionedThroughputExceededException"
    assert api.core.stream("s").shards[FIRST].end_index == 1000
    api.now += 1
    api("PutRecord", StreamName="s", **entry)


def test_writing_is_throttled_by_bytes(make_api):
    api = make_api(throttle_writes=True, max_record_bytes=4 * MIB)
    api("CreateStream", StreamName="s", ShardCount=2)
    put(api, b"x" * (MIB - 2))
    put(api, b"", "k")
    refused = {"StreamName": "s", "PartitionKey": "k", "Data": "", "ExplicitHashKey": "0"}
    assert api.refused("PutRecord", **refused) == "ProvisionedThroughputExceededException"
    api.now += 1
    put(api, b"x" * (3 * MIB))  # an idle shard takes it, and is busy for three seconds
    for _ in range(2):
        api.now += 1.4
        assert api.refused("PutRecord", **refused) == "ProvisionedThroughputExceededException"
    api.now += 0.3
    put(api, b"", "k")


def test_writers_may_be_left_alone(api):
    put(api, b"x" * (MIB - 1))
    put(api, b"x" * (MIB - 1))


def test_what_is_only_tried_is_not_done(api):
    entry = {"PartitionKey": "k", "Data": ""}
    asked = {
        "PutRecord": {"StreamName": "s", **entry},
        "PutRecords": {"StreamName": "s", "Records": [entry]},
        "GetShardIterator": {"StreamName": "s", "ShardId": FIRST, "ShardIteratorType": "LATEST"},
        "GetRecords": {"ShardIterator": iterator(api)},
        "SubscribeToShard": {
            "ConsumerARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1",
            "ShardId": FIRST,
            "StartingPosition": {"Type": "LATEST"},
        },
    }
    for operation, members in asked.items():
        assert api.refused(operation, **members, DryRun=True) == "DryRunOperationException"
        if operation != "SubscribeToShard":
            api(operation, **members, DryRun=False)
    assert sum(len(shard.records) for shard in api.core.stream("s").shards.values()) == 2
