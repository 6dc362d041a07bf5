"""Whole consumers in situations that no other test covers: see docs/guarantees.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio

from efo import events
from efo.consumer.shard_stream import ShardStream
from efo.errors import LeaseStoreUnavailableError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, Lease
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"
pytestmark = pytest.mark.usefixtures("read_mode")
SETTINGS = ConsumerSettings()
Clock = trio.testing.MockClock


class Reader:
    """Keeps what it reads, by key."""

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

    async def wait_for(self, count: int) -> None:
        while self.count < count:
            await self._more.wait()


async def read_nothing(_shard: ShardStream) -> None:
    await trio.sleep_forever()


async def run_worker(fake: FakeKinesis, store: MemoryLeaseStore, count: int, seen: list[events.Event]) -> Reader:
    """Run a worker until it has read `count` records, then stop it."""
    reader = Reader()
    async with (
        open_worker(fake.kinesis(STREAM), store, SETTINGS, seen.append) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, reader)
        await reader.wait_for(count)
        consumer.drain()
    return reader


async def leases(store: MemoryLeaseStore) -> dict[str, Lease]:
    return {lease.key: lease for lease in await store.list()}


class FailingCreates(MemoryLeaseStore):
    """Creates `count` leases and rejects the next ones."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left: float = count

    async def create(self, lease: Lease) -> bool:
        if not self.left:
            raise LeaseStoreUnavailableError("made up")
        self.left -= 1
        return await super().create(lease)


@pytest.mark.scenario("G18")
@pytest.mark.parametrize("count", range(5))
async def test_lease_creation_that_fails_at_any_point_is_completed_by_the_next_run(
    autojump_clock: Clock, count: int
) -> None:
    store = FailingCreates(count)
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=5)
        async with open_worker(fake.kinesis(STREAM), store, SETTINGS) as consumer:
            with trio.move_on_after(100) as waiting:  # it is an outage: the process is stopped meanwhile
                await consumer.run(read_nothing)
        assert waiting.cancelled_caught
        # Creations run at the same time: one that fails may come before others of its batch.
        assert len(await leases(store)) <= count
        store.left = float("inf")
        async with open_worker(fake.kinesis(STREAM), store, SETTINGS) as consumer:
            with trio.move_on_after(1):
                await consumer.run(read_nothing)
        assert {key: lease.checkpoint for key, lease in (await leases(store)).items()} == dict.fromkeys(
            fake.open_shards(STREAM), Checkpoint.TRIM_HORIZON
        )


