"""Whole consumers over FakeKinesis in virtual time: order, checkpoints, resharding, renewals and failures."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from efo import events
from efo.consumer.consumer import Consumer
from efo.consumer.shard_stream import ShardStream
from efo.errors import EfoError, NotHttp2Error
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Batch, Checkpoint, Lease, Position, Record
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from tests.workers import open_worker

STREAM = "orders"
pytestmark = pytest.mark.usefixtures("read_mode")


def settings(**changes: object) -> ConsumerSettings:
    return ConsumerSettings(**changes)


class Reader:
    """A reader that keeps its records by key and by shard, in order. `reached` waits for a number of records."""

    def __init__(self, handle: Callable[[Batch], Awaitable[None]] | None = None) -> None:
        self.by_key: dict[str, list[bytes]] = defaultdict(list)
        self.by_shard: dict[str, list[Record]] = defaultdict(list)
        self.count = 0
        self._handle = handle
        self._changed = trio.Event()

    async def __call__(self, shard: ShardStream) -> None:
        async for batch in shard:
            if self._handle is not None:
                await self._handle(batch)
            for record in batch.records:
                self.by_key[record.partition_key].append(record.data)
                self.by_shard[shard.shard_id].append(record)
                self.count += 1
            shard.ack(batch)
            self._changed.set()
            self._changed = trio.Event()

    async def reached(self, count: int) -> None:
        while self.count < count:
            await self._changed.wait()


async def read_and_drain(consumer: Consumer, reader: Reader, count: int) -> None:
    """Run until the reader has `count` records, then drain."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, reader)
        await reader.reached(count)
        consumer.drain()


def drain_in_another_run(consumer: Consumer) -> None:
    async def drain() -> None:
        consumer.drain()

    trio.run(drain)


@pytest.mark.parametrize("drain", [Consumer.drain, drain_in_another_run])
async def test_any_thread_may_drain_with_trio_or_without(drain: Callable[[Consumer], None]) -> None:
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with open_worker(fake.kinesis(STREAM), MemoryLeaseStore(), settings()) as consumer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, Reader())
                await trio.to_thread.run_sync(drain, consumer)
            assert consumer.status().shards == ()


async def test_every_record_is_read_in_order_and_checkpointed_at_a_drain(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, reader = MemoryLeaseStore(), Reader()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=3)
        fake.put_many(STREAM, [(f"key-{n % 10}", b"%d" % n) for n in range(1000)])
        async with open_worker(fake.kinesis(STREAM), store, settings()) as consumer:
            await read_and_drain(consumer, reader, 1000)
        last = {shard: records[-1].sequence_number for shard, records in fake.records(STREAM).items() if records}
    assert {key: [int(d) for d in data] for key, data in reader.by_key.items()} == {
        f"key-{k}": list(range(k, 1000, 10)) for k in range(10)
    }
    leases = {lease.key: lease for lease in await store.list()}
    for shard, sequence_number in last.items():
        assert int(leases[shard].checkpoint.sequence_number) >= int(sequence_number)
        assert leases[shard].owner is None


@pytest.mark.scenario("G54")
async def test_a_restart_continues_after_the_checkpoint_and_repeats_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, first, second = MemoryLeaseStore(), Reader(), Reader()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        fake.put_many(STREAM, [(f"key-{n % 10}", b"a%d" % n) for n in range(100)])
        async with open_worker(fake.kinesis(STREAM), store, settings()) as consumer:
            await read_and_drain(consumer, first, 100)
        fake.put_many(STREAM, [(f"key-{n % 10}", b"b%d" % n) for n in range(100)])
        async with open_worker(fake.kinesis(STREAM), store, settings()) as consumer:
            await read_and_drain(consumer, second, 100)
    assert (first.count, second.count) == (100, 100)
    assert all(data.startswith(b"b") for values in second.by_key.values() for data in values)


@pytest.mark.scenario("G54", "G70")
async def test_a_restart_resumes_in_the_middle_of_an_aggregate(autojump_clock: trio.testing.MockClock) -> None:
    store, reader = MemoryLeaseStore(), Reader()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        shard_id, number = fake.put(STREAM, "outer", aggregate([AggregateEntry("k", b"%d" % n) for n in range(5)]))
        await store.create(Lease(shard_id, Checkpoint(number, 2)))
        async with open_worker(fake.kinesis(STREAM), store, settings()) as consumer:
            await read_and_drain(consumer, reader, 2)
    assert reader.by_key["k"] == [b"3", b"4"]


