"""The leases that there are: created, found missing, measured, and deleted when they have served."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from efo import events
from efo.consumer.consumer import Consumer
from efo.consumer.shard_stream import ShardStream
from efo.errors import TransportError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import AT_TIMESTAMP, TRIM_HORIZON, Lease, Position
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"


@asynccontextmanager
async def reading(
    fake: FakeKinesis,
    store: MemoryLeaseStore,
    seen: list[events.Event],
    read: list[bytes],
    worker_id: str = "worker",
    **changes: object,
) -> AsyncIterator[Consumer]:
    """A worker that reads everything while the context lasts."""

    async def keep(shard: ShardStream) -> None:
        async for batch in shard:
            read.extend(record.data for record in batch.records)
            shard.ack(batch)

    settings = ConsumerSettings(**changes)
    async with (
        open_worker(fake.kinesis(STREAM), store, settings, seen.append, worker_id=worker_id) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, keep)
        yield consumer
        consumer.drain()


async def keys(store: MemoryLeaseStore) -> set[str]:
    return {lease.key for lease in await store.list()}


@pytest.mark.parametrize("rows", ["with", "without"])
@pytest.mark.scenario("G71")
async def test_a_hole_in_the_hash_keys_is_filled_long_before_the_next_listing(
    autojump_clock: trio.testing.MockClock, rows: str
) -> None:
    """G71; rows that others wrote may have no hash keys, so the listing tells them."""
    store, seen, read = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=3)
        first, second, _ = fake.open_shards(STREAM)
        if rows == "without":
            await store.create(Lease(first, TRIM_HORIZON))
        async with reading(fake, store, seen, read):
            await trio.sleep(20)
            assert not [event for event in seen if isinstance(event, events.HashRangeHoleFound)]
            await store.delete(second)
            await trio.sleep(12)
            assert second in await keys(store)
            (hole,) = [event for event in seen if isinstance(event, events.HashRangeHoleFound)]
            (range_,) = [lease.hash_key_range for lease in await store.list() if lease.key == second]
            assert (str(hole.start), str(hole.end)) == (range_.starting_hash_key, range_.ending_hash_key)
            await trio.sleep(200)
    assert len([event for event in seen if isinstance(event, events.HashRangeHoleFound)]) == 1


@pytest.mark.scenario("G41")
async def test_leases_of_finished_shards_are_deleted_when_they_have_served(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, seen, read = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        async with reading(fake, store, seen, read):
            fake.put(STREAM, "k", b"1")
            await trio.sleep(5)
            fake.split(STREAM, parent)
            await trio.sleep(5)
            low, high = fake.open_shards(STREAM)
            fake.merge(STREAM, low, high)
            fake.put(STREAM, "k", b"2")
            await trio.sleep(595)
            assert await keys(store) == {parent, low, high, *fake.open_shards(STREAM)}
            await trio.sleep(120)
            assert await keys(store) == {low, high, *fake.open_shards(STREAM)}
            await trio.sleep(660)
            assert await keys(store) == set(fake.open_shards(STREAM))
            await trio.sleep(200)
            assert await keys(store) == set(fake.open_shards(STREAM))
    assert read == [b"1", b"2"]
    deleted = [e.shard_id for e in seen if isinstance(e, events.LeaseStoreCalled) and e.operation == "delete"]
    assert deleted == [parent, low, high]


async def test_they_are_kept_if_that_is_wanted(autojump_clock: trio.testing.MockClock) -> None:
    store, seen, read = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        async with reading(fake, store, seen, read, lease_cleanup_after=None):
            fake.split(STREAM, parent)
            await trio.sleep(800)
            assert parent in await keys(store)


@pytest.mark.scenario("G41")
async def test_one_who_slept_through_the_lives_of_the_children_does_not_create_them_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its parent's lease was finished by another and is gone, as are those of the children."""
    store, seen, read = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        async with reading(fake, store, seen, read) as consumer:
            await trio.sleep(1)
            consumer.keeper.stop_acquiring()
            consumer._shard_sync._store = MemoryLeaseStore()  # whose own listing shall not create them either
            fake.split(STREAM, parent)
            await store.delete(parent)
            await trio.sleep(60)
            assert await keys(store) == set()
    assert [event.reason for event in seen if isinstance(event, events.LeaseLost)] == ["taken"]


