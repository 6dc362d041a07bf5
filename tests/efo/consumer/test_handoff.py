"""Consumers that hand off shards: a planned move repeats nothing, and a suspended worker overwrites nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable

import pytest
import trio

from efo import events
from efo.consumer.consumer import Consumer
from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_task import ShardReader
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, Lease
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"
pytestmark = pytest.mark.usefixtures("read_mode")


def settings(**changes: object) -> ConsumerSettings:
    return ConsumerSettings(**changes)


class Processed:
    """What all workers processed: the records by key, and the workers by shard. `pace`: seconds per batch."""

    def __init__(self, pace: float = 0.0) -> None:
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.readers: dict[str, list[str]] = defaultdict(list)
        self._pace = pace

    def reader(self, worker: str) -> ShardReader:
        async def read(shard: ShardStream) -> None:
            self.readers[shard.shard_id].append(worker)
            async for batch in shard:
                await trio.sleep(self._pace)
                for record in batch.records:
                    self.by_key[record.partition_key].append(int(record.data))
                shard.ack(batch)

        return read


async def put_until(fake: FakeKinesis, sent: list[int], end: trio.Event) -> None:
    while not end.is_set():
        for key in range(20):
            fake.put(STREAM, f"key-{key}", b"%d" % len(sent))
        sent.append(len(sent))
        await trio.sleep(0.3)


@pytest.mark.parametrize("pace", [0.0, 0.2])
@pytest.mark.scenario("G31")
async def test_a_worker_that_joins_and_leaves_causes_no_repetition(
    autojump_clock: trio.testing.MockClock, pace: float
) -> None:
    store, processed, seen, sent = MemoryLeaseStore(), Processed(pace), list[events.Event](), list[int]()
    end = trio.Event()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=4)
        nursery.start_soon(put_until, fake, sent, end)
        async with open_worker(fake.kinesis(STREAM), store, settings(), seen.append, worker_id="ann") as ann:
            nursery.start_soon(ann.run, processed.reader("ann"))
            await trio.sleep(20)
            async with open_worker(fake.kinesis(STREAM), store, settings(), seen.append, worker_id="bob") as bob:
                nursery.start_soon(bob.run, processed.reader("bob"))
                await trio.sleep(40)
                assert sorted(str(lease.owner) for lease in await store.list()) == ["ann", "ann", "bob", "bob"]
                bob.drain()
                await trio.sleep(20)
            await trio.sleep(20)
            end.set()
            await trio.sleep(20)
            ann.drain()
    assert processed.by_key == {f"key-{key}": sent for key in range(20)}
    losses = [event.reason for event in seen if isinstance(event, events.LeaseLost)]
    assert losses.count("handed_over") == 2
    assert set(losses) == {"handed_over", "released"}
    assert sorted(map(len, processed.readers.values())) == [1, 1, 3, 3]


@pytest.mark.scenario("G34")
async def test_a_lease_that_nobody_reads_is_handed_over_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The shard waits for the end of its parent, so it has no reader that must finish first."""
    store, processed = MemoryLeaseStore(), Processed()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        await store.create(Lease(parent, Checkpoint.TRIM_HORIZON, owner="ann"))
        await store.create(Lease("child", Checkpoint.TRIM_HORIZON, owner="ann", parents=(parent,)))
        async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="ann") as ann:
            nursery.start_soon(ann.run, processed.reader("ann"))
            await trio.sleep(5)
            assert set(ann._coordinator.held) == {parent, "child"}
            (row,) = [row for row in await store.list() if row.key == "child"]
            await store.request_handoff(row, "bob")
            await trio.sleep(1)
            (row,) = [row for row in await store.list() if row.key == "child"]
            assert row.holder == "bob"
            assert set(ann._coordinator.held) == {parent}
            ann.drain()


class SuspendableStore:
    """The lease store as one worker uses it. Calls wait while `running` is not set, as in a suspended process."""

    def __init__(self, store: MemoryLeaseStore) -> None:
        self._store = store
        self.running = trio.Event()
        self.running.set()

    def ensure_scope(self, application: str, stream: str) -> None:
        self._store.ensure_scope(application, stream)

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[object]]:
        async def call(*arguments: object) -> object:
            await self.running.wait()
            return await getattr(self._store, operation)(*arguments)

        return call


