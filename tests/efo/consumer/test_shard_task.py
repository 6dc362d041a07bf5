"""When a shard task ends: at once when its lease is lost, at a drain, and at the end of its shard."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from efo import events
from efo.consumer.shard_stream import ShardStream
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Batch, Checkpoint
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"
pytestmark = pytest.mark.usefixtures("read_mode")
SETTINGS = ConsumerSettings()
Clock = trio.testing.MockClock


class TimedEvents:
    """An observer that keeps the events with their times."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, events.Event]] = []
        self._changed = trio.Event()

    def __call__(self, event: events.Event) -> None:
        self.seen.append((trio.current_time(), event))
        self._changed.set()
        self._changed = trio.Event()

    def at(self, kind: type[events.Event], shard_id: str) -> float:
        """Return the time of the first event of this kind for this shard."""
        return next(at for at, event in self.seen if isinstance(event, kind) and event.shard_id == shard_id)

    async def wait_for(self, kind: type[events.Event]) -> None:
        while not any(isinstance(event, kind) for _, event in self.seen):
            await self._changed.wait()


class Reader:
    """Keeps and acks records. `reached` waits for a number of records. `hangs`: never finishes the first batch."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.received: list[bytes] = []
        self.cancelled_at: float | None = None
        self._hangs = hangs
        self._changed = trio.Event()

    async def __call__(self, shard: ShardStream) -> None:
        async for batch in shard:
            await self._take(batch)
            shard.ack(batch)

    async def _take(self, batch: Batch) -> None:
        self.received += [record.data for record in batch.records]
        self._changed.set()
        self._changed = trio.Event()
        if self._hangs:
            try:
                await trio.sleep_forever()
            finally:
                self.cancelled_at = trio.current_time()

    async def reached(self, count: int) -> None:
        while len(self.received) < count:
            await self._changed.wait()


@pytest.mark.parametrize("hangs", [False, True], ids=["waiting for a batch", "in a handler"])
@pytest.mark.scenario("G39")
async def test_the_loss_of_a_lease_ends_the_shard_task_at_once(autojump_clock: Clock, *, hangs: bool) -> None:
    """Rule R10. The next checkpoint, which would find the loss too, is due much later."""
    store, reader, observed = MemoryLeaseStore(), Reader(hangs=hangs), TimedEvents()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (shard,) = fake.open_shards(STREAM)
        fake.put(STREAM, "k", b"before")
        long_interval = replace(SETTINGS, checkpoint_seconds=1000)
        async with (
            open_worker(fake.kinesis(STREAM), store, long_interval, observed) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            await reader.reached(1)
            (lease,) = await store.list()
            await store.take(lease, "other")
            await observed.wait_for(events.LeaseLost)
            await trio.testing.wait_all_tasks_blocked()
            lost_at = observed.at(events.LeaseLost, shard)
            assert observed.at(events.ShardStopped, shard) == lost_at
            assert reader.cancelled_at == (lost_at if hangs else None)
            fake.put(STREAM, "k", b"after")
            await trio.sleep(5)  # the new owner never renews, so its lease expires after ten
            assert reader.received == [b"before"]
            nursery.cancel_scope.cancel()


async def test_a_drain_releases_the_leases_before_the_keeper_stops(autojump_clock: Clock) -> None:
    store, reader = MemoryLeaseStore(), Reader()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        fake.put_many(STREAM, [(f"k{n}", b"1") for n in range(20)])
        async with open_worker(fake.kinesis(STREAM), store, SETTINGS) as consumer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, reader)
                await reader.reached(20)
                consumer.drain()
            # `run` has returned. The coordinator, which releases the remaining leases when it stops, still runs.
            assert [lease.owner for lease in await store.list()] == [None, None]


@pytest.mark.scenario("G37")
async def test_children_start_at_once_when_their_parent_is_finished(autojump_clock: Clock) -> None:
    """Rule R2. In the same process, the children do not wait for the coordinator's next lease scan."""
    store, reader, observed = MemoryLeaseStore(), Reader(), TimedEvents()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        slow_scans = replace(SETTINGS, failover_seconds=100.0)
        async with (
            open_worker(fake.kinesis(STREAM), store, slow_scans, observed) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            fake.put(STREAM, "k", b"1")
            await reader.reached(1)
            await trio.sleep(3.3)
            children = fake.split(STREAM, parent)
            await observed.wait_for(events.ShardFinished)
            for _ in children:
                await trio.testing.wait_all_tasks_blocked()
            ended_at = next(
                at
                for at, event in observed.seen
                if isinstance(event, events.CheckpointSaved) and event.checkpoint == Checkpoint.SHARD_END
            )
            assert [observed.at(events.ShardStarted, child) for child in children] == [ended_at, ended_at]
            consumer.drain()
