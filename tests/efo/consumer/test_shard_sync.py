"""Shard sync: which leases are created, found missing and deleted, and the throughput of leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest
import trio

from efo import events
from efo.consumer.consumer import MAX_PROBES, Consumer
from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_sync import JITTER
from efo.errors import TransportError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, Lease, Position
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from efo.testing.faults import Refuse
from efo.testing.faults.script import When
from tests.workers import open_worker

STREAM = "orders"


@asynccontextmanager
async def open_reader(
    fake: FakeKinesis,
    store: MemoryLeaseStore,
    seen: list[events.Event],
    data: list[bytes],
    worker_id: str = "worker",
    **changes: object,
) -> AsyncIterator[Consumer]:
    """Run a worker that reads all shards while the context is open, and keeps their data in `data`."""

    async def read_shard(shard: ShardStream) -> None:
        async for batch in shard:
            data.extend(record.data for record in batch.records)
            shard.ack(batch)

    settings = ConsumerSettings(**changes)
    async with (
        open_worker(fake.kinesis(STREAM), store, settings, seen.append, worker_id=worker_id) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, read_shard)
        yield consumer
        consumer.drain()


async def test_the_shards_are_counted_when_their_states_may_have_changed(autojump_clock) -> None:
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with open_reader(fake, store, seen, data):
            await trio.sleep(20)
            fake.split(STREAM, fake.open_shards(STREAM)[0])
            await trio.sleep(60)
            counted = [event.counts for event in seen if isinstance(event, events.ShardsCounted)]
            assert {"waiting_parent": 0, "ready": 0, "consuming": 1, "finished": 0} in counted
            assert counted[-1] == {"waiting_parent": 0, "ready": 0, "consuming": 2, "finished": 1}
            await trio.sleep(60)
            later = [event.counts for event in seen if isinstance(event, events.ShardsCounted)]
            assert later == counted


async def test_shards_that_are_not_read_are_counted_as_ready_or_waiting(autojump_clock) -> None:
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        async with open_reader(fake, store, seen, data, max_leases=1) as consumer:
            await trio.sleep(5)
            parents = tuple(fake.open_shards(STREAM))
            await store.create(Lease("shardId-000000000002", Checkpoint.TRIM_HORIZON, parents=parents))
            await trio.sleep(20)
            assert consumer.status().counts == {"waiting_parent": 1, "ready": 1, "consuming": 1, "finished": 0}


class SlowTable(MemoryLeaseStore):
    """A table in which a write takes time. `created`: how often each lease was created, or found to exist."""

    def __init__(self) -> None:
        super().__init__()
        self.created: Counter[str] = Counter()

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists."""
        await trio.sleep(0.01)
        self.created[lease.key] += 1
        return await super().create(lease)


async def test_workers_that_start_together_create_the_leases_together(autojump_clock: trio.testing.MockClock) -> None:
    """Each of them would else write each lease, one after the other: of 10,000 shards and 200 workers, two millions."""
    store = SlowTable()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=400)
        async with AsyncExitStack() as stack:
            for number in range(8):
                await stack.enter_async_context(open_reader(fake, store, [], [], worker_id=f"worker-{number}"))
            await trio.sleep(2)
            assert len(store.rows()) == 400
            assert store.created.total() < 3 * 400  # 8 * 400 if each wrote them all


class KeptRows(MemoryLeaseStore):
    """A lease store. `created`: the leases as they were created, by their keys."""

    def __init__(self) -> None:
        super().__init__()
        self.created: dict[str, Lease] = {}

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists."""
        self.created[lease.key] = lease
        return await super().create(lease)


async def test_a_lease_has_the_time_of_its_creation_unless_it_continues_what_was_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What expires after that time is lost unread (rule R5). Of a child, its parent's reader knows."""
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        first, second = fake.open_shards(STREAM)
        children = fake.split(STREAM, first)
        store = KeptRows()
        await store.create(Lease(first, Checkpoint.SHARD_END))
        await trio.sleep(50)
        started = fake.clock()
        async with open_reader(fake, store, [], []):
            await trio.sleep(5)
        assert [store.created[child].unread_since for child in children] == [None, None]
        assert store.created[second].unread_since == pytest.approx(started, abs=2)


async def keys(store: MemoryLeaseStore) -> set[str]:
    return {lease.key for lease in await store.list()}


@pytest.mark.parametrize("hash_keys", ["in all rows", "missing in one row"])
@pytest.mark.scenario("G71")
async def test_a_hole_in_the_hash_keys_is_filled_before_the_next_regular_shard_sync(
    autojump_clock: trio.testing.MockClock, hash_keys: str
) -> None:
    """Lease rows of other programs may lack the hash keys, which are then read from the listing."""
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=3)
        first, second, _ = fake.open_shards(STREAM)
        if hash_keys == "missing in one row":
            await store.create(Lease(first, Checkpoint.TRIM_HORIZON))
        async with open_reader(fake, store, seen, data):
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
async def test_leases_of_finished_shards_are_deleted_when_nothing_depends_on_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        async with open_reader(fake, store, seen, data):
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
            await trio.sleep(740)  # with the longest jitter: a sync that sees the parent deleted, 600 s, another sync
            assert await keys(store) == set(fake.open_shards(STREAM))
            await trio.sleep(200)
            assert await keys(store) == set(fake.open_shards(STREAM))
    assert data == [b"1", b"2"]
    deleted = [e.shard_id for e in seen if isinstance(e, events.LeaseStoreCalled) and e.operation == "delete"]
    assert deleted == [parent, low, high]


