"""A lease store that refuses, or tells its calls: what a reading makes of it, and in which order it writes."""

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
from efo.model import SHARD_END, Checkpoint, Lease, Position, Shard
from efo.protocol.aggregation import Entry, aggregate
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"
SETTINGS = ConsumerSettings()
Clock = trio.testing.MockClock


class ToldStore(MemoryLeaseStore):
    """Notes every write, and refuses the first one of each operation in `refuse`."""

    def __init__(self, *refuse: str) -> None:
        super().__init__()
        self.writes: list[tuple[str, str, object]] = []
        self.refused: Counter[str] = Counter()
        self._refuse = set(refuse)

    def _note(self, operation: str, key: str, what: object = None) -> None:
        if operation in self._refuse:
            self._refuse.discard(operation)
            self.refused[operation] += 1
            raise LeaseStoreUnavailableError("the store is busy")
        self.writes.append((operation, key, what))

    async def create(self, lease: Lease) -> bool:
        self._note("create", lease.key)
        return await super().create(lease)

    async def release(self, lease: Lease) -> Lease:
        self._note("release", lease.key)
        return await super().release(lease)

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        self._note("end" if checkpoint == SHARD_END else "checkpoint", lease.key, checkpoint)
        return await super().checkpoint(lease, checkpoint)

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        self._note("save_children", lease.key, children)
        return await super().save_children(lease, children)


class Reader:
    """Keeps every record's data, by its shard."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self._more = trio.Event()

    async def __call__(self, shard: ShardStream) -> None:
        async for batch in shard:
            self.got += [record.data for record in batch.records]
            shard.ack(batch)
            self._more.set()
            self._more = trio.Event()

    async def reached(self, count: int) -> None:
        while len(self.got) < count:
            await self._more.wait()


async def read_through_a_split(store: MemoryLeaseStore, seen: list[events.Event]) -> tuple[Reader, str, list[str]]:
    """ShardReader a shard, its split, and a record of each child; then drain."""
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
    store = ToldStore()
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
async def test_a_store_that_refuses_once_ends_nothing(autojump_clock: Clock, operation: str) -> None:
    store = ToldStore()
    if operation == "create":
        # The first lease is created at the start, where a failure is the operator's to see: refuse a child's.
        real = store.create

        async def create(lease: Lease) -> bool:
            if lease.parents and not store.refused["create"]:
                store.refused["create"] += 1
                raise LeaseStoreUnavailableError("the store is busy")
            return await real(lease)

        store.create = create  # type: ignore[method-assign]
    else:
        store._refuse.add(operation)
    reader, _, _ = await read_through_a_split(store, [])
    assert sorted(reader.got) == [b"after"] * 8 + [b"before"]
    assert store.refused[operation] == 1
    assert {lease.owner for lease in await store.list() if not lease.is_finished} == {None}


class MuteStore(ToldStore):
    """Takes the end of a shard, and does not say so for half a minute; renewals find it out."""

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        row = await super().checkpoint(lease, checkpoint)
        if checkpoint == SHARD_END and trio.current_time() < 30.0:
            raise LeaseStoreUnavailableError("no answer")
        return row


async def test_a_shard_that_is_finished_without_our_knowledge_is_not_taken_back(autojump_clock: Clock) -> None:
    """A save of its progress, while its end is still being tried, would undo the end that children began on."""
    store = MuteStore()
    _, parent, _ = await read_through_a_split(store, [])
    saved = [op for op, key, _ in store.writes if key == parent and op in {"checkpoint", "end"}]
    assert saved.count("end") > 10
    assert set(saved[saved.index("end") :]) == {"end"}


class SlowStore(MemoryLeaseStore):
    """Takes seven seconds for its first save."""

    seconds = 7.0

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        seconds, self.seconds = self.seconds, 0.0
        await trio.sleep(seconds)
        return await super().checkpoint(lease, checkpoint)


async def test_what_is_acked_while_a_save_takes_long_is_saved_right_after_it(autojump_clock: Clock) -> None:
    """A crash repeats what was acked in the last interval: a store that was slow must not make it two."""
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
            for number in range(3):  # within the first interval, during the slow save, and long after it
                fake.put(STREAM, "k", b"%d" % number)
                await reader.reached(number + 1)
                await trio.sleep(8)
            consumer.drain()
    first, second, third = saved[:3]
    assert second == first  # the next, in the very moment in which the slow one is through
    assert third > first


@pytest.mark.scenario("G55")
async def test_a_lease_of_latest_means_the_same_to_who_comes_later(autojump_clock: Clock) -> None:
    store, reader = MemoryLeaseStore(), Reader()
    latest = replace(SETTINGS, initial_position=Position.latest())

    async def never_begin(_shard: ShardStream) -> None:
        await trio.sleep_forever()

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put(STREAM, "k", b"old")
        await trio.sleep(10)
        async with open_worker(fake.kinesis(STREAM), store, latest) as consumer:
            with trio.move_on_after(5):
                await consumer.run(never_begin)
        fake.put(STREAM, "k", b"while nobody read")
        await trio.sleep(60)
        async with (
            open_worker(fake.kinesis(STREAM), store, latest, worker_id="other") as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            await reader.reached(1)
            consumer.drain()
    assert reader.got == [b"while nobody read"]


@pytest.mark.scenario("G70")
async def test_a_checkpoint_within_an_aggregate_never_goes_back(autojump_clock: Clock) -> None:
    store = MemoryLeaseStore()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        shard, number = fake.put(STREAM, "outer", aggregate([Entry("k", b"%d" % n) for n in range(5)]))
        await store.create(Lease(shard, Checkpoint(number, 4)))
        for _ in range(3):
            reader = Reader()
            async with open_worker(fake.kinesis(STREAM), store, SETTINGS) as consumer:
                with trio.move_on_after(3):
                    await consumer.run(reader)
            assert reader.got == []
            (lease,) = await store.list()
            assert lease.checkpoint >= Checkpoint(number, 4)


async def test_a_listing_that_fails_later_is_told_and_tried_again(autojump_clock: Clock) -> None:
    seen: list[events.Event] = []

    class Failing:
        """The control plane, whose second listing is refused for good."""

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
        control = Failing(kinesis.control)
        async with open_worker(replace(kinesis, control=control), MemoryLeaseStore(), SETTINGS, seen.append) as it:
            with trio.move_on_after(200):
                await it.run(Reader())
    assert control.listings >= 3
    told = [event for event in seen if isinstance(event, events.ShardSyncFailed)]
    assert told == [events.ShardSyncFailed("service", "ValidationException: not today")]
