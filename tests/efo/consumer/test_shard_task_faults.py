"""A shard task whose lease store fails, is slow or loses responses, and the order in which the task writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio

from efo import events
from efo.consumer.shard_stream import ShardStream
from efo.errors import LeaseStoreUnavailableError, ServiceError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.writes import LeaseWrite, SettleWrite, write_each
from efo.model import Checkpoint, Lease, Position, Shard
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"
pytestmark = pytest.mark.usefixtures("read_mode")
SETTINGS = ConsumerSettings()
Clock = trio.testing.MockClock


class FaultyStore(MemoryLeaseStore):
    """Records every write, and rejects the first one of each operation in `failing`."""

    def __init__(self, *failing: str) -> None:
        super().__init__()
        self.writes: list[tuple[str, str, object]] = []
        self.rejected: Counter[str] = Counter()
        self._failing = set(failing)

    def _record(self, operation: str, key: str, value: object = None) -> None:
        if operation in self._failing:
            self._failing.discard(operation)
            self.rejected[operation] += 1
            raise LeaseStoreUnavailableError("the store is busy")
        self.writes.append((operation, key, value))

    async def create(self, lease: Lease) -> bool:
        self._record("create", lease.key)
        return await super().create(lease)

    async def release(self, lease: Lease) -> Lease:
        self._record("release", lease.key)
        return await super().release(lease)

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
        self._record("end" if checkpoint == Checkpoint.SHARD_END else "checkpoint", lease.key, checkpoint)
        return await super().checkpoint(lease, checkpoint, throughput_kbps)

    async def write_many(self, writes: Sequence[LeaseWrite], settle: SettleWrite) -> None:
        await write_each(self, writes, settle)

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        self._record("save_children", lease.key, children)
        return await super().save_children(lease, children)


class Reader:
    """Acks all batches and keeps the data of their records. `reached` waits for a number of records."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._changed = trio.Event()

    async def __call__(self, shard: ShardStream) -> None:
        async for batch in shard:
            self.received += [record.data for record in batch.records]
            shard.ack(batch)
            self._changed.set()
            self._changed = trio.Event()

    async def reached(self, count: int) -> None:
        while len(self.received) < count:
            await self._changed.wait()


