"""Whole consumers that hand shards over: a planned move repeats nothing, and a zombie overwrites nothing."""

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
from efo.model import TRIM_HORIZON, Lease
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"


def settings(**changes: object) -> ConsumerSettings:
    return ConsumerSettings(**changes)


class Handled:
    """What all workers read, by key; each batch takes `pace` seconds."""

    def __init__(self, pace: float = 0.0) -> None:
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.readers: dict[str, list[str]] = defaultdict(list)
        self._pace = pace

    def by(self, worker: str) -> ShardReader:
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
    store, handled, seen, sent = MemoryLeaseStore(), Handled(pace), list[events.Event](), list[int]()
    end = trio.Event()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=4)
        nursery.start_soon(put_until, fake, sent, end)
        async with open_worker(fake.kinesis(STREAM), store, settings(), seen.append, worker_id="ann") as ann:
            nursery.start_soon(ann.run, handled.by("ann"))
            await trio.sleep(20)
            async with open_worker(fake.kinesis(STREAM), store, settings(), seen.append, worker_id="bob") as bob:
                nursery.start_soon(bob.run, handled.by("bob"))
                await trio.sleep(40)
                assert sorted(str(lease.owner) for lease in await store.list()) == ["ann", "ann", "bob", "bob"]
                bob.drain()
                await trio.sleep(20)
            await trio.sleep(20)
            end.set()
            await trio.sleep(20)
            ann.drain()
    assert handled.by_key == {f"key-{key}": sent for key in range(20)}
    losses = [event.reason for event in seen if isinstance(event, events.LeaseLost)]
    assert losses.count("handed_over") == 2
    assert set(losses) == {"handed_over", "released"}
    assert sorted(map(len, handled.readers.values())) == [1, 1, 3, 3]


@pytest.mark.scenario("G34")
async def test_a_lease_that_is_not_being_read_is_handed_over_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """G34: here it waits for its parent's end, so there is no reader to wait for."""
    store, handled = MemoryLeaseStore(), Handled()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        await store.create(Lease(parent, TRIM_HORIZON, owner="ann"))
        await store.create(Lease("child", TRIM_HORIZON, owner="ann", parents=(parent,)))
        async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="ann") as ann:
            nursery.start_soon(ann.run, handled.by("ann"))
            await trio.sleep(5)
            assert set(ann.keeper.held) == {parent, "child"}
            (row,) = [row for row in await store.list() if row.key == "child"]
            await store.request_handoff(row, "bob")
            await trio.sleep(1)
            (row,) = [row for row in await store.list() if row.key == "child"]
            assert row.holder == "bob"
            assert set(ann.keeper.held) == {parent}
            ann.drain()


class PausedProcess:
    """A worker's way to the store. Until `go_on` nothing gets through, and then everything that waited does."""

    def __init__(self, store: MemoryLeaseStore) -> None:
        self._store = store
        self.go_on = trio.Event()
        self.go_on.set()

    def ensure_scope(self, application: str, stream: str) -> None:
        self._store.ensure_scope(application, stream)

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[object]]:
        async def call(*arguments: object) -> object:
            await self.go_on.wait()
            return await getattr(self._store, operation)(*arguments)

        return call


@pytest.mark.scenario("G74")
async def test_a_zombie_never_overwrites_a_newer_checkpoint(autojump_clock: trio.testing.MockClock) -> None:
    """G74: ann's process is paused before it has saved what it read; bob takes over and gets further; then she goes on.

    Her clock stands still, as that of a machine that sleeps, so she does not learn by herself that her time is up.
    """
    store, handled, lost = MemoryLeaseStore(), Handled(), list[events.LeaseLost]()

    def observe(event: events.Event) -> None:
        if isinstance(event, events.LeaseLost):
            lost.append(event)

    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        paused = PausedProcess(store)
        no_clock = settings(failover_time=1e6)
        async with open_worker(fake.kinesis(STREAM), paused, no_clock, observe) as ann:
            nursery.start_soon(ann.run, handled.by("ann"))
            await trio.sleep(1)
            fake.put(STREAM, "k", b"1")
            await trio.sleep(1)
            paused.go_on = trio.Event()
            async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="bob") as bob:
                nursery.start_soon(bob.run, handled.by("bob"))
                await trio.sleep(12)
                fake.put(STREAM, "k", b"2")
                await trio.sleep(10)
                (newer,) = await store.list()
                assert newer.owner == "bob"
                assert lost == []
                paused.go_on.set()
                await trio.sleep(0.1)
                (row,) = await store.list()
                assert (row.owner, row.checkpoint) == ("bob", newer.checkpoint)
                assert [event.reason for event in lost] == ["taken"]
                bob.drain()
                ann.drain()
    assert set(handled.by_key["k"]) == {1, 2}


