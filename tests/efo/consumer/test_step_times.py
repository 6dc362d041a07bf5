"""No step of a task of efo takes more than 50 ms of CPU time: the legal worst records, many shards, many leases."""

import pytest
import trio

from efo.leases.store import Lease
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from tests.step_meter import BOUND, slowest_step
from tests.workers import open_worker

STREAM = "orders"
MIB = 1024 * 1024


def empty_users(count, key="k"):
    return aggregate([AggregateEntry(key, b"")] * count)


# The legal worst: Kinesis allows 10 MiB for a record and 256 characters for a key.
RECORDS = {
    "130,000 user records": (lambda: [empty_users(130_000)], 130_000),
    "130,000 user records with the longest key": (lambda: [empty_users(130_000, "k" * 256)], 130_000),
    "60,000 user records, each with its key": (
        lambda: [aggregate([AggregateEntry(f"{n:06}", b"") for n in range(60_000)])],
        60_000,
    ),
    "an aggregate of 10 MiB": (lambda: [empty_users(1_300_000)], 1_300_000),
    "an aggregate of 10 MiB with large user records": (
        lambda: [aggregate([AggregateEntry("k", bytes(300_000))] * 33)],
        33,
    ),
    "records of 10 MiB": (lambda: [bytes(10 * MIB - 1)] * 3, 3),
    "small records": (lambda: [b""] * 10_000, 10_000),
}


@pytest.mark.parametrize("kind", RECORDS)
async def test_the_legal_worst_records_are_handled_in_short_steps(autojump_clock, kind):
    make, expected = RECORDS[kind]
    data = make()

    async def scenario(meter):
        found, done = 0, trio.Event()

        async def read(shard):
            nonlocal found
            async for batch in shard:
                found += len(batch)
                shard.ack(batch)
                if found >= expected:
                    done.set()

        settings = FakeSettings(max_record_bytes=10 * MIB, consumer_creating=0.0)
        async with FakeKinesis(settings=settings) as fake:
            fake.create_stream(STREAM)
            for record in data:
                fake.put(STREAM, "k", record)
            async with (
                open_worker(fake.kinesis(STREAM), MemoryLeaseStore()) as consumer,
                trio.open_nursery() as nursery,
            ):
                with meter.measure():
                    nursery.start_soon(consumer.run, read)
                    await done.wait()
                consumer.drain()
        assert found == expected

    slowest = await slowest_step(scenario)
    assert slowest.seconds <= BOUND, slowest


async def test_four_thousand_idle_shards_in_one_consumer_are_read_in_short_steps(autojump_clock):
    async def scenario(meter):
        seen = set()

        def observe(event):
            if type(event).__name__ == "EventReceived":
                seen.add(event.shard_id)

        async def read(shard):
            async for batch in shard:
                shard.ack(batch)

        settings = FakeSettings(throttle=False, consumer_creating=0.0, stream_creating=0.0, idle_interval=30.0)
        async with FakeKinesis(settings=settings) as fake:
            fake.create_stream(STREAM, shards=4000)
            chosen = ConsumerSettings(subscribes_per_second=2000.0)
            with meter.measure():
                async with (
                    open_worker(fake.kinesis(STREAM), MemoryLeaseStore(), chosen, observe) as consumer,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(consumer.run, read)
                    await trio.sleep(32)  # each shard sends one event at once, and one after 30 s
                    consumer.drain()
        assert len(seen) == 4000

    slowest = await slowest_step(scenario)
    assert slowest.seconds <= BOUND, slowest


@pytest.mark.parametrize("name", ["shardId-9{:011}", "shardId-00000000000x{}"], ids=["newer", "older"])
@pytest.mark.parametrize("owner", [None, "somebody"])
async def test_three_thousand_leases_are_kept_in_short_steps(autojump_clock, name, owner):
    async def scenario(meter):
        store, found = MemoryLeaseStore(), 0

        async def read(shard):
            nonlocal found
            async for batch in shard:
                found += len(batch)
                shard.ack(batch)

        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=4)
            fake.put_many(STREAM, [(f"key-{n}", b"x") for n in range(100)])
            for number in range(3000):
                await store.create(Lease(name.format(number), Checkpoint.TRIM_HORIZON, owner=owner))
            with meter.measure():
                async with (
                    open_worker(fake.kinesis(STREAM), store, ConsumerSettings(failover_seconds=3.0)) as consumer,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(consumer.run, read)
                    await trio.sleep(10)
                    consumer.drain()
        assert found == 100

    slowest = await slowest_step(scenario)
    assert slowest.seconds <= BOUND, slowest
