"""What a reading does at its ends, to the moment: at the loss of its lease, at a drain, at the end of its shard."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from efo import events
from efo.consumer.shard_stream import ShardStream
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import SHARD_END, Batch
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"
SETTINGS = ConsumerSettings()
Clock = trio.testing.MockClock


class Timed:
    """An observer that notes when it was told what."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, events.Event]] = []
        self._more = trio.Event()

    def __call__(self, event: events.Event) -> None:
        self.seen.append((trio.current_time(), event))
        self._more.set()
        self._more = trio.Event()

    def at(self, kind: type[events.Event], shard_id: str) -> float:
        """Return when the first event of this kind came for this shard."""
        return next(at for at, event in self.seen if isinstance(event, kind) and event.shard_id == shard_id)

    async def wait_for(self, kind: type[events.Event]) -> None:
        while not any(isinstance(event, kind) for _, event in self.seen):
            await self._more.wait()


class Reader:
    """Takes records, and says so; `hangs`: for ever at the first batch."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.got: list[bytes] = []
        self.cancelled_at: float | None = None
        self._hangs = hangs
        self._more = trio.Event()

    async def __call__(self, shard: ShardStream) -> None:
        async for batch in shard:
            await self._take(batch)
            shard.ack(batch)

    async def _take(self, batch: Batch) -> None:
        self.got += [record.data for record in batch.records]
        self._more.set()
        self._more = trio.Event()
        if self._hangs:
            try:
                await trio.sleep_forever()
            finally:
                self.cancelled_at = trio.current_time()

    async def reached(self, count: int) -> None:
        while len(self.got) < count:
            await self._more.wait()


@pytest.mark.parametrize("hangs", [False, True], ids=["waiting for a batch", "in a handler"])
@pytest.mark.scenario("G39")
async def test_a_lease_that_is_lost_ends_the_reading_at_that_moment(autojump_clock: Clock, *, hangs: bool) -> None:
    """R10. The checkpointer, which would find out too, is far from its next turn."""
    store, reader, told = MemoryLeaseStore(), Reader(hangs=hangs), Timed()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (shard,) = fake.open_shards(STREAM)
        fake.put(STREAM, "k", b"before")
        rarely = replace(SETTINGS, checkpoint_interval=1000)
        async with (
            open_worker(fake.kinesis(STREAM), store, rarely, told) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            await reader.reached(1)
            (lease,) = await store.list()
            await store.take(lease, "other")
            await told.wait_for(events.LeaseLost)
            await trio.testing.wait_all_tasks_blocked()
            lost_at = told.at(events.LeaseLost, shard)
            assert told.at(events.ShardStopped, shard) == lost_at
            assert reader.cancelled_at == (lost_at if hangs else None)
            fake.put(STREAM, "k", b"after")
            await trio.sleep(5)  # its new owner, which never renews, keeps it for another five
            assert reader.got == [b"before"]
            nursery.cancel_scope.cancel()


async def test_a_drain_releases_the_lease_before_the_keeper_goes(autojump_clock: Clock) -> None:
    store, reader = MemoryLeaseStore(), Reader()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        fake.put_many(STREAM, [(f"k{n}", b"1") for n in range(20)])
        async with open_worker(fake.kinesis(STREAM), store, SETTINGS) as consumer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, reader)
                await reader.reached(20)
                consumer.drain()
            # `run` has returned, and the keeper, which would release what is left, still keeps.
            assert [lease.owner for lease in await store.list()] == [None, None]


@pytest.mark.scenario("G37")
async def test_children_begin_at_the_moment_in_which_their_parent_ends(autojump_clock: Clock) -> None:
    """R2: unlocked at once in this process, and not at the keeper's next look, ten seconds later."""
    store, reader, told = MemoryLeaseStore(), Reader(), Timed()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        slowly = replace(SETTINGS, failover_time=100.0)
        async with (
            open_worker(fake.kinesis(STREAM), store, slowly, told) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            fake.put(STREAM, "k", b"1")
            await reader.reached(1)
            await trio.sleep(3.3)
            children = fake.split(STREAM, parent)
            await told.wait_for(events.ShardFinished)
            for _ in children:
                await trio.testing.wait_all_tasks_blocked()
            ended_at = next(
                at
                for at, event in told.seen
                if isinstance(event, events.CheckpointSaved) and event.checkpoint == SHARD_END
            )
            assert [told.at(events.ShardStarted, child) for child in children] == [ended_at, ended_at]
            consumer.drain()