async def read_through_a_split(store: MemoryLeaseStore, seen: list[events.Event]) -> tuple[Reader, str, list[str]]:
    """Read a shard, split it, read its children, and drain. Return the reader, the parent and the children."""
    reader = Reader()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        fake.put(STREAM, "k", b"before")
        async with (
            open_worker(fake.kinesis(STREAM), store, SETTINGS, seen.append) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            await reader.reached(1)
            children = list(fake.split(STREAM, parent))
            for n in range(8):
                fake.put(STREAM, f"k{n}", b"after")
            await reader.reached(9)
            consumer.drain()
    return reader, parent, children


@pytest.mark.scenario("G37", "G64")
async def test_the_end_of_a_shard_is_written_in_the_order_of_rule_r2(autojump_clock: Clock) -> None:
    store = FaultyStore()
    _, parent, children = await read_through_a_split(store, [])
    relevant = [(op, key) for op, key, _ in store.writes if op in {"create", "save_children", "end"}]
    assert relevant == [
        ("create", parent),
        *(("create", child) for child in children),
        ("save_children", parent),
        ("end", parent),
    ]
    assert ("save_children", parent, tuple(children)) in store.writes


@pytest.mark.parametrize("operation", ["create", "save_children", "end", "release", "checkpoint"])
@pytest.mark.scenario("G65")
async def test_a_single_failed_write_is_retried(autojump_clock: Clock, operation: str) -> None:
    store = FaultyStore()
    if operation == "create":
        # A failure to create the first lease ends the start. So reject the lease of a child.
        real = store.create

        async def create(lease: Lease) -> bool:
            if lease.parents and not store.rejected["create"]:
                store.rejected["create"] += 1
                raise LeaseStoreUnavailableError("the store is busy")
            return await real(lease)

        store.create = create  # type: ignore[method-assign]
    else:
        store._failing.add(operation)
    reader, _, _ = await read_through_a_split(store, [])
    assert sorted(reader.received) == [b"after"] * 8 + [b"before"]
    assert store.rejected[operation] == 1
    assert {lease.owner for lease in await store.list() if not lease.is_finished} == {None}


class LostResponseStore(FaultyStore):
    """Saves SHARD_END, but loses the responses during the first 30 seconds. Renewals read the saved lease row."""

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
        row = await super().checkpoint(lease, checkpoint, throughput_kbps)
        if checkpoint == Checkpoint.SHARD_END and trio.current_time() < 30.0:
            raise LeaseStoreUnavailableError("no response")
        return row


async def test_a_saved_shard_end_whose_response_was_lost_is_never_overwritten(autojump_clock: Clock) -> None:
    """The children may have started. A periodic save of the progress must not undo the end of their parent."""
    store = LostResponseStore()
    _, parent, _ = await read_through_a_split(store, [])
    saved = [op for op, key, _ in store.writes if key == parent and op in {"checkpoint", "end"}]
    assert saved.count("end") > 10
    assert set(saved[saved.index("end") :]) == {"end"}


class SlowStore(MemoryLeaseStore):
    """Its first checkpoint takes five seconds."""

    seconds = 5.0

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
        seconds, self.seconds = self.seconds, 0.0
        await trio.sleep(seconds)
        return await super().checkpoint(lease, checkpoint, throughput_kbps)


async def test_acks_during_a_slow_save_are_saved_directly_after_it(autojump_clock: Clock) -> None:
    """A crash repeats the acks of one checkpoint interval, also when the store is slow."""
    store, reader, saved = SlowStore(), Reader(), []

    def observe(event: events.Event) -> None:
        if isinstance(event, events.CheckpointSaved):
            saved.append(round(trio.current_time() - start, 1))

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with (
            open_worker(fake.kinesis(STREAM), store, SETTINGS, observe) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            start = trio.current_time()
            for number in range(3):  # put in the first interval, during the slow save, and long after it
                fake.put(STREAM, "k", b"%d" % number)
                await reader.reached(number + 1)
                await trio.sleep(8)
            consumer.drain()
    first, second, third = saved[:3]
    assert second == first  # the second save starts when the slow one ends
    assert third > first


@pytest.mark.scenario("G55")
async def test_latest_keeps_its_time_for_the_next_worker(autojump_clock: Clock) -> None:
    store, reader = MemoryLeaseStore(), Reader()
    latest = replace(SETTINGS, initial_position=Position.latest())

    async def never_iterate(_shard: ShardStream) -> None:
        await trio.sleep_forever()

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put(STREAM, "k", b"old")
        await trio.sleep(10)
        async with open_worker(fake.kinesis(STREAM), store, latest) as consumer:
            with trio.move_on_after(5):
                await consumer.run(never_iterate)
        fake.put(STREAM, "k", b"between the workers")
        await trio.sleep(60)
        async with (
            open_worker(fake.kinesis(STREAM), store, latest, worker_id="other") as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            await reader.reached(1)
            consumer.drain()
    assert reader.received == [b"between the workers"]


@pytest.mark.scenario("G70")
async def test_a_checkpoint_within_an_aggregate_never_moves_back(autojump_clock: Clock) -> None:
    store = MemoryLeaseStore()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        shard, number = fake.put(STREAM, "outer", aggregate([AggregateEntry("k", b"%d" % n) for n in range(5)]))
        await store.create(Lease(shard, Checkpoint(number, 4)))
        for _ in range(3):
            reader = Reader()
            async with open_worker(fake.kinesis(STREAM), store, SETTINGS) as consumer:
                with trio.move_on_after(3):
                    await consumer.run(reader)
            assert reader.received == []
            (lease,) = await store.list()
            assert lease.checkpoint >= Checkpoint(number, 4)


async def test_a_failed_shard_sync_after_the_start_is_reported_and_retried(autojump_clock: Clock) -> None:
    seen: list[events.Event] = []

    class Failing:
        """A control plane that rejects the second ListShards with an error that is not retryable."""

        def __init__(self, control: Any) -> None:
            self._control = control
            self.listings = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._control, name)

        async def list_shards(self) -> Sequence[Shard]:
            self.listings += 1
            if self.listings == 2:
                raise ServiceError("ValidationException", "not today")
            return await self._control.list_shards()

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        kinesis = fake.kinesis(STREAM)
        control = Failing(kinesis.control_plane)
        async with open_worker(
            replace(kinesis, control_plane=control), MemoryLeaseStore(), SETTINGS, seen.append
        ) as consumer:
            with trio.move_on_after(200):
                await consumer.run(Reader())
    assert control.listings >= 3
    failures = [event for event in seen if isinstance(event, events.ShardSyncFailed)]
    assert failures == [events.ShardSyncFailed("service", "ValidationException: not today")]