@pytest.mark.scenario("G74")
async def test_a_suspended_worker_never_overwrites_a_newer_checkpoint(autojump_clock: trio.testing.MockClock) -> None:
    """Worker ann is suspended before it saves its progress, worker bob takes over and reads further, and ann resumes.

    The clock of ann stands still, like that of a suspended machine, so ann does not notice that its lease has expired.
    """
    store, processed, lost = MemoryLeaseStore(), Processed(), list[events.LeaseLost]()

    def observe(event: events.Event) -> None:
        if isinstance(event, events.LeaseLost):
            lost.append(event)

    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        anns_store = SuspendableStore(store)
        never_expires = settings(failover_seconds=1e6)
        async with open_worker(fake.kinesis(STREAM), anns_store, never_expires, observe) as ann:
            nursery.start_soon(ann.run, processed.reader("ann"))
            await trio.sleep(1)
            fake.put(STREAM, "k", b"1")
            await trio.sleep(1)
            anns_store.running = trio.Event()
            async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="bob") as bob:
                nursery.start_soon(bob.run, processed.reader("bob"))
                await trio.sleep(12)
                fake.put(STREAM, "k", b"2")
                await trio.sleep(10)
                (newer,) = await store.list()
                assert newer.owner == "bob"
                assert lost == []
                anns_store.running.set()
                await trio.sleep(0.1)
                (row,) = await store.list()
                assert (row.owner, row.checkpoint) == ("bob", newer.checkpoint)
                assert [event.reason for event in lost] == ["taken"]
                bob.drain()
                ann.drain()
    assert set(processed.by_key["k"]) == {1, 2}


async def wait_for_shards(consumer: Consumer, count: int) -> None:
    while len(consumer.status().shards) != count:  # noqa: ASYNC110 - virtual time
        await trio.sleep(0.1)


async def starts_after(seen: list[tuple[float, events.Event]], moment: float, count: int) -> list[float]:
    """Wait until `count` shards have started after `moment`. Return how many seconds after it each one started."""
    while True:
        starts = [at - moment for at, event in seen if at >= moment and isinstance(event, events.ShardStarted)]
        if len(starts) >= count:
            return starts
        await trio.sleep(0.05)


@pytest.mark.parametrize("wait", [0.0, 1.3, 2.6, 3.9])
async def test_after_a_drain_the_other_worker_reads_the_shards_within_a_second(
    autojump_clock: trio.testing.MockClock, wait: float
) -> None:
    store, processed, seen = MemoryLeaseStore(), Processed(), list[tuple[float, events.Event]]()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=6)

        def observe(event: events.Event) -> None:
            seen.append((trio.current_time(), event))

        async with open_worker(fake.kinesis(STREAM), store, settings(), observe, worker_id="ann") as ann:
            nursery.start_soon(ann.run, processed.reader("ann"))
            async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="bob") as bob:
                nursery.start_soon(bob.run, processed.reader("bob"))
                await wait_for_shards(ann, 3)
                await wait_for_shards(bob, 3)
                await trio.sleep(10 + wait)
                stopped = trio.current_time()
                bob.drain()
                assert max(await starts_after(seen, stopped, 3)) < 1
            ann.drain()


@pytest.mark.parametrize("wait", [0.0, 1.3, 2.6, 3.9])
async def test_after_a_crash_the_other_worker_reads_the_shards_within_the_failover_time_and_a_second(
    autojump_clock: trio.testing.MockClock, wait: float
) -> None:
    store, processed, seen = MemoryLeaseStore(), Processed(), list[tuple[float, events.Event]]()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=6)
        bobs_store = SuspendableStore(store)

        def observe(event: events.Event) -> None:
            seen.append((trio.current_time(), event))

        async with open_worker(fake.kinesis(STREAM), store, settings(), observe, worker_id="ann") as ann:
            nursery.start_soon(ann.run, processed.reader("ann"))
            async with open_worker(fake.kinesis(STREAM), bobs_store, settings(), worker_id="bob") as bob:
                nursery.start_soon(bob.run, processed.reader("bob"))
                await wait_for_shards(ann, 3)
                await wait_for_shards(bob, 3)
                await trio.sleep(10 + wait)
                crashed = trio.current_time()
                bobs_store.running = trio.Event()  # bob cannot renew its leases any more
                assert max(await starts_after(seen, crashed, 3)) < 10 + 1
                bob.drain()
            ann.drain()


async def test_the_children_of_a_split_are_read_by_the_worker_that_read_the_parent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, processed = MemoryLeaseStore(), Processed()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=4)
        async with (
            open_worker(fake.kinesis(STREAM), store, settings(), worker_id="ann") as ann,
            open_worker(fake.kinesis(STREAM), store, settings(), worker_id="bob") as bob,
        ):
            nursery.start_soon(ann.run, processed.reader("ann"))
            nursery.start_soon(bob.run, processed.reader("bob"))
            await wait_for_shards(ann, 2)
            await wait_for_shards(bob, 2)
            for worker in (ann, bob):
                parent = worker.status().shards[0].shard_id
                before = set(fake.open_shards(STREAM))
                fake.split(STREAM, parent)
                await trio.sleep(30)
                children = set(fake.open_shards(STREAM)) - before
                assert {processed.readers[child][0] for child in children} == set(processed.readers[parent][-1:])
            ann.drain()
            bob.drain()
