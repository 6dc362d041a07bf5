from __future__ import annotations

from base64 import b64decode, b64encode

import msgspec
import pytest

START = 1_767_225_600.0
STREAM_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
FIRST = "shardId-000000000000"
MIB = 1024 * 1024


def put(api, data=b"x", key="k"):
    response = api("PutRecord", StreamName="s", PartitionKey=key, Data=b64encode(data).decode(), ExplicitHashKey="0")
    return response["SequenceNumber"]


def iterator(api, kind="TRIM_HORIZON", **members):
    return api("GetShardIterator", StreamName="s", ShardId=FIRST, ShardIteratorType=kind, **members)["ShardIterator"]


def numbers(response):
    return [record["SequenceNumber"] for record in response["Records"]]


def test_next_iterators_continue_without_a_gap(api):
    put_numbers = [put(api, b"%d" % number) for number in range(5)]
    page = api("GetRecords", ShardIterator=iterator(api), Limit=3)
    rest = api("GetRecords", ShardIterator=page["NextShardIterator"])
    assert numbers(page) + numbers(rest) == put_numbers
    assert [b64decode(record["Data"]) for record in rest["Records"]] == [b"3", b"4"]
    empty = api("GetRecords", ShardIterator=rest["NextShardIterator"])
    assert (empty["Records"], empty["MillisBehindLatest"]) == ([], 0)
    put_numbers.append(put(api))
    assert numbers(api("GetRecords", ShardIterator=empty["NextShardIterator"])) == put_numbers[-1:]


def test_millis_behind_latest_is_the_age_of_the_next_record(api):
    put(api)
    api.now += 3
    put(api)
    api.now += 4
    page = api("GetRecords", ShardIterator=iterator(api), Limit=1)
    assert page["MillisBehindLatest"] == 4000