@pytest.mark.scenario("G72")
async def test_a_split_and_a_merge_keep_the_order_of_every_key(autojump_clock: trio.testing.MockClock) -> None:
    store, reader, seen = MemoryLeaseStore(), Reader(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        async with (
            open_worker(fake.kinesis(STREAM), store, settings(), seen.append) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            for step in range(12):
                fake.put_many(STREAM, [(f"key-{n}", b"%d" % step) for n in range(50)])
                if step in {2, 6}:
                    fake.split(STREAM, fake.open_shards(STREAM)[0])
                if step in {4, 8}:
                    shards = fake.open_shards(STREAM)
                    fake.merge(STREAM, shards[-2], shards[-1])
                await trio.sleep(2)
            await reader.reached(600)
            consumer.drain()
        shards = await fake.kinesis(STREAM).control_plane.list_shards()
    assert reader.by_key == {f"key-{n}": [b"%d" % step for step in range(12)] for n in range(50)}
    leases = {lease.key: lease for lease in await store.list()}
    closed = {shard.shard_id for shard in shards if not shard.is_open}
    assert {key for key, lease in leases.items() if lease.checkpoint == Checkpoint.SHARD_END} == closed
    finished = [event.shard_id for event in seen if isinstance(event, events.ShardFinished)]
    for position, event in enumerate(seen):
        if isinstance(event, events.ShardStarted):
            before = {e.shard_id for e in seen[:position] if isinstance(e, events.ShardFinished)}
            assert set(leases[event.shard_id].parents) <= before
    assert sorted(finished) == sorted(closed)


@pytest.mark.parametrize("read_mode", ["fanout"], indirect=True)
async def test_renewals_over_hours_lose_and_repeat_nothing(autojump_clock: trio.testing.MockClock) -> None:
    store, reader, seen = MemoryLeaseStore(), Reader(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        async with (
            open_worker(fake.kinesis(STREAM), store, settings(), seen.append, rng=random.Random(1)) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            for n in range(360):
                fake.put(STREAM, f"key-{n % 7}", b"%d" % n)
                await trio.sleep(20)
            await reader.reached(360)
            consumer.drain()
    assert {key: [int(d) for d in data] for key, data in reader.by_key.items()} == {
        f"key-{k}": list(range(k, 360, 7)) for k in range(7)
    }
    ended = [event.reason for event in seen if isinstance(event, events.SubscriptionEnded)]
    assert set(ended) == {"renewed", "shutdown"}
    assert 2 * 7200 / 285 - 4 < ended.count("renewed") < 2 * 7200 / 240


@pytest.mark.scenario("G45")
@pytest.mark.parametrize("read_mode", ["fanout"], indirect=True)
async def test_expired_subscriptions_continue_after_the_last_continuation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, reader, seen = MemoryLeaseStore(), Reader(), list[events.Event]()
    async with FakeKinesis(settings=FakeSettings(subscription_life=20)) as fake:
        fake.create_stream(STREAM, shards=2)
        async with (
            open_worker(fake.kinesis(STREAM), store, settings(), seen.append) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            for n in range(200):
                fake.put(STREAM, f"key-{n % 7}", b"%d" % n)
                await trio.sleep(1)
            await reader.reached(200)
            consumer.drain()
    assert sorted(int(d) for data in reader.by_key.values() for d in data) == list(range(200))
    assert "expired" in {event.reason for event in seen if isinstance(event, events.SubscriptionEnded)}


@pytest.mark.scenario("G55")
async def test_latest_misses_no_record_after_the_start(autojump_clock: trio.testing.MockClock) -> None:
    store, reader = MemoryLeaseStore(), Reader()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put(STREAM, "k", b"old")
        await trio.sleep(10)
        at_latest = settings(initial_position=Position.latest())
        async with (
            open_worker(fake.kinesis(STREAM), store, at_latest) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            await trio.testing.wait_all_tasks_blocked()
            fake.put(STREAM, "k", b"new")
            await reader.reached(1)
            consumer.drain()
    assert reader.by_key == {"k": [b"new"]}


async def test_an_exception_of_a_reader_ends_the_run_and_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async def fail(batch: Batch) -> None:
        await trio.lowlevel.checkpoint()
        if any(record.data == b"7" for record in batch.records):
            raise ValueError("seven")

    store, reader, rest = MemoryLeaseStore(), Reader(fail), Reader()
    async with FakeKinesis(settings=FakeSettings(event_records=1)) as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [("k", b"%d" % n) for n in range(10)])
        with pytest.raises(ValueError, match="seven"):
            async with open_worker(fake.kinesis(STREAM), store, settings()) as consumer:
                await consumer.run(reader)
        async with open_worker(fake.kinesis(STREAM), store, settings()) as consumer:
            await read_and_drain(consumer, rest, 3)
    assert reader.by_key["k"] + rest.by_key["k"] == [b"%d" % n for n in range(10)]


async def test_a_shard_is_not_started_again_after_its_reader_raised(autojump_clock: trio.testing.MockClock) -> None:
    async def fail(_batch: Batch) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("no")

    store, seen = MemoryLeaseStore(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put(STREAM, "k", b"1")
        with pytest.raises(ValueError, match="no"):
            async with open_worker(fake.kinesis(STREAM), store, settings(), seen.append) as consumer:
                await consumer.run(Reader(fail))
    assert len([event for event in seen if isinstance(event, events.ShardStarted)]) == 1


@pytest.mark.scenario("G64")
async def test_the_failure_of_one_shard_does_not_prevent_the_last_save_of_another(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Store(MemoryLeaseStore):
        is_slow = True

        async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
            if self.is_slow:
                self.is_slow = False
                await trio.sleep(10)
            return await super().checkpoint(lease, checkpoint, throughput_kbps)

    async def reader(shard: ShardStream) -> None:
        async for batch in shard:
            if batch.records[0].data == b"fail":
                await trio.sleep(5)  # by now the other shard is read to its end, and its checkpoint is being saved
                raise ValueError("no")
            shard.ack(batch)

    store = Store()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        ended, number = fake.put(STREAM, "k", b"1", explicit_hash_key="0")
        fake.put(STREAM, "k", b"fail", explicit_hash_key=str(2**128 - 1))
        fake.split(STREAM, ended)
        with pytest.raises(ValueError, match="no"):
            async with open_worker(fake.kinesis(STREAM), store, settings(checkpoint_seconds=60.0)) as consumer:
                await consumer.run(reader)
    leases = {lease.key: lease for lease in await store.list()}
    assert leases[ended].checkpoint == Checkpoint(number)


@pytest.mark.scenario("G36")
async def test_a_reader_that_does_not_ack_the_last_batch_of_a_shard_is_an_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def forget(shard: ShardStream) -> None:
        async for _batch in shard:
            pass

    store = MemoryLeaseStore()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put(STREAM, "k", b"1")
        parent = fake.open_shards(STREAM)[0]
        fake.split(STREAM, parent)
        with pytest.raises(EfoError, match="without acking"):
            async with open_worker(fake.kinesis(STREAM), store, settings()) as consumer:
                await consumer.run(forget)
    leases = {lease.key: lease for lease in await store.list()}
    assert set(leases) == {parent}
    assert leases[parent].checkpoint != Checkpoint.SHARD_END


@pytest.mark.scenario("G62")
@pytest.mark.parametrize("read_mode", ["fanout"], indirect=True)
async def test_a_deregistered_fan_out_consumer_is_registered_again(autojump_clock: trio.testing.MockClock) -> None:
    store, reader, seen = MemoryLeaseStore(), Reader(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with (
            open_worker(fake.kinesis(STREAM), store, settings(), seen.append) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            fake.put(STREAM, "k", b"before")
            await reader.reached(1)
            (ready,) = [event for event in seen if isinstance(event, events.ConsumerReady)]
            fake.deregister(ready.arn)
            await trio.sleep(30)
            fake.put(STREAM, "k", b"after")
            await reader.reached(2)
            consumer.drain()
    assert reader.by_key == {"k": [b"before", b"after"]}
    arns = [event.arn for event in seen if isinstance(event, events.ConsumerReady)]
    assert len(set(arns)) == 2


async def test_two_workers_share_the_shards_and_one_takes_over_all_of_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, both = MemoryLeaseStore(), Reader()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=4)
        async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="a") as a:
            nursery.start_soon(a.run, both)
            async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="b") as b:
                nursery.start_soon(b.run, both)
                await trio.sleep(60)
                assert sorted(str(lease.owner) for lease in await store.list()) == ["a", "a", "b", "b"]
                fake.put_many(STREAM, [(f"key-{n}", b"1") for n in range(40)])
                await both.reached(40)
                b.drain()
                await trio.sleep(1)
            await trio.sleep(60)
            fake.put_many(STREAM, [(f"key-{n}", b"2") for n in range(40)])
            await both.reached(80)
            a.drain()
    assert both.by_key == {f"key-{n}": [b"1", b"2"] for n in range(40)}


async def test_an_endpoint_without_http2_ends_the_run_with_its_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def connect() -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise NotHttp2Error("example:443 does not offer HTTP/2")

    store = MemoryLeaseStore()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        kinesis = replace(fake.kinesis(STREAM), connect=connect)
        with pytest.raises(NotHttp2Error, match="does not offer HTTP/2"):
            async with open_worker(kinesis, store, settings()) as consumer:
                await consumer.run(Reader())
    assert [lease.owner for lease in await store.list()] == [None]
