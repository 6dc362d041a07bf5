from __future__ import annotations

import dataclasses
from itertools import chain

import msgspec
import pytest
import trio

from efo.testing import FakeKinesis, FakeSettings

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
LOW, HIGH = "0", str(2**128 - 1)


def put(fake, count, hash_key=LOW, size=1):
    return [fake.put("s", f"k{i}", b"x" * size, hash_key)[1] for i in range(count)]


def numbers(event):
    return [record["SequenceNumber"] for record in event["Records"]]


async def error_of(call):
    """Return the type of the error response."""
    assert await call.status() == 400
    return (await call.json())["__type"]


async def test_the_messages_have_the_headers_and_payloads_of_aws(fake, client, consumer_arn, autojump_clock):
    (number,) = put(fake, 1)
    call = await client.subscribe(consumer_arn, FIRST)
    assert await call.status() == 200
    assert call.fields["content-type"] == "application/vnd.amazon.eventstream"
    assert call.fields["date"] == "Thu, 01 Jan 2026 00:00:00 GMT"
    assert call.fields["x-amzn-requestid"]
    first = await call.next_message()
    assert list(first.headers.items()) == [
        (":event-type", "initial-response"),
        (":content-type", "application/x-amz-json-1.1"),
        (":message-type", "event"),
    ]
    assert bytes(first.payload) == b"{}"
    second = await call.next_message()
    assert list(second.headers.items()) == [
        (":event-type", "SubscribeToShardEvent"),
        (":content-type", "application/x-amz-json-1.1"),
        (":message-type", "event"),
    ]
    assert msgspec.json.decode(second.payload) == {
        "ContinuationSequenceNumber": number,
        "MillisBehindLatest": 0,
        "Records": [
            {
                "ApproximateArrivalTimestamp": fake.settings.epoch,
                "Data": "eA==",
                "PartitionKey": "k0",
                "SequenceNumber": number,
            }
        ],
    }


async def test_an_event_has_records_without_a_partition_key(fake, client, autojump_clock):
    fake.create_stream("auto", distribution="AUTO")
    numbers = [fake.put("auto", key, b"x")[1] for key in (None, "k")]
    call = await client.subscribed(fake.register("auto", "c").arn, FIRST)
    event = await call.next_event()
    at = {"ApproximateArrivalTimestamp": fake.settings.epoch, "Data": "eA=="}
    assert event["Records"] == [
        at | {"SequenceNumber": numbers[0]},
        at | {"PartitionKey": "k", "SequenceNumber": numbers[1]},
    ]


async def test_a_backlog_is_sent_in_events_within_the_limits(settings, http2_client, autojump_clock):
    limits = dataclasses.replace(settings, event_records=4, event_bytes=100)
    async with FakeKinesis(settings=limits) as fake:
        fake.create_stream("s")
        client = http2_client(await fake.kinesis("s").connect())
        expected = put(fake, 5) + put(fake, 3, size=48) + put(fake, 1, size=500)
        await trio.sleep(2)
        call = await client.subscribed(fake.register("s", "c").arn, FIRST)
        events = [await call.next_event() for _ in range(4)]
    received = [numbers(event) for event in events]
    assert [len(part) for part in received] == [4, 2, 2, 1]
    assert list(chain(*received)) == expected
    assert [event["ContinuationSequenceNumber"] for event in events] == [part[-1] for part in received]
    assert [event["MillisBehindLatest"] for event in events] == [2000, 2000, 2000, 0]