def test_each_iterator_type_starts_at_the_right_record(api):
    put_numbers = []
    for _ in range(4):
        put_numbers.append(put(api))
        api.now += 10
    cases = [
        ({"kind": "TRIM_HORIZON"}, put_numbers),
        ({"kind": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": put_numbers[1]}, put_numbers[1:]),
        ({"kind": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": put_numbers[1]}, put_numbers[2:]),
        ({"kind": "AT_TIMESTAMP", "Timestamp": START + 15}, put_numbers[2:]),
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
def test_an_iterator_with_missing_or_additional_members_is_rejected(api, members):
    assert api.error_of("GetShardIterator", StreamName="s", ShardId=FIRST, **members) == "InvalidArgumentException"


def test_an_iterator_expires_after_five_minutes(api):
    old = iterator(api)
    api.now += 300
    api("GetRecords", ShardIterator=old)
    api.now += 1
    assert api.error_of("GetRecords", ShardIterator=old) == "ExpiredIteratorException"


@pytest.mark.parametrize("text", ["nonsense", "%%%", "e30=", "AAAA"])
def test_an_invalid_iterator_is_rejected(api, text):
    assert api.error_of("GetRecords", ShardIterator=text) == "InvalidArgumentException"


def test_an_iterator_of_a_deleted_stream_is_invalid_for_a_new_stream_of_the_same_name(api):
    old = iterator(api)
    api("DeleteStream", StreamName="s")
    api.now += 5
    api("CreateStream", StreamName="s", ShardCount=2)
    assert api.error_of("GetRecords", ShardIterator=old) == "ResourceNotFoundException"


def test_the_end_of_a_closed_shard_has_child_shards_and_no_next_iterator(api):
    put_numbers = [put(api), put(api)]
    api("SplitShard", StreamName="s", ShardToSplit=FIRST, NewStartingHashKey="1000")
    page = api("GetRecords", ShardIterator=iterator(api), Limit=1)
    assert "ChildShards" not in page
    last = api("GetRecords", ShardIterator=page["NextShardIterator"])
    assert numbers(page) + numbers(last) == put_numbers
    assert "NextShardIterator" not in last
    assert [child["ShardId"] for child in last["ChildShards"]] == ["shardId-000000000002", "shardId-000000000003"]
    assert last["ChildShards"][0]["ParentShards"] == [FIRST]


def test_a_response_has_at_most_ten_thousand_records_or_ten_mebibytes(api):
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
    start = iterator(api)
    for _ in range(5):
        api("GetRecords", ShardIterator=start)
    assert api.error_of("GetRecords", ShardIterator=start) == "ProvisionedThroughputExceededException"
    other = api("GetShardIterator", StreamName="s", ShardId="shardId-000000000001", ShardIteratorType="LATEST")
    api("GetRecords", ShardIterator=other["ShardIterator"])
    api.now += 1
    api("GetRecords", ShardIterator=start)


def test_reading_is_throttled_by_bytes(make_api):
    api = make_api(throttle=True)
    api("CreateStream", StreamName="s", ShardCount=2)
    shard = api.core.stream("s").shards[FIRST]
    for _ in range(10):
        shard.append("", b"x" * MIB, int(START * 1000))
    start = iterator(api)
    assert len(api("GetRecords", ShardIterator=start)["Records"]) == 10
    for _ in range(2):
        assert api.error_of("GetRecords", ShardIterator=start) == "ProvisionedThroughputExceededException"
        api.now += 2.4
    api.now += 0.2
    api("GetRecords", ShardIterator=start, Limit=1)


def test_writing_is_throttled_by_records(make_api):
    api = make_api(throttle_writes=True)
    api("CreateStream", StreamName="s", ShardCount=2)
    entry = {"PartitionKey": "k", "Data": "", "ExplicitHashKey": "0"}
    other_shard = {**entry, "ExplicitHashKey": str(2**128 - 1)}
    for _ in range(2):
        assert api("PutRecords", StreamName="s", Records=[entry] * 450)["FailedRecordCount"] == 0
    response = api("PutRecords", StreamName="s", Records=[entry] * 101 + [other_shard, entry])
    assert response["FailedRecordCount"] == 2
    assert [set(result) for result in response["Records"][99:]] == [
        {"ShardId", "SequenceNumber"}, {"ErrorCode", "ErrorMessage"}, {"ShardId", "SequenceNumber"},
        {"ErrorCode", "ErrorMessage"},
    ]  # fmt: skip
    assert response["Records"][-1] == {
        "ErrorCode": "ProvisionedThroughputExceededException",
        "ErrorMessage": f"Rate exceeded for shard s/{FIRST}",
    }
    assert api.error_of("PutRecord", StreamName="s", **entry) == "ProvisionedThroughputExceededException"
    assert api.core.stream("s").shards[FIRST].end_index == 1000
    api.now += 1
    api("PutRecord", StreamName="s", **entry)


def test_writing_is_throttled_by_bytes(make_api):
    api = make_api(throttle_writes=True, max_record_bytes=4 * MIB)
    api("CreateStream", StreamName="s", ShardCount=2)
    put(api, b"x" * (MIB - 2))
    put(api, b"", "k")
    refused = {"StreamName": "s", "PartitionKey": "k", "Data": "", "ExplicitHashKey": "0"}
    assert api.error_of("PutRecord", **refused) == "ProvisionedThroughputExceededException"
    api.now += 1
    put(api, b"x" * (3 * MIB))  # an idle shard accepts it, and then rejects writes for three seconds
    for _ in range(2):
        api.now += 1.4
        assert api.error_of("PutRecord", **refused) == "ProvisionedThroughputExceededException"
    api.now += 0.3
    put(api, b"", "k")


def test_writes_are_not_throttled_by_default(api):
    put(api, b"x" * (MIB - 1))
    put(api, b"x" * (MIB - 1))


def test_a_dry_run_has_no_effect(api):
    consumer = api.core.register(STREAM_ARN, "c")
    entry = {"PartitionKey": "k", "Data": ""}
    requests = {
        "PutRecord": {"StreamName": "s", **entry},
        "PutRecords": {"StreamName": "s", "Records": [entry]},
        "GetShardIterator": {"StreamName": "s", "ShardId": FIRST, "ShardIteratorType": "LATEST"},
        "GetRecords": {"ShardIterator": iterator(api)},
        "SubscribeToShard": {
            "ConsumerARN": consumer.arn,
            "ShardId": FIRST,
            "StartingPosition": {"Type": "LATEST"},
        },
    }
    for operation, members in requests.items():
        assert api.error_of(operation, **members, DryRun=True) == "DryRunOperationException"
        if operation != "SubscribeToShard":
            api(operation, **members, DryRun=False)
    assert sum(len(shard.records) for shard in api.core.stream("s").shards.values()) == 2


WRONG = {
    "PutRecord": ({"StreamName": "none", "PartitionKey": "k", "Data": ""}, "ResourceNotFoundException"),
    "PutRecords": ({"StreamName": "s", "Records": [{"Data": ""}]}, "ValidationException"),
    "GetShardIterator": (
        {"StreamName": "s", "ShardId": FIRST, "ShardIteratorType": "AT_TIMESTAMP", "Timestamp": START + 99},
        "InvalidArgumentException",
    ),
    "GetRecords": ({"ShardIterator": "AAAA"}, "InvalidArgumentException"),
    "SubscribeToShard": (
        {"ConsumerARN": f"{STREAM_ARN}/consumer/c:1", "ShardId": FIRST, "StartingPosition": {"Type": "LATEST"}},
        "ResourceNotFoundException",
    ),
}


@pytest.mark.parametrize(("operation", "members", "error"), [(name, *case) for name, case in WRONG.items()], ids=WRONG)
def test_a_dry_run_has_the_error_of_the_request(api, operation, members, error):
    assert api.error_of(operation, **members, DryRun=True) == error


def test_dry_runs_of_a_stream_share_one_call_per_second(make_api):
    api = make_api(throttle=True)
    for name in "st":
        api("CreateStream", StreamName=name, ShardCount=1)
    put = {"PartitionKey": "k", "Data": "", "DryRun": True}
    assert api.error_of("PutRecord", StreamName="s", **put) == "DryRunOperationException"
    latest = {"ShardId": FIRST, "ShardIteratorType": "LATEST", "DryRun": True}
    assert api.error_of("GetShardIterator", StreamName="s", **latest) == "ThrottlingException"
    assert api.error_of("PutRecord", StreamName="t", **put) == "DryRunOperationException"
    api("PutRecord", StreamName="s", PartitionKey="k", Data="")
    api.now += 1
    assert api.error_of("GetShardIterator", StreamName="s", **latest) == "DryRunOperationException"


ON_DEMAND = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}


class TestAuto:
    """Streams with the record distribution strategy AUTO."""

    ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/auto"

    @pytest.fixture
    def auto(self, api):
        api("CreateStream", StreamName="auto", RecordDistributionStrategy="AUTO", **ON_DEMAND)
        return api

    def put(self, api, **members):
        return api("PutRecord", StreamName="auto", Data=b64encode(b"x").decode(), **members)["ShardId"]

    def records(self, api, shard_id):
        members = {"StreamName": "auto", "ShardId": shard_id, "ShardIteratorType": "TRIM_HORIZON"}
        return api("GetRecords", ShardIterator=api("GetShardIterator", **members)["ShardIterator"])["Records"]

    def strategy(self, api, name="auto"):
        return api("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"].get(
            "RecordDistributionStrategy"
        )

    def test_records_need_no_key_and_keys_are_ignored_but_returned(self, auto):
        shards = [
            self.put(auto),
            self.put(auto, PartitionKey="k"),
            self.put(auto, PartitionKey="k", ExplicitHashKey="0"),
            self.put(auto, ExplicitHashKey="0"),
        ]
        assert len(set(shards)) == 4
        keys = [[record.get("PartitionKey") for record in self.records(auto, shard)] for shard in shards]
        assert keys == [[None], ["k"], ["k"], [None]]
        assert "PartitionKey" not in self.records(auto, shards[0])[0]

    def test_put_records_distributes_records_evenly(self, auto):
        entries = [{"Data": ""}, {"Data": "", "PartitionKey": "k"}] * 4
        response = auto("PutRecords", StreamName="auto", Records=entries)
        assert response["FailedRecordCount"] == 0
        found = [entry["ShardId"] for entry in response["Records"]]
        assert [found.count(shard) for shard in sorted(set(found))] == [2, 2, 2, 2]

    def test_a_sequence_number_for_ordering_is_refused(self, auto):
        members = {"StreamName": "auto", "Data": "", "PartitionKey": "k", "SequenceNumberForOrdering": "1"}
        assert auto.error_of("PutRecord", **members) == "InvalidArgumentException"
        auto("PutRecord", **members | {"StreamName": "s"})

    @pytest.mark.parametrize(
        ("operation", "members", "text"),
        [
            ("PutRecord", {"Data": ""}, "Value null at 'partitionKey' failed"),
            (
                "PutRecords",
                {"Records": [{"Data": "", "PartitionKey": "k"}, {"Data": "", "ExplicitHashKey": "0"}]},
                "Value null at 'records.2.member.partitionKey' failed",
            ),
        ],
    )
    def test_any_other_stream_requires_a_key(self, auto, operation, members, text):
        _, response = auto.raw(f"Kinesis_20131202.{operation}", msgspec.json.encode({"StreamName": "s", **members}))
        assert response["__type"] == "ValidationException"
        assert text in response["message"]

    def test_the_strategy_of_a_stream_is_switched_at_once_and_described(self, auto):
        assert (self.strategy(auto), self.strategy(auto, "s")) == ("AUTO", None)
        keyless = self.put(auto)
        auto(
            "UpdateStreamRecordDistributionStrategy",
            StreamARN=self.ARN,
            RecordDistributionStrategy="USER_PARTITION_KEY",
        )
        assert self.strategy(auto) == "USER_PARTITION_KEY"
        assert auto.error_of("PutRecord", StreamName="auto", Data="") == "ValidationException"
        assert len({self.put(auto, PartitionKey="k") for _ in range(4)}) == 1
        assert "PartitionKey" not in self.records(auto, keyless)[0]
        auto("UpdateStreamRecordDistributionStrategy", StreamARN=self.ARN, RecordDistributionStrategy="AUTO")
        assert len({self.put(auto, PartitionKey="k") for _ in range(4)}) == 4

    def test_a_provisioned_stream_cannot_have_it(self, auto):
        arn = STREAM_ARN
        update = {"StreamARN": arn, "RecordDistributionStrategy": "AUTO"}
        assert auto.error_of("UpdateStreamRecordDistributionStrategy", **update) == "InvalidArgumentException"
        create = {"StreamName": "p", "ShardCount": 1, "RecordDistributionStrategy": "AUTO"}
        assert auto.error_of("CreateStream", **create) == "InvalidArgumentException"
        provisioned = {"StreamARN": self.ARN, "StreamModeDetails": {"StreamMode": "PROVISIONED"}}
        assert auto.error_of("UpdateStreamMode", **provisioned) == "InvalidArgumentException"
        assert auto.error_of("UpdateStreamRecordDistributionStrategy", **update | {"StreamARN": arn + "x"}) == (
            "ResourceNotFoundException"
        )

    def test_a_stream_that_changes_cannot_be_switched(self, make_api):
        api = make_api(stream_creating=1)
        api("CreateStream", StreamName="auto", **ON_DEMAND)
        update = {"StreamARN": self.ARN, "RecordDistributionStrategy": "AUTO"}
        assert api.error_of("UpdateStreamRecordDistributionStrategy", **update) == "ResourceInUseException"
