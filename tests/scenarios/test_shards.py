"""Whole consumers in situations that no other test is about: see docs/scenarios.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio

from efo import events
from efo.consumer.consumer import ConsumerSettings, open_consumer
from efo.consumer.shard_stream import ShardStream
from efo.errors import LeaseStoreUnavailableError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import SHARD_END, TRIM_HORIZON, Checkpoint, Lease
from efo.testing import FakeKinesis

STREAM = "orders"
SETTINGS = ConsumerSettings(application="app", worker_id="worker")
Clock = trio.testing.MockClock


class Reader:
    """Keeps what it reads, by key; says when there is enough."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.count = 0
        self._more = trio.Event()

    async def __call__(self, shard: ShardStream) -> None:
        async for batch in shard:
            for record in batch.records:
                self.by_key[record.partition_key].append(int(record.data))
                self.count += 1
            shard.ack(batch)
            self._more.set()
            self._more = trio.Event()

    async def reached(self, count: int) -> None:
        while self.count < count:
            await self._more.wait()


async def never(_shard: ShardStream) -> None:
    await trio.sleep_forever()


async def read(fake: FakeKinesis, store: MemoryLeaseStore, count: int, seen: list[events.Event]) -> Reader:
    """Let a worker read so many records, and stop."""
    reader = Reader()
    async with (
        open_consumer(fake.kinesis(STREAM), store, SETTINGS, seen.append) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, reader)
        await reader.reached(count)
        consumer.stop()
    return reader


async def leases(store: MemoryLeaseStore) -> dict[str, Lease]:
    return {lease.key: lease for lease in await store.list()}


class BrokenOff(MemoryLeaseStore):
    """Creates so many leases, and then no more."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left: float = count

    async def create(self, lease: Lease) -> bool:
        if not self.left:
            raise LeaseStoreUnavailableError("gone, as the test wants it")
        self.left -= 1
        return await super().create(lease)


@pytest.mark.scenario("G18")
@pytest.mark.parametrize("count", range(5))
async def test_creating_leases_is_broken_off_and_done_again(autojump_clock: Clock, count: int) -> None:
    store = BrokenOff(count)
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=5)
        with pytest.raises(LeaseStoreUnavailableError):
            async with open_consumer(fake.kinesis(STREAM), store, SETTINGS) as consumer:
                await consumer.run(never)
        assert sorted(await leases(store)) == sorted(fake.open_shards(STREAM))[:count]
        store.left = float("inf")
        async with open_consumer(fake.kinesis(STREAM), store, SETTINGS) as consumer:
            with trio.move_on_after(1):
                await consumer.run(never)
        assert {key: lease.checkpoint for key, lease in (await leases(store)).items()} == dict.fromkeys(
            fake.open_shards(STREAM), TRIM_HORIZON
        )


@pytest.mark.scenario("G40")
async def test_a_shard_that_is_past_its_retention_ends_and_its_children_are_found(autojump_clock: Clock) -> None:
    store, seen = MemoryLeaseStore(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        fake.put(STREAM, "k", b"1")
        await read(fake, store, 1, seen)
        fake.put(STREAM, "k", b"2")  # nobody will ever read it
        children = fake.split(STREAM, parent)
        await trio.sleep(25 * 3600)
        fake.put_many(STREAM, [(f"key-{n}", b"3") for n in range(10)])
        reader = await read(fake, store, 10, seen)
    assert reader.by_key == {f"key-{n}": [3] for n in range(10)}
    gone = [event for event in seen if isinstance(event, events.ShardGone)]
    assert [event.shard_id for event in gone] == [parent]
    rows = await leases(store)
    assert (rows[parent].checkpoint, rows[parent].children) == (SHARD_END, ())
    assert set(rows) == {parent, *children}


@pytest.mark.scenario("G53")
async def test_a_shard_whose_end_was_read_but_not_saved_is_finished_by_who_comes_next(autojump_clock: Clock) -> None:
    """The crash came between the leases of the children and SHARD_END."""
    store, seen = MemoryLeaseStore(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        _, last = fake.put(STREAM, "k", b"1")
        children = fake.split(STREAM, parent)
        fake.put_many(STREAM, [(f"key-{n}", b"2") for n in range(10)])
        await store.create(Lease(parent, Checkpoint(last)))
        await store.create(Lease(children[0], TRIM_HORIZON, parents=(parent,)))
        reader = await read(fake, store, 10, seen)
    assert reader.by_key == {f"key-{n}": [2] for n in range(10)}
    rows = await leases(store)
    assert (rows[parent].checkpoint, rows[parent].children) == (SHARD_END, tuple(children))
    assert set(rows) == {parent, *children}


@pytest.mark.scenario("G53")
async def test_a_finished_shard_is_not_subscribed_to(autojump_clock: Clock) -> None:
    store, seen = MemoryLeaseStore(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        fake.put(STREAM, "k", b"1")
        fake.split(STREAM, parent)
        fake.put(STREAM, "k", b"2")
        await store.create(Lease(parent, SHARD_END))
        reader = await read(fake, store, 1, seen)
    assert reader.by_key == {"k": [2]}
    assert parent not in {event.shard_id for event in seen if isinstance(event, events.SubscribeAttempted)}


@pytest.mark.scenario("G39", "G52")
async def test_who_is_taken_over_does_not_subscribe_again(autojump_clock: Clock) -> None:
    """The service tells the old subscription that another took over. Before she tries again, her lease is lost."""
    store, ann_saw, bob_saw = MemoryLeaseStore(), list[events.Event](), list[events.Event]()
    rarely = replace(SETTINGS, graceful_handoff=False, checkpoint_interval=1000)
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=2)
        fake.put_many(STREAM, [(f"key-{n}", b"1") for n in range(10)])
        ann_read, bob_read = Reader(), Reader()
        async with (
            open_consumer(fake.kinesis(STREAM), store, replace(rarely, worker_id="ann"), ann_saw.append) as ann,
            open_consumer(fake.kinesis(STREAM), store, replace(rarely, worker_id="bob"), bob_saw.append) as bob,
        ):
            nursery.start_soon(ann.run, ann_read)
            await ann_read.reached(10)
            await trio.sleep(10)
            nursery.start_soon(bob.run, bob_read)
            await trio.sleep(60)
            (stolen,) = [event.shard_id for event in bob_saw if isinstance(event, events.ShardStarted)]
            assert (await leases(store))[stolen].owner == "bob"
            attempts = [event for event in ann_saw if isinstance(event, events.SubscribeAttempted)]
            assert [event.shard_id for event in attempts].count(stolen) == 1
            saved = [event.shard_id for event in ann_saw if isinstance(event, events.CheckpointSaved)]
            assert stolen not in saved, "she had read from it, and it is no longer hers to say how far"
            ann.stop()
            bob.stop()


class Counted(MemoryLeaseStore):
    """Counts the checkpoints, and refuses some."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[Checkpoint] = []
        self.refuses = 0

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        if self.refuses:
            self.refuses -= 1
            raise LeaseStoreUnavailableError("busy, as the test wants it")
        self.saved.append(checkpoint)
        return await super().checkpoint(lease, checkpoint)