async def settled(consumer: Consumer, count: int) -> None:
    while len(consumer.status().shards) != count:  # noqa: ASYNC110 - virtual time
        await trio.sleep(0.1)


async def starts_after(seen: list[tuple[float, events.Event]], moment: float, count: int) -> list[float]:
    """Wait for so many shards that start after a moment; return how long after it they did."""
    while True:
        starts = [at - moment for at, event in seen if at >= moment and isinstance(event, events.ShardStarted)]
        if len(starts) >= count:
            return starts
        await trio.sleep(0.05)


@pytest.mark.parametrize("wait", [0.0, 1.3, 2.6, 3.9])
async def test_after_a_graceful_stop_the_others_read_on_within_a_second(
    autojump_clock: trio.testing.MockClock, wait: float
) -> None:
    store, handled, seen = MemoryLeaseStore(), Handled(), list[tuple[float, events.Event]]()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=6)

        def observe(event: events.Event) -> None:
            seen.append((trio.current_time(), event))

        async with open_worker(fake.kinesis(STREAM), store, settings(), observe, worker_id="ann") as ann:
            nursery.start_soon(ann.run, handled.by("ann"))
            async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="bob") as bob:
                nursery.start_soon(bob.run, handled.by("bob"))
                await settled(ann, 3)
                await settled(bob, 3)
                await trio.sleep(10 + wait)
                stopped = trio.current_time()
                bob.drain()
                assert max(await starts_after(seen, stopped, 3)) < 1
            ann.drain()


@pytest.mark.parametrize("wait", [0.0, 1.3, 2.6, 3.9])
async def test_after_a_crash_the_others_read_on_within_the_failover_time_and_a_second(
    autojump_clock: trio.testing.MockClock, wait: float
) -> None:
    store, handled, seen = MemoryLeaseStore(), Handled(), list[tuple[float, events.Event]]()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=6)
        way = PausedProcess(store)

        def observe(event: events.Event) -> None:
            seen.append((trio.current_time(), event))

        async with open_worker(fake.kinesis(STREAM), store, settings(), observe, worker_id="ann") as ann:
            nursery.start_soon(ann.run, handled.by("ann"))
            async with open_worker(fake.kinesis(STREAM), way, settings(), worker_id="bob") as bob:
                nursery.start_soon(bob.run, handled.by("bob"))
                await settled(ann, 3)
                await settled(bob, 3)
                await trio.sleep(10 + wait)
                crashed = trio.current_time()
                way.go_on = trio.Event()  # nothing is heard of bob any more
                assert max(await starts_after(seen, crashed, 3)) < 10 + 1
                bob.drain()
            ann.drain()


async def test_the_children_of_a_split_stay_with_the_reader_of_their_parent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, handled = MemoryLeaseStore(), Handled()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=4)
        async with (
            open_worker(fake.kinesis(STREAM), store, settings(), worker_id="ann") as ann,
            open_worker(fake.kinesis(STREAM), store, settings(), worker_id="bob") as bob,
        ):
            nursery.start_soon(ann.run, handled.by("ann"))
            nursery.start_soon(bob.run, handled.by("bob"))
            await settled(ann, 2)
            await settled(bob, 2)
            for reader in (ann, bob):
                parent = reader.status().shards[0].shard_id
                before = set(fake.open_shards(STREAM))
                fake.split(STREAM, parent)
                await trio.sleep(30)
                children = set(fake.open_shards(STREAM)) - before
                assert {handled.readers[child][0] for child in children} == set(handled.readers[parent][-1:])
            ann.drain()
            bob.drain()
