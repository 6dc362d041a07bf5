from __future__ import annotations

import math
from itertools import pairwise

import pytest
import trio

from efo.leases.stores.memory import MemoryLeaseStore
from efo.testing import FakeSettings
from efo.testing.state.streams import hash_key_of
from proofs.load.fake import LoadKinesis
from proofs.load.settings import Load
from tests.workers import open_worker

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


@pytest.fixture
def open_load(http2_client):
    async def open_load(fake, **client):
        return http2_client(await fake.kinesis("load").connect(), **client), fake.register("load", "c").arn

    return open_load


def fake_of(**load):
    load = {"shards": {"load": 2}, "records_per_event": 10, "record_bytes": 50} | load
    return LoadKinesis(Load(**load), settings=FakeSettings(consumer_creating=0))


async def test_without_a_rate_the_client_never_waits(autojump_clock, open_load):
    async with fake_of() as fake:
        client, arn = await open_load(fake)
        call = await client.subscribed(arn, SECOND)
        numbers = [int(r["SequenceNumber"]) for _ in range(100) for r in (await call.next_event())["Records"]]
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 1000
        assert trio.current_time() == 0


async def test_every_partition_key_belongs_to_its_shard(autojump_clock, open_load):
    async with fake_of(shards={"load": 5}) as fake:
        client, arn = await open_load(fake)
        for number, shard_id in enumerate(fake.open_shards("load")):
            call = await client.subscribed(arn, shard_id)
            keys = {record["PartitionKey"] for record in (await call.next_event())["Records"]}
            assert len(keys) == 10
            assert {hash_key_of(key) * 5 // 2**128 for key in keys} == {number}


async def test_events_arrive_at_the_rate_with_idle_events_between_them(autojump_clock, open_load):
    async with fake_of(rate=1.0) as fake:
        client, arn = await open_load(fake)
        call = await client.subscribed(arn, FIRST)
        seen = []
        for _ in range(6):
            event = await call.next_event()
            seen.append((math.ceil(trio.current_time()), len(event["Records"])))
        assert seen == [(5, 0), (10, 10), (15, 0), (20, 10), (25, 0), (30, 10)]


async def test_resuming_after_any_record_skips_and_repeats_nothing(autojump_clock, open_load):
    async with fake_of() as fake:
        client, arn = await open_load(fake)
        call = await client.subscribed(arn, FIRST)
        numbers = [r["SequenceNumber"] for _ in range(4) for r in (await call.next_event())["Records"]]
        for at in (9, 13, 19):
            await trio.sleep(5)
            call = await client.subscribed(arn, FIRST, "AFTER_SEQUENCE_NUMBER", SequenceNumber=numbers[at])
            resumed = [r["SequenceNumber"] for _ in range(2) for r in (await call.next_event())["Records"]]
            assert resumed == numbers[at + 1 :][: len(resumed)]


async def test_the_rules_of_subscriptions_apply_to_a_load(autojump_clock, open_load):
    async with fake_of(rate=10.0) as fake:
        client, arn = await open_load(fake)
        first = await client.subscribed(arn, FIRST)
        await trio.sleep(2)
        rejected = await client.subscribe(arn, FIRST)
        assert (await rejected.json())["__type"] == "ResourceInUseException"
        await trio.sleep(5)
        second = await client.subscribed(arn, FIRST)
        while (message := await first.next_message()).headers[":message-type"] == "event":
            pass
        assert message.headers[":exception-type"] == "ResourceInUseException"
        while await second.next_message() is not None:
            pass
        assert 306 <= trio.current_time() <= 308  # five minutes after the second subscribe
        assert (fake.subscriptions("load", FIRST).made, fake.subscriptions("load", FIRST).live) == (2, 0)


async def test_a_split_ends_the_parent_and_starts_the_children(autojump_clock, open_load):
    async with fake_of() as fake:
        client, arn = await open_load(fake)
        client.opens_windows = False
        call = await client.subscribed(arn, FIRST)
        last = (await call.next_event())["Records"][-1]["SequenceNumber"]
        await trio.sleep(1)
        children = fake.split("load", FIRST)
        client.opens_windows = True
        client.h2.increment_flow_control_window(10**6)
        client.h2.increment_flow_control_window(10**6, call.stream_id)
        await client.flush()
        while records := (event := await call.next_event())["Records"]:
            last = records[-1]["SequenceNumber"]
        assert [child["ShardId"] for child in event["ChildShards"]] == list(children)
        assert await call.next_message() is None
        for child in children:
            call = await client.subscribed(arn, child)
            assert (await call.next_event())["Records"][0]["SequenceNumber"] > last


async def test_other_streams_are_not_affected_by_a_load(autojump_clock, http2_client):
    async with fake_of() as fake:
        fake.create_stream("s")
        fake.put("s", "key", b"data")
        client = http2_client(await fake.kinesis("s").connect())
        call = await client.subscribed(fake.register("s", "c").arn, FIRST)
        assert [record["PartitionKey"] for record in (await call.next_event())["Records"]] == ["key"]


@pytest.mark.parametrize("aggregated", [None, 3])
async def test_the_consumer_of_efo_reads_a_load_in_order(autojump_clock, aggregated):
    seen: dict[str, list[tuple[int, int]]] = {FIRST: [], SECOND: []}

    async def read(shard):
        async for batch in shard:
            seen[shard.shard_id] += [(int(r.sequence_number), r.sub_sequence_number) for r in batch.records]
            shard.ack(batch)

    async with (
        fake_of(aggregated=aggregated, rate=100.0) as fake,
        open_worker(fake.kinesis("load"), MemoryLeaseStore()) as consumer,
    ):
        with trio.move_on_after(400):  # longer than a subscription, so that it is renewed
            await consumer.run(read)
    for numbers in seen.values():
        assert len(numbers) > 35_000
        assert numbers == sorted(set(numbers))
        records = sorted({number for number, _ in numbers})
        assert len(numbers) == len(records) * (aggregated or 1)
        # Two distances, from record to record and from event to event: no record is missing.
        assert len({after - before for before, after in pairwise(records)}) == 2