@pytest.mark.scenario("G65")
async def test_progress_is_kept_when_a_write_fails_and_not_written_twice(autojump_clock: Clock) -> None:
    store, reader = Counted(), Reader()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (shard,) = fake.open_shards(STREAM)
        async with (
            open_consumer(fake.kinesis(STREAM), store, SETTINGS) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            store.refuses = 3
            _, number = fake.put(STREAM, "k", b"1")
            await reader.reached(1)
            consumer.pause(shard)  # nothing more comes, so there is nothing more to save
            await trio.sleep(14)
            assert store.saved == []
            await trio.sleep(60)
            assert len(store.saved) == 1
            assert store.saved[0] >= Checkpoint(number)
            consumer.stop()


@pytest.mark.scenario("G73")
async def test_workers_restarted_one_after_the_other_lose_and_repeat_nothing(autojump_clock: Clock) -> None:
    store, reader, sent = MemoryLeaseStore(), Reader(), 0
    running: dict[str, Callable[[], None]] = {}

    async def work(fake: FakeKinesis, name: str) -> None:
        async with open_consumer(fake.kinesis(STREAM), store, replace(SETTINGS, worker_id=name)) as consumer:
            running[name] = consumer.stop
            await consumer.run(reader)

    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=6)
        names = ["ann", "bob", "cid"]
        for name in names:
            nursery.start_soon(work, fake, name)
        for step in range(60):
            fake.put_many(STREAM, [(f"key-{n}", b"%d" % step) for n in range(30)])
            sent += 30
            await trio.sleep(2)
            if step % 9 == 8:
                name = names[step // 9 % 3]
                running.pop(name)()
                await trio.sleep(1)
                nursery.start_soon(work, fake, name)
        await reader.reached(sent)
        assert len({lease.owner for lease in await store.list()}) == 3
        for stop in running.values():
            stop()
    assert reader.by_key == {f"key-{n}": list(range(60)) for n in range(30)}