@pytest.mark.scenario("G40")
async def test_a_shard_past_its_retention_is_finished_and_its_children_are_read(autojump_clock: Clock) -> None:
    store, seen = MemoryLeaseStore(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        fake.put(STREAM, "k", b"1")
        await run_worker(fake, store, 1, seen)
        fake.put(STREAM, "k", b"2")  # expires unread
        children = fake.split(STREAM, parent)
        await trio.sleep(25 * 3600)
        fake.put_many(STREAM, [(f"key-{n}", b"3") for n in range(10)])
        reader = await run_worker(fake, store, 10, seen)
    assert reader.by_key == {f"key-{n}": [3] for n in range(10)}
    gone = [event for event in seen if isinstance(event, events.ShardGone)]
    assert [event.shard_id for event in gone] == [parent]
    rows = await leases(store)
    assert (rows[parent].checkpoint, rows[parent].children) == (Checkpoint.SHARD_END, ())
    assert set(rows) == {parent, *children}


@pytest.mark.scenario("G53")
async def test_a_shard_whose_end_was_read_but_not_saved_is_finished_by_the_next_worker(autojump_clock: Clock) -> None:
    """A worker crashed after it created the lease of one child, before it saved SHARD_END."""
    store, seen = MemoryLeaseStore(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        _, last = fake.put(STREAM, "k", b"1")
        children = fake.split(STREAM, parent)
        fake.put_many(STREAM, [(f"key-{n}", b"2") for n in range(10)])
        await store.create(Lease(parent, Checkpoint(last)))
        await store.create(Lease(children[0], Checkpoint.TRIM_HORIZON, parents=(parent,)))
        reader = await run_worker(fake, store, 10, seen)
    assert reader.by_key == {f"key-{n}": [2] for n in range(10)}
    rows = await leases(store)
    assert (rows[parent].checkpoint, rows[parent].children) == (Checkpoint.SHARD_END, tuple(children))
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
        await store.create(Lease(parent, Checkpoint.SHARD_END))
        reader = await run_worker(fake, store, 1, seen)
    assert reader.by_key == {"k": [2]}
    assert parent not in {event.shard_id for event in seen if isinstance(event, events.SubscribeAttempted)}


@pytest.mark.scenario("G39", "G52")
@pytest.mark.parametrize("read_mode", ["fanout"], indirect=True)
async def test_a_worker_whose_subscription_is_taken_over_does_not_subscribe_again(autojump_clock: Clock) -> None:
    """Kinesis reports the take-over to the old subscription. The worker loses its lease before it subscribes again."""
    store, ann_events, bob_events = MemoryLeaseStore(), list[events.Event](), list[events.Event]()
    settings = replace(SETTINGS, graceful_handoff=False, checkpoint_seconds=1000)
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=2)
        fake.put_many(STREAM, [(f"key-{n}", b"1") for n in range(10)])
        ann_reader, bob_reader = Reader(), Reader()
        async with (
            open_worker(fake.kinesis(STREAM), store, settings, ann_events.append, worker_id="ann") as ann,
            open_worker(fake.kinesis(STREAM), store, settings, bob_events.append, worker_id="bob") as bob,
        ):
            nursery.start_soon(ann.run, ann_reader)
            await ann_reader.wait_for(10)
            await trio.sleep(10)
            nursery.start_soon(bob.run, bob_reader)
            await trio.sleep(60)
            (stolen,) = [event.shard_id for event in bob_events if isinstance(event, events.ShardStarted)]
            assert (await leases(store))[stolen].owner == "bob"
            attempts = [event for event in ann_events if isinstance(event, events.SubscribeAttempted)]
            assert [event.shard_id for event in attempts].count(stolen) == 1
            saved = [event.shard_id for event in ann_events if isinstance(event, events.CheckpointSaved)]
            assert stolen not in saved, "ann saved a checkpoint of a lease that it lost"
            ann.drain()
            bob.drain()


class RecordingStore(MemoryLeaseStore):
    """Keeps the saved checkpoints, and rejects the next `rejections` ones."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[Checkpoint] = []
        self.rejections = 0

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
        if self.rejections:
            self.rejections -= 1
            raise LeaseStoreUnavailableError("made up")
        self.saved.append(checkpoint)
        return await super().checkpoint(lease, checkpoint, throughput_kbps)


@pytest.mark.scenario("G65")
async def test_a_checkpoint_is_retried_after_failed_writes_and_written_once(autojump_clock: Clock) -> None:
    store, reader = RecordingStore(), Reader()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (shard,) = fake.open_shards(STREAM)
        async with (
            open_worker(fake.kinesis(STREAM), store, SETTINGS) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            store.rejections = 3
            _, number = fake.put(STREAM, "k", b"1")
            await reader.wait_for(1)
            consumer.pause(shard)  # no more batches arrive, so there is no other checkpoint
            while store.rejections:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            assert store.saved == []
            await trio.sleep(60)
            assert len(store.saved) == 1
            assert store.saved[0] >= Checkpoint(number)
            consumer.drain()


@pytest.mark.scenario("G73")
async def test_a_rolling_restart_loses_and_repeats_nothing(autojump_clock: Clock) -> None:
    store, reader, sent = MemoryLeaseStore(), Reader(), 0
    running: dict[str, Callable[[], None]] = {}

    async def run_named(fake: FakeKinesis, name: str) -> None:
        async with open_worker(fake.kinesis(STREAM), store, SETTINGS, worker_id=name) as consumer:
            running[name] = consumer.drain
            await consumer.run(reader)

    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=6)
        names = ["ann", "bob", "cid"]
        for name in names:
            nursery.start_soon(run_named, fake, name)
        for step in range(60):
            fake.put_many(STREAM, [(f"key-{n}", b"%d" % step) for n in range(30)])
            sent += 30
            await trio.sleep(2)
            if step % 9 == 8:
                name = names[step // 9 % 3]
                running.pop(name)()
                await trio.sleep(1)
                nursery.start_soon(run_named, fake, name)
        await reader.wait_for(sent)
        assert len({lease.owner for lease in await store.list()}) == 3
        for stop in running.values():
            stop()
    assert reader.by_key == {f"key-{n}": list(range(60)) for n in range(30)}
