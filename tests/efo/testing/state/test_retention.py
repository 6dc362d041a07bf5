from __future__ import annotations

import dataclasses
import tracemalloc

import trio

from efo.testing import FakeKinesis

FIRST = "shardId-000000000000"
HOUR = 3600
START = 1_767_225_600.0


def put(api, key="k"):
    return api("PutRecord", StreamName="s", PartitionKey=key, Data="eA==", ExplicitHashKey="0")["SequenceNumber"]


def read(api, kind, **members):
    iterator = api("GetShardIterator", StreamName="s", ShardId=FIRST, ShardIteratorType=kind, **members)
    response = api("GetRecords", ShardIterator=iterator["ShardIterator"])
    return [record["SequenceNumber"] for record in response["Records"]]


def listed(api, **members):
    return [int(shard["ShardId"][-12:]) for shard in api("ListShards", StreamName="s", **members)["Shards"]]


def test_the_trim_horizon_moves_with_time(api):
    put_numbers = []
    for _ in range(3):
        put_numbers.append(put(api))
        api.now += HOUR
    assert read(api, "TRIM_HORIZON") == put_numbers
    api.now += 21 * HOUR + 1
    assert read(api, "TRIM_HORIZON") == put_numbers[1:]
    api.now += HOUR
    assert read(api, "TRIM_HORIZON") == put_numbers[2:]
    api.now += HOUR
    assert read(api, "TRIM_HORIZON") == []


def test_a_record_of_the_streams_first_millisecond_is_kept(api):
    api.now = START + 0.0007  # arrival times are whole milliseconds, creation times are not
    api("CreateStream", StreamName="young", ShardCount=1)
    api("PutRecord", StreamName="young", PartitionKey="k", Data="eA==")
    api.now += 60
    iterator = api("GetShardIterator", StreamName="young", ShardId=FIRST, ShardIteratorType="TRIM_HORIZON")
    assert len(api("GetRecords", ShardIterator=iterator["ShardIterator"])["Records"]) == 1


def test_a_trimmed_position_means_the_trim_horizon(api):
    put_numbers = []
    for _ in range(3):
        put_numbers.append(put(api))
        api.now += HOUR
    api.now += 22 * HOUR + 1  # the first two are expired
    assert read(api, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=put_numbers[0]) == put_numbers[2:]
    assert read(api, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=put_numbers[0]) == put_numbers[2:]
    assert read(api, "AT_TIMESTAMP", Timestamp=START) == put_numbers[2:]


def test_an_iterator_behind_the_trim_horizon_continues_there(api):
    api("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=48)
    put(api)
    api.now += 30 * HOUR
    kept = put(api)
    iterator = api("GetShardIterator", StreamName="s", ShardId=FIRST, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    api("DecreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=24)
    response = api("GetRecords", ShardIterator=iterator)
    assert [record["SequenceNumber"] for record in response["Records"]] == [kept]
    following = put(api)
    rest = api("GetRecords", ShardIterator=response["NextShardIterator"])
    assert [record["SequenceNumber"] for record in rest["Records"]] == [following]


def test_increasing_the_retention_period_does_not_restore_records(api):
    put(api)
    api.now += 25 * HOUR
    kept = put(api)
    api("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=48)
    assert read(api, "TRIM_HORIZON") == [kept]


def test_a_closed_shard_is_listed_until_all_its_records_expire(api):
    api.now += HOUR
    api("SplitShard", StreamName="s", ShardToSplit=FIRST, NewStartingHashKey="1000")
    api.now += 23 * HOUR
    assert listed(api) == [0, 1, 2, 3]
    assert listed(api, ShardFilter={"Type": "AT_TRIM_HORIZON"}) == [0, 1]
    assert listed(api, ShardFilter={"Type": "FROM_TIMESTAMP", "Timestamp": START}) == [0, 1, 2, 3]
    api.now += HOUR + 1
    assert listed(api) == [1, 2, 3]
    for kind in ("AT_TRIM_HORIZON", "FROM_TRIM_HORIZON"):
        assert listed(api, ShardFilter={"Type": kind}) == [1, 2, 3]
    assert listed(api, ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": START}) == [1, 2, 3]
    child = api("ListShards", StreamName="s")["Shards"][1]
    assert child["ParentShardId"] == FIRST
    request = {"StreamName": "s", "ShardId": FIRST, "ShardIteratorType": "LATEST"}
    assert api.error_of("GetShardIterator", **request) == "ResourceNotFoundException"


def test_shard_numbers_are_not_reused(api):
    api("SplitShard", StreamName="s", ShardToSplit=FIRST, NewStartingHashKey="1000")
    api.now += 25 * HOUR
    api("SplitShard", StreamName="s", ShardToSplit="shardId-000000000002", NewStartingHashKey="500")
    assert listed(api) == [1, 2, 3, 4, 5]


def test_the_memory_of_expired_records_is_freed(api):
    tracemalloc.start()
    try:
        for _ in range(20):
            api.core.stream("s").put("k", bytes(1_000_000), int(api.now * 1000), "0")
        assert tracemalloc.get_traced_memory()[0] > 20_000_000
        api.now += 25 * HOUR
        api("DescribeStreamSummary", StreamName="s")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


async def test_a_subscriber_behind_the_trim_horizon_continues_there(settings, http2_client, autojump_clock):
    slow = dataclasses.replace(settings, shard_bytes_per_second=2, event_records=1)
    async with FakeKinesis(settings=slow) as fake:
        fake.create_stream("s")
        client = http2_client(await fake.kinesis("s").connect())
        put_numbers = [fake.put("s", "k", b"x" * 99)[1] for _ in range(3)]  # pacing takes 50 s for each
        call = await client.subscribed(fake.register("s", "c").arn, FIRST)
        received = (await call.next_event())["Records"]
        await trio.sleep(40)
        put_numbers.append(fake.put("s", "k", b"")[1])
        fake.retain("s", 0.001)  # 3.6 s: the two waiting records expire
        received += (await call.next_event())["Records"]
        assert [record["SequenceNumber"] for record in received] == [put_numbers[0], put_numbers[3]]


async def test_a_subscribe_at_a_trimmed_position_starts_at_the_trim_horizon(fake, client, consumer_arn, autojump_clock):
    old = fake.put("s", "old", b"", "0")[1]
    await trio.sleep(25 * HOUR)
    new = fake.put("s", "new", b"", "0")[1]
    call = await client.subscribed(consumer_arn, FIRST, "AT_SEQUENCE_NUMBER", SequenceNumber=old)
    assert [record["SequenceNumber"] for record in (await call.next_event())["Records"]] == [new]


async def test_an_expired_shard_is_not_found(fake, client, consumer_arn, autojump_clock):
    fake.split("s", FIRST)
    await trio.sleep(25 * HOUR)
    call = await client.subscribe(consumer_arn, FIRST)
    assert (await call.json())["__type"] == "ResourceNotFoundException"
    assert FIRST not in [shard.shard_id for shard in await fake.kinesis("s").control_plane.list_shards()]
