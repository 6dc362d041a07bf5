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


async def refusal(call):
    assert await call.status() == 400
    return (await call.json())["__type"]


async def test_the_frames_are_those_of_aws(fake, client, consumer_arn, autojump_clock):
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
                "EncryptionType": "NONE",
                "PartitionKey": "k0",
                "SequenceNumber": number,
            }
        ],
    }


async def test_a_backlog_comes_in_events_within_the_limits(settings, http2_client, autojump_clock):
    limits = dataclasses.replace(settings, event_records=4, event_bytes=100)
    async with FakeKinesis(settings=limits) as fake:
        fake.create_stream("s")
        client = http2_client(await fake.kinesis("s").connect())
        given = put(fake, 5) + put(fake, 3, size=48) + put(fake, 1, size=500)
        await trio.sleep(2)
        call = await client.subscribed(fake.register("s", "c").arn, FIRST)
        events = [await call.next_event() for _ in range(4)]
    got = [numbers(event) for event in events]
    assert [len(part) for part in got] == [4, 2, 2, 1]
    assert list(chain(*got)) == given
    assert [event["ContinuationSequenceNumber"] for event in events] == [part[-1] for part in got]
    assert [event["MillisBehindLatest"] for event in events] == [2000, 2000, 2000, 0]


async def test_a_put_wakes_the_subscriber_at_once(fake, client, consumer_arn, nursery, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    started = trio.current_time()

    async def put_later():
        await trio.sleep(1.25)
        put(fake, 1)

    nursery.start_soon(put_later)
    assert len((await call.next_event())["Records"]) == 1
    assert trio.current_time() - started == pytest.approx(1.25)


async def test_an_idle_subscription_says_so_every_five_seconds_and_moves_on(fake, client, consumer_arn, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    started = trio.current_time()
    seen = []
    for second in (5, 10):
        event = await call.next_event()
        assert (event["Records"], event["MillisBehindLatest"]) == ([], 0)
        assert trio.current_time() - started == pytest.approx(second)
        seen.append(event["ContinuationSequenceNumber"])
    (number,) = put(fake, 1)
    assert numbers(await call.next_event()) == [number]
    idle = await call.next_event()
    assert trio.current_time() - started == pytest.approx(15)  # five seconds after the last event
    seen += [number, idle["ContinuationSequenceNumber"]]
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
async def test_an_idle_continuation_is_a_place_to_start_from(fake, client, consumer_arn, kind, autojump_clock):
    put(fake, 3)
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    place = (await call.next_event())["ContinuationSequenceNumber"]
    later = put(fake, 2)
    again = await client.subscribed(consumer_arn, FIRST, kind, SequenceNumber=place)
    assert numbers(await again.next_event()) == later


async def test_the_five_positions(fake, client, autojump_clock):
    given = []
    for _ in range(4):
        given += put(fake, 1)
        await trio.sleep(10)
    epoch = fake.settings.epoch
    cases = [
        ({"kind": "TRIM_HORIZON"}, given),
        ({"kind": "AT_SEQUENCE_NUMBER", "SequenceNumber": given[1]}, given[1:]),
        ({"kind": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": given[1]}, given[2:]),
        ({"kind": "AT_TIMESTAMP", "Timestamp": epoch + 20}, given[2:]),
        ({"kind": "AT_TIMESTAMP", "Timestamp": epoch + 20.5}, given[3:]),
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
async def test_a_bad_position_is_refused(fake, client, consumer_arn, position, code, autojump_clock):
    assert await refusal(await client.subscribe(consumer_arn, FIRST, **position)) == code


async def test_unknown_names_are_not_found(fake, client, consumer_arn, autojump_clock):
    assert await refusal(await client.subscribe(consumer_arn, "shardId-000000000099")) == "ResourceNotFoundException"
    assert await refusal(await client.subscribe(consumer_arn + "9", FIRST)) == "ResourceNotFoundException"
    stream_arn = consumer_arn.partition("/consumer")[0]
    assert await refusal(await client.subscribe(stream_arn, FIRST)) == "ValidationException"
    other = consumer_arn.replace("stream/s", "stream/other")
    assert await refusal(await client.subscribe(other, FIRST)) == "ResourceNotFoundException"


async def test_a_split_ends_the_parent_with_its_children(fake, client, consumer_arn, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST)
    given = put(fake, 2)
    children = fake.split("s", FIRST, 1000)
    assert numbers(await call.next_event()) == given
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


async def test_both_parents_of_a_merge_tell_the_same_child(fake, client, consumer_arn, autojump_clock):
    calls = [await client.subscribed(consumer_arn, shard, "LATEST") for shard in (FIRST, SECOND)]
    child = fake.merge("s", FIRST, SECOND)
    for call in calls:
        last = await call.next_event()
        assert "ContinuationSequenceNumber" not in last
        (told,) = last["ChildShards"]
        assert told["ShardId"] == child
        assert told["ParentShards"] == [FIRST, SECOND]
        assert told["HashKeyRange"] == {"StartingHashKey": LOW, "EndingHashKey": HIGH}
        assert await call.next_message() is None


async def test_latest_on_a_closed_shard_gives_its_end_at_once(fake, client, consumer_arn, autojump_clock):
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


async def test_the_shard_is_read_on_without_a_gap_by_the_next_subscription(fake, client, consumer_arn, autojump_clock):
    first = put(fake, 2)
    call = await client.subscribed(consumer_arn, FIRST)
    event = await call.next_event()
    await client.reset(call)
    second = put(fake, 2)
    await trio.sleep(5)
    place = event["ContinuationSequenceNumber"]
    again = await client.subscribed(consumer_arn, FIRST, "AFTER_SEQUENCE_NUMBER", SequenceNumber=place)
    assert numbers(event) + numbers(await again.next_event()) == first + second


async def test_who_may_subscribe_when(fake, client, consumer_arn, autojump_clock):
    await client.subscribed(consumer_arn, FIRST, "LATEST")
    await trio.sleep(0.9)
    assert await refusal(await client.subscribe(consumer_arn, FIRST)) == "LimitExceededException"
    await trio.sleep(0.1)
    assert await refusal(await client.subscribe(consumer_arn, FIRST)) == "ResourceInUseException"
    assert await refusal(await client.subscribe(consumer_arn, FIRST)) == "LimitExceededException"
    await trio.sleep(3.9)
    assert await refusal(await client.subscribe(consumer_arn, FIRST)) == "ResourceInUseException"
    # Other shards and other consumers are free.
    await client.subscribed(consumer_arn, SECOND, "LATEST")
    await client.subscribed(fake.register("s", "other").arn, FIRST, "LATEST")
    assert fake.subscriptions("s", FIRST).refused == 4


async def test_after_five_seconds_a_second_call_takes_over(fake, client, consumer_arn, autojump_clock):
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
    given = put(fake, 1)
    assert numbers(await new.next_event()) == given
    counts = fake.subscriptions("s", FIRST)
    assert (counts.made, counts.taken_over, counts.live) == (2, 1, 1)


async def test_the_five_seconds_count_even_after_the_first_has_gone(fake, client, consumer_arn, autojump_clock):
    await client.reset(await client.subscribed(consumer_arn, FIRST))
    await trio.sleep(4.9)
    assert await refusal(await client.subscribe(consumer_arn, FIRST)) == "ResourceInUseException"
    await trio.sleep(1.1)
    await client.subscribed(consumer_arn, FIRST)
    assert fake.subscriptions("s", FIRST).taken_over == 0


async def test_a_refused_position_does_not_begin_the_five_seconds(fake, client, consumer_arn, autojump_clock):
    await refusal(await client.subscribe(consumer_arn, FIRST, "AT_TIMESTAMP"))
    await trio.sleep(1)
    await client.subscribed(consumer_arn, FIRST)


async def test_a_consumer_that_is_not_active_is_in_use(http2_client, autojump_clock):
    async with FakeKinesis(settings=FakeSettings(consumer_creating=3)) as fake:
        fake.create_stream("s")
        client = http2_client(await fake.kinesis("s").connect())
        arn = fake.register("s", "c").arn
        assert await refusal(await client.subscribe(arn, FIRST)) == "ResourceInUseException"
        await trio.sleep(3)
        await client.subscribed(arn, FIRST)


async def test_a_consumer_that_is_deregistered_loses_its_subscriptions(fake, client, consumer_arn, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    fake.deregister(consumer_arn)
    message = await call.next_message()
    assert message.headers[":exception-type"] == "ResourceNotFoundException"
    assert await call.next_message() is None
    await trio.sleep(1)
    assert await refusal(await client.subscribe(consumer_arn, FIRST)) == "ResourceNotFoundException"


async def test_a_stream_that_is_deleted_ends_its_subscriptions(fake, client, consumer_arn, autojump_clock):
    call = await client.subscribed(consumer_arn, FIRST, "LATEST")
    fake.delete_stream("s")
    message = await call.next_message()
    assert message.headers[":exception-type"] == "ResourceNotFoundException"
    assert await call.next_message() is None
    assert fake.subscriptions("s", FIRST).live == 0


async def test_pacing_holds_across_subscriptions(settings, http2_client, autojump_clock):
    paced = dataclasses.replace(settings, shard_bytes_per_second=1000, event_records=3)
    async with FakeKinesis(settings=paced) as fake:
        fake.create_stream("s")
        client = http2_client(await fake.kinesis("s").connect())
        put(fake, 30, size=998)  # a second each
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


async def test_a_record_of_ten_mebibytes_comes_whole_and_alone(settings, http2_client, autojump_clock):
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