async def test_leases_of_finished_shards_are_kept_without_lease_cleanup(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        async with open_reader(fake, store, seen, data, lease_cleanup=False):
            fake.split(STREAM, parent)
            await trio.sleep(800)
            assert parent in await keys(store)


@pytest.mark.scenario("G41")
async def test_a_worker_that_was_suspended_does_not_create_deleted_child_leases_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Another worker has finished the parent and its children meanwhile, and their leases are deleted."""
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        (parent,) = fake.open_shards(STREAM)
        async with open_reader(fake, store, seen, data) as consumer:
            await trio.sleep(1)
            consumer._coordinator.stop_acquiring()
            consumer._shard_sync._store = MemoryLeaseStore()  # so that its shard sync does not create them
            fake.split(STREAM, parent)
            await store.delete(parent)
            await trio.sleep(60)
            assert await keys(store) == set()
    assert [event.reason for event in seen if isinstance(event, events.LeaseLost)] == ["taken"]


@pytest.mark.parametrize("existing", [[], ["parent"]], ids=["no leases", "some leases"])
async def test_at_timestamp_ignores_shards_that_had_ended_by_then(
    autojump_clock: trio.testing.MockClock, existing: list[str]
) -> None:
    """Otherwise the children of a shard that was split days ago would be read from their beginning."""
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
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
        for _ in existing:  # a worker created it and crashed
            await store.create(Lease(parent, Checkpoint.AT_TIMESTAMP))
        async with open_reader(fake, store, seen, data, initial_position=Position.at_timestamp(start)):
            await trio.sleep(60)
    assert data == [b"wanted"] * 40
    assert grandparent not in await keys(store)


async def test_latest_of_a_lease_that_names_no_time_is_when_the_worker_started(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As in KCL's leases. Until such a lease expires, its owner may have crashed before it read a record (rule R4)."""
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put(STREAM, "key", b"before the start")
        await store.create(Lease(fake.open_shards(STREAM)[0], Checkpoint.LATEST, owner="crashed"))
        await trio.sleep(5)
        async with open_reader(fake, store, seen, data, initial_position=Position.latest()):
            await trio.sleep(3)
            fake.put(STREAM, "key", b"before the lease is taken")
            await trio.sleep(60)
    assert data == [b"before the lease is taken"]


class Hanging(MemoryLeaseStore):
    """Lists its leases `lists` times. Then `list` hangs. -1: it never hangs."""

    def __init__(self, lists: int) -> None:
        super().__init__()
        self.lists = lists

    async def list(self) -> Sequence[Lease]:
        if self.lists == 0:
            await trio.sleep_forever()
        self.lists -= 1
        return await super().list()


async def test_a_lease_store_that_hangs_fails_the_start(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("efo.consumer.shard_sync.CLEANUP_AFTER", 20.0)
    seen, data = list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        with pytest.raises(TransportError, match="within 10 s"):
            async with open_reader(fake, Hanging(0), seen, data):
                await trio.sleep_forever()


async def test_a_lease_store_that_hangs_later_is_reported_and_retried(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("efo.consumer.shard_sync.CLEANUP_AFTER", 20.0)
    store, seen, data = Hanging(-1), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with open_reader(fake, store, seen, data, lease_scan_seconds=1000.0):
            await trio.sleep(50)
            store.lists = 0
            await trio.sleep(60)
            store.lists = -1
            await trio.sleep(60)
    failures = [event for event in seen if isinstance(event, events.ShardSyncFailed)]
    # Its jitter decides whether one sync or two come within the minute in which the store hangs.
    assert {(failure.error_type, failure.detail) for failure in failures} == {
        ("transport", "Kinesis and the lease store did not list shards and leases within 10 s")
    }


async def test_a_listing_that_works_again_is_reported_after_those_that_failed(autojump_clock) -> None:
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        async with open_reader(fake, store, seen, data, shard_sync_seconds=10):
            await trio.sleep(25)
            rule = fake.faults.add(Refuse("InternalFailure", status=500), When(operation="ListShards", probability=1.0))
            await trio.sleep(40)
            fake.faults.remove(rule)
            await trio.sleep(20)
    syncs = [type(event) for event in seen if isinstance(event, events.ShardsListed | events.ShardSyncFailed)]
    assert (syncs[0], syncs[-1]) == (events.ShardsListed, events.ShardsListed)
    assert events.ShardSyncFailed in syncs
    assert {event.shards for event in seen if isinstance(event, events.ShardsListed)} == {2}


async def test_the_throughput_of_a_shard_is_saved_in_its_lease(autojump_clock: trio.testing.MockClock) -> None:
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with open_reader(fake, store, seen, data):
            for _ in range(120):
                fake.put(STREAM, "k", b"x" * 2000)
                await trio.sleep(0.5)
            (lease,) = await store.list()
            assert lease.throughput_kbps == pytest.approx(4.0, rel=0.15)


async def test_leases_are_balanced_by_throughput(autojump_clock: trio.testing.MockClock) -> None:
    """One of six shards has all the throughput."""
    store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
    options = {"balance": "throughput"}
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=6)
        async with open_reader(fake, store, seen, data, **options) as first:
            for _ in range(60):
                fake.put(STREAM, "k", b"x" * 2000)
                await trio.sleep(0.5)
            (busy,) = [lease.key for lease in await store.list() if lease.throughput_kbps]
            async with open_reader(fake, store, seen, data, worker_id="other", **options) as other:
                for _ in range(80):  # it takes one lease first, and the others after new measurements 30 s later
                    fake.put(STREAM, "k", b"x" * 2000)
                    await trio.sleep(0.5)
                assert set(first._coordinator.held) == {busy}
                assert len(other._coordinator.held) == 5


class TestDamagedLeases:
    LEASES = 1_000
    """Enough to be late if each waited for the one before; 3,000 take half a minute."""

    @pytest.mark.parametrize("name", ["shardId-9{:011}", "shardId-00000000000{}x"], ids=["newer", "older"])
    async def test_thousands_of_leases_without_a_shard_do_not_delay_the_shards(self, autojump_clock, name) -> None:
        """The newer ones look as if the listing was outdated, so that they cannot be finished; the others can.

        The names of the others contain no number: by a number, Kinesis would find a shard of the stream.
        """
        store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=4)
            fake.put_many(STREAM, [(f"key-{n}", b"%d" % n) for n in range(100)])
            for number in range(self.LEASES):
                await store.create(Lease(name.format(number), Checkpoint.TRIM_HORIZON))
            async with open_reader(fake, store, seen, data, failover_seconds=3):
                await trio.sleep(5)
                assert len(data) == 100
                fake.put_many(STREAM, [(f"key-{n}", b"%d" % n) for n in range(100)])
                await trio.sleep(5)
                assert len(data) == 200
                attempted = {event.shard_id for event in seen if isinstance(event, events.SubscribeAttempted)}
                assert len(attempted) < (4 + 2 * MAX_PROBES if "9" in name else 4 + self.LEASES)

    async def test_a_few_leases_without_a_shard_are_tried_and_finished(self, autojump_clock) -> None:
        store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM)
            fake.put(STREAM, "key", b"1")
            strays = {f"shardId-00000000000-{number}" for number in range(3)}
            for key in strays:
                await store.create(Lease(key, Checkpoint.TRIM_HORIZON))
            async with open_reader(fake, store, seen, data):
                await trio.sleep(60)
                assert data == [b"1"]
                assert not {lease.key for lease in await store.list() if not lease.is_finished} & strays

    @pytest.mark.parametrize("circle", [("a",), ("a", "b")])
    async def test_leases_that_wait_for_themselves_are_reported_once(self, autojump_clock, circle) -> None:
        store, seen, data = MemoryLeaseStore(), list[events.Event](), list[bytes]()
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM)
            fake.put(STREAM, "key", b"1")
            for key, parent in zip(circle, (*circle[1:], circle[0]), strict=True):
                await store.create(Lease(key, Checkpoint.TRIM_HORIZON, parents=(parent,)))
            async with open_reader(fake, store, seen, data):
                await trio.sleep(300)
                assert data == [b"1"]
        assert [event for event in seen if isinstance(event, events.ParentCycleFound)] == [
            events.ParentCycleFound(circle)
        ]


async def test_workers_that_start_together_do_not_list_the_shards_together(autojump_clock) -> None:
    store, data = MemoryLeaseStore(), list[bytes]()
    listed: dict[str, list[float]] = {"one": [], "two": []}

    class Times(list[events.Event]):
        def __init__(self, worker: str) -> None:
            self.worker = worker

        def append(self, event: events.Event) -> None:
            if isinstance(event, events.ShardsListed):
                listed[self.worker].append(trio.current_time())

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with (
            open_reader(fake, store, Times("one"), data, worker_id="one"),
            open_reader(fake, store, Times("two"), data, worker_id="two"),
        ):
            await trio.sleep(605)
    for times in listed.values():
        waits = [after - before for before, after in pairwise(times)]
        assert 10 <= len(waits) <= 14
        assert all(60 * (1 - JITTER) <= wait < 61 for wait in waits)
        assert max(waits) - min(waits) > 1
    together = [one for one in listed["one"][1:] if any(abs(one - two) < 0.01 for two in listed["two"])]
    assert together == []