async def test_a_put_is_sent_to_the_subscriber_at_once(fake, client, consumer_arn, nursery, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    started = trio.current_time()

    async def put_later():
        await trio.sleep(1.25)
        put(fake, 1)

    nursery.start_soon(put_later)
    assert len((await call.next_event())["Records"]) == 1
    assert trio.current_time() - started == pytest.approx(1.25)


async def test_an_idle_subscription_sends_an_event_every_five_seconds(fake, client, consumer_arn, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    started = trio.current_time()
    continuations = []
    for second in (5, 10):
        event = await call.next_event()
        assert (event["Records"], event["MillisBehindLatest"]) == ([], 0)
        assert trio.current_time() - started == pytest.approx(second)
        continuations.append(event["ContinuationSequenceNumber"])
    (number,) = put(fake, 1)
    assert numbers(await call.next_event()) == [number]
    idle = await call.next_event()
    assert trio.current_time() - started == pytest.approx(15)  # five seconds after the last event
    continuations += [number, idle["ContinuationSequenceNumber"]]
    assert continuations == sorted(set(continuations))


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
async def test_a_subscription_can_start_at_an_idle_continuation(fake, client, consumer_arn, kind, autojump_clock):
    put(fake, 3)
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    continuation = (await call.next_event())["ContinuationSequenceNumber"]
    later = put(fake, 2)
    again = await client.subscribed(consumer_arn, FIRST, kind, SequenceNumber=continuation)
    assert numbers(await again.next_event()) == later


async def test_each_position_type_starts_at_the_right_record(fake, client, autojump_clock):
    put_numbers = []
    for _ in range(4):
        put_numbers += put(fake, 1)
        await trio.sleep(10)
    epoch = fake.settings.epoch
    cases = [
        ({"kind": "TRIM_HORIZON"}, put_numbers),
        ({"kind": "AT_SEQUENCE_NUMBER", "SequenceNumber": put_numbers[1]}, put_numbers[1:]),
        ({"kind": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": put_numbers[1]}, put_numbers[2:]),
        ({"kind": "AT_TIMESTAMP", "Timestamp": epoch + 20}, put_numbers[2:]),
        ({"kind": "AT_TIMESTAMP", "Timestamp": epoch + 20.5}, put_numbers[3:]),
        ({"kind": "LATEST"}, []),
    ]
    for name, (position, expected) in enumerate(cases):
        call = await client.subscribed(fake.register("s", f"c{name}").arn, FIRST, **position)
        assert numbers(await call.next_event()) == expected, position


@pytest.mark.parametrize(
    ("position", "code"),
    [
        ({"kind": "AT_SEQUENCE_NUMBER"}, "InvalidArgumentException"),
        ({"kind": "AFTER_SEQUENCE_NUMBER"}, "InvalidArgumentException"),
        ({"kind": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "12"}, "InvalidArgumentException"),
        ({"kind": "AT_TIMESTAMP"}, "InvalidArgumentException"),
        ({"kind": "AT_TIMESTAMP", "Timestamp": 4_000_000_000}, "InvalidArgumentException"),
        ({"kind": "SOMEWHERE"}, "ValidationException"),
    ],
)
async def test_an_invalid_position_is_rejected(fake, client, consumer_arn, position, code, autojump_clock):
    assert await error_of(await client.subscribe(consumer_arn, FIRST, **position)) == code


async def test_an_unknown_shard_or_consumer_is_not_found(fake, client, consumer_arn, autojump_clock):
    assert await error_of(await client.subscribe(consumer_arn, "shardId-000000000099")) == "ResourceNotFoundException"
    assert await error_of(await client.subscribe(consumer_arn + "9", FIRST)) == "ResourceNotFoundException"
    stream_arn = consumer_arn.partition("/consumer")[0]
    assert await error_of(await client.subscribe(stream_arn, FIRST)) == "ValidationException"
    other = consumer_arn.replace("stream/s", "stream/other")
    assert await error_of(await client.subscribe(other, FIRST)) == "ResourceNotFoundException"


async def test_a_split_ends_the_subscription_with_two_child_shards(fake, client, consumer_arn, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST)
    put_numbers = put(fake, 2)
    children = fake.split("s", FIRST, 1000)
    assert numbers(await call.next_event()) == put_numbers
    last = await call.next_event()
    assert "ContinuationSequenceNumber" not in last
    assert (last["Records"], last["MillisBehindLatest"]) == ([], 0)
    middle = str(fake._core.stream("s").shard(FIRST).end)
    assert last["ChildShards"] == [
        {
            "ShardId": children[0],
            "ParentShards": [FIRST],
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "999"},
        },
        {
            "ShardId": children[1],
            "ParentShards": [FIRST],
            "HashKeyRange": {"StartingHashKey": "1000", "EndingHashKey": middle},
        },
    ]
    assert await call.next_message() is None
    assert trio.current_time() < 1
    assert fake.subscriptions("s", FIRST).live == 0


async def test_an_idle_subscription_learns_of_a_split_when_the_updating_ends(
    fake, client, consumer_arn, autojump_clock
):
    call = await client.subscribed(consumer_arn, FIRST)
    start = trio.current_time()
    split = await client.call("SplitShard", {"StreamName": "s", "ShardToSplit": FIRST, "NewStartingHashKey": "1000"})
    assert await split.status() == 200
    event = await call.next_event()
    assert trio.current_time() == start + fake.settings.stream_updating
    assert [child["ShardId"] for child in event["ChildShards"]] == ["shardId-000000000002", "shardId-000000000003"]


async def test_a_reshard_by_a_method_follows_one_that_was_requested_before(fake, client, autojump_clock):
    split = await client.call("SplitShard", {"StreamName": "s", "ShardToSplit": FIRST, "NewStartingHashKey": "1000"})
    assert await split.status() == 200
    assert fake.open_shards("s") == [FIRST, SECOND]
    assert fake.merge("s", "shardId-000000000002", "shardId-000000000003") == "shardId-000000000004"
    await trio.sleep(2)  # the end of the UPDATING changes nothing more
    assert fake.open_shards("s") == ["shardId-000000000004", SECOND]


async def test_both_parents_of_a_merge_end_with_the_same_child_shard(fake, client, consumer_arn, autojump_clock):
    calls = [await client.subscribed(consumer_arn, shard, "LATEST") for shard in (FIRST, SECOND)]
    child = fake.merge("s", FIRST, SECOND)
    for call in calls:
        last = await call.next_event()
        assert "ContinuationSequenceNumber" not in last
        (child_shard,) = last["ChildShards"]
        assert child_shard["ShardId"] == child
        assert child_shard["ParentShards"] == [FIRST, SECOND]
        assert child_shard["HashKeyRange"] == {"StartingHashKey": LOW, "EndingHashKey": HIGH}
        assert await call.next_message() is None


async def test_latest_on_a_closed_shard_ends_at_once_with_its_children(fake, client, consumer_arn, autojump_clock):
    put(fake, 3)
    fake.split("s", FIRST)
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    assert len((await call.next_event())["ChildShards"]) == 2
    assert await call.next_message() is None
    assert trio.current_time() == 0


async def test_a_subscription_ends_cleanly_after_five_minutes(fake, client, consumer_arn, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    idle = 0
    while await call.next_message() is not None:
        idle += 1
    assert trio.current_time() == pytest.approx(300)
    assert idle == 59
    assert call.reset is None
    assert fake.subscriptions("s", FIRST).live == 0


async def test_the_next_subscription_continues_without_a_gap(fake, client, consumer_arn, autojump_clock):
    first = put(fake, 2)
    call = await client.subscribed(consumer_arn, FIRST)
    event = await call.next_event()
    await client.reset(call)
    second = put(fake, 2)
    await trio.sleep(5)
    continuation = event["ContinuationSequenceNumber"]
    again = await client.subscribed(consumer_arn, FIRST, "AFTER_SEQUENCE_NUMBER", SequenceNumber=continuation)
    assert numbers(event) + numbers(await again.next_event()) == first + second


async def test_a_second_subscribe_within_five_seconds_is_resource_in_use(fake, client, consumer_arn, autojump_clock):
    await client.subscribed(consumer_arn, FIRST, "LATEST")
    await trio.sleep(0.9)
    assert await error_of(await client.subscribe(consumer_arn, FIRST)) == "LimitExceededException"
    await trio.sleep(0.1)
    assert await error_of(await client.subscribe(consumer_arn, FIRST)) == "ResourceInUseException"
    assert await error_of(await client.subscribe(consumer_arn, FIRST)) == "LimitExceededException"
    await trio.sleep(3.9)
    assert await error_of(await client.subscribe(consumer_arn, FIRST)) == "ResourceInUseException"
    # Other shards and other consumers are not affected.
    await client.subscribed(consumer_arn, SECOND, "LATEST")
    await client.subscribed(fake.register("s", "other").arn, FIRST, "LATEST")
    assert fake.subscriptions("s", FIRST).refused == 4


async def test_a_second_subscribe_after_five_seconds_takes_over(fake, client, consumer_arn, autojump_clock):
    old = await client.subscribed(consumer_arn, FIRST, "LATEST")
    await trio.sleep(5)
    new = await client.subscribed(consumer_arn, FIRST, "LATEST")
    message = await old.next_message()
    while message.headers[":message-type"] == "event":
        message = await old.next_message()
    assert list(message.headers.items()) == [
        (":exception-type", "ResourceInUseException"),
        (":content-type", "application/x-amz-json-1.1"),
        (":message-type", "exception"),
    ]
    assert "took over" in msgspec.json.decode(message.payload)["message"]
    assert await old.next_message() is None
    assert old.reset is None
    put_numbers = put(fake, 1)
    assert numbers(await new.next_event()) == put_numbers
    counts = fake.subscriptions("s", FIRST)
    assert (counts.made, counts.taken_over, counts.live) == (2, 1, 1)


async def test_the_five_seconds_also_apply_after_the_first_subscription_has_ended(
    fake, client, consumer_arn, autojump_clock
):
    await client.reset(await client.subscribed(consumer_arn, FIRST))
    await trio.sleep(4.9)
    assert await error_of(await client.subscribe(consumer_arn, FIRST)) == "ResourceInUseException"
    await trio.sleep(1.1)
    await client.subscribed(consumer_arn, FIRST)
    assert fake.subscriptions("s", FIRST).taken_over == 0


async def test_a_rejected_position_does_not_start_the_five_seconds(fake, client, consumer_arn, autojump_clock):
    await error_of(await client.subscribe(consumer_arn, FIRST, "AT_TIMESTAMP"))
    await trio.sleep(1)
    await client.subscribed(consumer_arn, FIRST)


async def test_names_of_one_shard_share_the_five_seconds(client, consumer_arn, autojump_clock):
    await client.subscribed(consumer_arn, FIRST)
    await trio.sleep(1)
    assert await error_of(await client.subscribe(consumer_arn, "x-0")) == "ResourceInUseException"


async def test_a_subscribe_of_a_consumer_that_is_not_active_is_resource_in_use(http2_client, autojump_clock):
    async with FakeKinesis(settings=FakeSettings(consumer_creating=3)) as fake:
        fake.create_stream("s")
        client = http2_client(await fake.kinesis("s").connect())
        arn = fake.register("s", "c").arn
        assert await error_of(await client.subscribe(arn, FIRST)) == "ResourceInUseException"
        await trio.sleep(3)
        await client.subscribed(arn, FIRST)


async def test_deregistering_a_consumer_ends_its_subscriptions(fake, client, consumer_arn, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    fake.deregister(consumer_arn)
    message = await call.next_message()
    assert message.headers[":exception-type"] == "ResourceNotFoundException"
    assert await call.next_message() is None
    await trio.sleep(1)
    assert await error_of(await client.subscribe(consumer_arn, FIRST)) == "ResourceNotFoundException"


async def test_deleting_a_stream_ends_its_subscriptions(fake, client, consumer_arn, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    fake.delete_stream("s")
    message = await call.next_message()
    assert message.headers[":exception-type"] == "ResourceNotFoundException"
    assert await call.next_message() is None
    assert fake.subscriptions("s", FIRST).live == 0


async def test_pacing_applies_across_subscriptions(settings, http2_client, autojump_clock):
    paced = dataclasses.replace(settings, shard_bytes_per_second=1000, event_records=3)
    async with FakeKinesis(settings=paced) as fake:
        fake.create_stream("s")
        client = http2_client(await fake.kinesis("s").connect())
        put(fake, 30, size=998)  # pacing takes one second for each
        arn = fake.register("s", "c").arn
        call = await client.subscribed(arn, FIRST)
        times = []
        for _ in range(2):
            await call.next_event()
            times.append(trio.current_time())
        await client.reset(call)
        await trio.sleep(2)
        again = await client.subscribed(arn, FIRST)
        assert trio.current_time() == pytest.approx(5)
        await again.next_event()
        assert [*times, trio.current_time()] == pytest.approx([0, 3, 6])
        assert fake.subscriptions("s", FIRST).live == 1


async def test_a_record_of_ten_mebibytes_is_sent_alone_in_an_event(settings, http2_client, autojump_clock):
    large = dataclasses.replace(settings, max_record_bytes=10 * 1024 * 1024)
    async with FakeKinesis(settings=large) as fake:
        fake.create_stream("s")
        client = http2_client(await fake.kinesis("s").connect(), window=2**24)
        client.h2.increment_flow_control_window(2**24)
        fake.put("s", "k", b"x" * (large.max_record_bytes - 1))
        fake.put("s", "k", b"y")
        call = await client.subscribed(fake.register("s", "c").arn, FIRST)
        first, second = await call.next_event(), await call.next_event()
        assert [len(event["Records"]) for event in (first, second)] == [1, 1]
        assert len(first["Records"][0]["Data"]) == (large.max_record_bytes + 1) // 3 * 4