@pytest.mark.parametrize("before", [[], ["parent"]], ids=["new", "half made"])
async def test_a_reading_that_begins_at_a_time_leaves_out_what_had_ended_by_then(
    autojump_clock: trio.testing.MockClock, before: list[str]
) -> None:
    """Or the children of a shard that was split days ago would be read from their beginnings."""
    store, seen, read = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        grandparent, _ = fake.open_shards(STREAM)
        fake.put_many(STREAM, [(f"{key}", b"of the old shards") for key in range(20)])
        await trio.sleep(100)
        parent, _ = fake.split(STREAM, grandparent)
        fake.put_many(STREAM, [(f"{key}", b"too old") for key in range(20)])
        await trio.sleep(3600)
        start = fake.clock()
        fake.put_many(STREAM, [(f"{key}", b"wanted") for key in range(20)])
        fake.split(STREAM, parent)
        fake.put_many(STREAM, [(f"{key}", b"wanted") for key in range(20)])
        await trio.sleep(60)
        for _ in before:  # by one who then crashed
            await store.create(Lease(parent, AT_TIMESTAMP))
        async with reading(fake, store, seen, read, initial_position=Position.at_timestamp(start)):
            await trio.sleep(60)
    assert read == [b"wanted"] * 40
    assert grandparent not in await keys(store)


class Hanging(MemoryLeaseStore):
    """Lists its leases so many times, and then no more."""

    def __init__(self, lists: int) -> None:
        super().__init__()
        self.lists = lists

    async def list(self) -> Sequence[Lease]:
        if self.lists == 0:
            await trio.sleep_forever()
        self.lists -= 1
        return await super().list()


async def test_a_look_that_never_ends_fails_the_start(autojump_clock: trio.testing.MockClock) -> None:
    seen, read = list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        with pytest.raises(TransportError, match="within 10 s"):
            async with reading(fake, Hanging(0), seen, read, lease_cleanup_after=20.0):
                await trio.sleep_forever()


async def test_later_it_is_told_and_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    store, seen, read = Hanging(-1), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with reading(fake, store, seen, read, lease_cleanup_after=20.0, lease_scan_interval=1000.0):
            await trio.sleep(50)
            store.lists = 0
            await trio.sleep(60)
            store.lists = -1
            await trio.sleep(60)
    failures = [event for event in seen if isinstance(event, events.ShardSyncFailed)]
    assert [(failure.error_type, failure.detail) for failure in failures] == [
        ("transport", "Kinesis and the lease store did not list shards and leases within 10 s")
    ]


async def test_what_a_shard_brings_is_in_its_lease(autojump_clock: trio.testing.MockClock) -> None:
    store, seen, read = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with reading(fake, store, seen, read):
            for _ in range(120):
                fake.put(STREAM, "k", b"x" * 2000)
                await trio.sleep(0.5)
            (lease,) = await store.list()
            assert lease.throughput_kbps == pytest.approx(4.0, rel=0.15)


async def test_leases_are_weighed_by_what_their_shards_bring(autojump_clock: trio.testing.MockClock) -> None:
    """One shard brings all there is, and weighs more than the others together."""
    store, seen, read = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    weighed = {"balance_by_throughput": True}
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=6)
        async with reading(fake, store, seen, read, **weighed) as first:
            for _ in range(60):
                fake.put(STREAM, "k", b"x" * 2000)
                await trio.sleep(0.5)
            (busy,) = [lease.key for lease in await store.list() if lease.throughput_kbps]
            async with reading(fake, store, seen, read, worker_id="other", **weighed) as other:
                for _ in range(80):  # one lease to be seen, and after half a minute, measured anew, the rest
                    fake.put(STREAM, "k", b"x" * 2000)
                    await trio.sleep(0.5)
                assert set(first.keeper.held) == {busy}
                assert len(other.keeper.held) == 5
