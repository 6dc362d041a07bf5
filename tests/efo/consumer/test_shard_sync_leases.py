"""Which calls a shard sync makes, when, and which leases it creates and deletes: with a stream and a table that record
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import pytest
import trio

from efo import events
from efo.consumer import shard_sync
from efo.consumer.shard_sync import AUDITS, CLEANUP_AFTER, LISTING_LAG, ShardSync
from efo.errors import AccessDeniedError, LeaseStoreUnavailableError, ServiceError, TransportError
from efo.exception_groups import collapse_groups
from efo.kinesis.identity import StreamIdentity
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.writes import MAX_CONCURRENT_WRITES
from efo.model import Checkpoint, HashKeyRange, Lease, Position, Shard, StreamDescription
from efo.settings import ConsumerSettings

WALL = 1_800_000_000.0
KEYS = HashKeyRange("0", str(2**128 - 1))
LOW, HIGH = HashKeyRange("0", str(2**127 - 1)), HashKeyRange(str(2**127), str(2**128 - 1))


def shard(name: str, keys: HashKeyRange = KEYS, parents: Sequence[str] = (), *, is_open: bool = True) -> Shard:
    first, second = [*parents, None, None][:2]
    return Shard(name, keys, "100", None if is_open else "900", first, second)


class Store(MemoryLeaseStore):
    """A lease table. `calls`: its writes with their times. `failing`: what listing it raises."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, float]] = []
        self.created: dict[str, Lease] = {}
        self.failing: list[Exception] = []
        self.lists = 0

    async def create(self, lease: Lease) -> bool:
        self.calls.append(("create", lease.key, trio.current_time()))
        await trio.sleep(1)
        self.created[lease.key] = lease
        return await super().create(lease)

    async def delete(self, key: str) -> None:
        self.calls.append(("delete", key, trio.current_time()))
        await super().delete(key)

    async def list(self) -> Sequence[Lease]:
        self.lists += 1
        if self.failing:
            raise self.failing.pop(0)
        return await super().list()


class World:
    """A shard sync of a stream with `shards`. `listed_at`: when they were listed. `failing`: what listing them raises.

    `described`: what DescribeStreamSummary returns. `opened_since`: the times for which ListShards was asked.
    """

    def __init__(self, *shards: Shard, random: float = 0.0, has_service_time: bool = True, **settings) -> None:
        self.shards = shards
        self.listed_at: list[float] = []
        self.failing: list[Exception] = []
        self.seconds = 0.0
        self.opened_since: list[float] = []
        self.open_shards: Sequence[str] = ()
        self.described = StreamDescription("s", "arn", "ACTIVE", 48, created_at=WALL - 999)
        self.store = Store()
        self.seen: list[events.Event] = []
        self.advice: list[object] = []
        self.wakes = 0
        self.leases = {"all": Lease("all", Checkpoint("5"), hash_key_range=KEYS)}  # so that there is no hole
        self.coordinator = SimpleNamespace(leases=self.leases, scans_begun=7, wake=self._wake, stream_created_at=None)
        control = SimpleNamespace(
            list_shards=self._list,
            shards_open_at=self._open_at,
            describe_stream=self._describe,
            get_shard_iterator=self._refuse,
        )
        kinesis = SimpleNamespace(
            stream="s",
            control_plane=control,
            clock=lambda: WALL - 50,
            service_time=(lambda: WALL) if has_service_time else None,
        )
        self.identity = StreamIdentity(control, trio.current_time())
        self.sync = ShardSync(
            kinesis,
            self.store,
            ConsumerSettings(**settings),
            self.coordinator,
            self.seen.append,
            lambda: random,
            self.identity,
            SimpleNamespace(shards_listed=lambda *arguments: self.advice.append(arguments)),
        )

    def _wake(self) -> None:
        self.wakes += 1

    async def _list(self) -> Sequence[Shard]:
        self.listed_at.append(trio.current_time())
        await trio.sleep(self.seconds)
        if self.failing:
            raise self.failing.pop(0)
        return self.shards

    async def _open_at(self, at: float) -> Sequence[str]:
        self.opened_since.append(at)
        await trio.lowlevel.checkpoint()
        return self.open_shards

    async def _describe(self) -> StreamDescription:
        await trio.lowlevel.checkpoint()
        return self.described

    async def run(self, seconds: float = 20.0) -> None:
        """Start it, and let it run for so many seconds after that."""
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                await nursery.start(self.sync.run)
                await trio.sleep(seconds)
                nursery.cancel_scope.cancel()

    @staticmethod
    async def _refuse(*_arguments: object) -> None:
        await trio.lowlevel.checkpoint()
        raise AccessDeniedError("AccessDeniedException", "no")

    def reported(self, kind: type) -> list:
        return [event for event in self.seen if isinstance(event, kind)]

    def writes(self, operation: str) -> list[tuple[str, float]]:
        return [(key, at) for name, key, at in self.store.calls if name == operation]


# --- when it lists -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("random", "interval"), [(0.0, 40.0), (1.0, 30.0)])
async def test_the_shards_are_listed_at_the_interval_less_the_jitter(autojump_clock, random, interval):
    world = World(random=random, shard_sync_seconds=40.0)
    await world.run(3 * interval + 1)
    assert world.listed_at == [n * interval for n in range(4)]
    assert world.reported(events.ShardsListed) == [events.ShardsListed(0)] * 4


async def test_the_first_sync_is_told_to_those_that_wait_for_it(autojump_clock):
    world = World(shard("s-0"), shard_sync_seconds=40.0)
    assert (world.sync.initial, world.sync.synced_after, world.sync.shards) == (None, inf, ())
    await world.run()
    assert (world.sync.initial, world.sync.synced_after, world.wakes) == (Position.trim_horizon(), 7, 1)
    assert world.sync.shards == world.shards
    assert [*world.sync.listed] == ["s-0"]
    (advice,) = world.advice
    assert advice[:1] == ("s",)
    assert world.reported(events.StreamIdentified) == [events.StreamIdentified(WALL - 999, 48)]
    assert world.coordinator.stream_created_at == WALL - 999


async def test_what_the_first_sync_tells_is_told_once(autojump_clock):
    world = World(shard("s-0"), shard_sync_seconds=10.0)
    await world.run(35)
    assert len(world.listed_at) == 4
    assert (len(world.advice), len(world.reported(events.StreamIdentified)), world.wakes) == (1, 1, 4)


@pytest.mark.parametrize("has_service_time", [True, False])
async def test_latest_is_the_time_of_the_first_listing_by_the_clock_of_the_service(autojump_clock, has_service_time):
    now = WALL if has_service_time else WALL - 50
    world = World(initial_position="LATEST", shard_sync_seconds=5.0, has_service_time=has_service_time)
    await world.run()
    assert world.sync.initial == Position.at_timestamp(now)
    assert world.sync.pinned(Position.latest()) == Position.at_timestamp(now)
    assert world.sync.pinned(Position.trim_horizon()) == Position.trim_horizon()


async def test_a_stream_that_may_not_be_described_has_no_time(autojump_clock):
    world = World(shard("s-0"))
    world.identity._control_plane.describe_stream = world._refuse
    await world.run()
    assert world.reported(events.StreamIdentified) == [events.StreamIdentified(None, None)]
    assert world.store.created["s-0"].stream_created_at is None


# --- when it fails -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ServiceError("InternalFailure", "no"), TransportError("cut")])
async def test_an_error_of_the_service_at_the_start_is_raised_and_later_reported(autojump_clock, error):
    world = World(shard_sync_seconds=10.0)
    world.failing = [error]
    with pytest.raises(type(error)):
        await world.run()
    assert world.seen == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.run, 25.0)
        await trio.sleep(1)
        world.failing = [error]
    assert [event for event in world.seen if not isinstance(event, events.StreamIdentified)] == [
        events.ShardsListed(0),
        events.ShardSyncFailed(error.error_type, str(error)),
        events.ShardsListed(0),
    ]
    assert world.listed_at == [0.0, 0.0, 10.0, 20.0]


async def test_at_the_start_a_lease_store_is_waited_for_with_growing_pauses(autojump_clock):
    world = World(random=1.0)
    world.store.failing = [LeaseStoreUnavailableError("busy")] * 3
    await world.run(0)
    assert world.listed_at == [0.0, 1.0, 3.0, 7.0]
    assert [type(event) for event in world.seen if not isinstance(event, events.StreamIdentified)] == [
        events.ShardSyncFailed
    ] * 3 + [events.ShardsListed]


@pytest.mark.parametrize(("cleanup", "limit"), [(True, CLEANUP_AFTER / 2), (False, inf)])
async def test_a_sync_may_take_half_of_the_time_after_which_leases_are_deleted(autojump_clock, cleanup, limit):
    world = World(lease_cleanup=cleanup)
    world.seconds = 1000.0
    if limit == inf:
        await world.run()
        assert trio.current_time() == 1020.0
        return
    with pytest.raises(TransportError, match="did not list shards and leases within 300 s"):
        await world.run()
    assert trio.current_time() == limit == 300.0


@pytest.mark.parametrize(("cleanup", "lag"), [(True, CLEANUP_AFTER / 2), (False, LISTING_LAG)])
async def test_how_late_a_listing_may_be(autojump_clock, monkeypatch, cleanup, lag):
    monkeypatch.setattr(shard_sync, "LISTING_LAG", LISTING_LAG + 1)
    assert World(lease_cleanup=cleanup).sync._recreation._listing_lag == (lag if cleanup else lag + 1)
    assert LISTING_LAG == 300.0


# --- which leases it creates -------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "latest_at"), [("TRIM_HORIZON", None), ("LATEST", WALL)])
async def test_a_new_lease_has_its_stream_and_its_times(autojump_clock, position, latest_at):
    world = World(shard("s-0"), initial_position=position)
    await world.run()
    assert world.store.created == {
        "s-0": Lease(
            "s-0",
            Checkpoint(position),
            hash_key_range=KEYS,
            latest_at=latest_at,
            unread_since=WALL,
            stream_created_at=WALL - 999,
        )
    }


async def test_leases_are_created_at_the_same_time(autojump_clock):
    world = World(shard("s-0", LOW), shard("s-1", HIGH))
    await world.run()
    assert sorted(world.writes("create")) == [("s-0", 0.0), ("s-1", 0.0)]


async def test_parents_get_leases_before_children_and_what_continues_others_has_no_time(autojump_clock):
    """Of two parents of a merge, one is finished and the other does not exist any more."""
    world = World(shard("s-0", LOW, is_open=False), shard("s-2", KEYS, ["s-0", "s-1"]))
    await MemoryLeaseStore.create(world.store, Lease("s-0", Checkpoint.SHARD_END, hash_key_range=LOW))
    await world.run()
    assert world.writes("create") == [("s-1", 0.0), ("s-2", 1.0)]
    assert [(lease.checkpoint, lease.unread_since) for lease in world.store.created.values()] == [
        (Checkpoint.SHARD_END, None),
        (Checkpoint.TRIM_HORIZON, None),
    ]


@pytest.mark.parametrize(("more", "first"), [(0, 0), (2, 6)])
async def test_of_many_leases_a_worker_begins_anywhere(autojump_clock, more, first):
    count = MAX_CONCURRENT_WRITES + more
    world = World(*(shard(f"s-{n:03}") for n in range(count)), random=0.5 if more == 0 else 6.5 / count)
    await world.run()
    at = dict(world.writes("create"))
    ids = [f"s-{n:03}" for n in range(count)]
    order = ids[first:] + ids[:first]
    assert [at[key] for key in order] == [0.0] * MAX_CONCURRENT_WRITES + [1.0] * more
    assert world.store.lists == 1


async def test_when_another_worker_has_created_a_lease_the_table_is_read_again(autojump_clock):
    count = 2 * MAX_CONCURRENT_WRITES
    world = World(*(shard(f"s-{n:03}") for n in range(count)))
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def other() -> None:
            await trio.sleep(0.5)
            for n in (0, *range(MAX_CONCURRENT_WRITES, count)):
                await MemoryLeaseStore.create(world.store, Lease(f"s-{n:03}", Checkpoint.TRIM_HORIZON))

        await world.run()
    assert len(world.writes("create")) == MAX_CONCURRENT_WRITES
    assert world.store.lists == 2
    assert len(world.store.rows()) == count


# --- AT_TIMESTAMP ------------------------------------------------------------------------------------------

PARENT = shard("s-0", is_open=False)
CHILD = shard("s-1", KEYS, ["s-0"])


@pytest.mark.parametrize(
    ("at", "leases", "asked", "created"),
    [
        (WALL - 100, [], [WALL - 105], ["s-1"]),
        (WALL + 100, [], [WALL - 5], ["s-1"]),  # a time in the future, by the error of a clock
        (WALL - 100, [Lease("s-0", Checkpoint.AT_TIMESTAMP)], [WALL - 105], []),
        (WALL - 100, [Lease("s-9", Checkpoint("7"))], [], ["s-0"]),
        (WALL - 100, [Lease("s-8", Checkpoint.AT_TIMESTAMP), Lease("s-9", Checkpoint("7"))], [], ["s-0"]),
    ],
)
async def test_shards_that_ended_before_a_time_are_not_read_as_long_as_nothing_was(
    autojump_clock, at, leases, asked, created
):
    world = World(PARENT, CHILD, initial_position=Position.at_timestamp(at))
    world.open_shards = ["s-1"]
    for lease in leases:
        await MemoryLeaseStore.create(world.store, lease)
    await world.run()
    assert world.opened_since == asked
    assert sorted(world.store.created) == created


async def test_shards_whose_start_the_application_chooses_are_all_listed(autojump_clock):
    position = Position.at_timestamp(WALL - 100)
    world = World(PARENT, CHILD, initial_position=position, start_at=lambda _lease: position)
    await world.run()
    assert (world.opened_since, sorted(world.store.created)) == ([], ["s-0"])


# --- which leases it deletes -------------------------------------------------------------------------------


async def test_a_lease_is_deleted_when_nothing_has_depended_on_it_for_long_enough(autojump_clock):
    world = World(shard("s-1", KEYS), shard_sync_seconds=100.0)
    await MemoryLeaseStore.create(world.store, Lease("s-0", Checkpoint.SHARD_END, children=("s-1",)))
    await MemoryLeaseStore.create(world.store, Lease("s-1", Checkpoint("5"), parents=("s-0",)))
    await world.run(CLEANUP_AFTER + 50)
    assert world.writes("delete") == [("s-0", CLEANUP_AFTER)]
    deleted = [event for event in world.reported(events.LeaseStoreCalled) if event.operation == "delete"]
    assert [event.shard_id for event in deleted] == ["s-0"]
    assert CLEANUP_AFTER == 600.0


# --- holes, circles, and what is known of a shard ----------------------------------------------------------


@pytest.mark.parametrize(
    ("leases", "found"),
    [
        ([Lease("s-0", Checkpoint("5"), hash_key_range=LOW)], True),
        (
            [Lease("s-0", Checkpoint("5"), hash_key_range=LOW), Lease("s-1", Checkpoint("5"), hash_key_range=HIGH)],
            False,
        ),
        (  # what is finished covers nothing
            [
                Lease("s-0", Checkpoint("5"), hash_key_range=LOW),
                Lease("s-1", Checkpoint.SHARD_END, hash_key_range=HIGH),
            ],
            True,
        ),
        ([Lease("s-0", Checkpoint("5"), hash_key_range=LOW), Lease("s-9", Checkpoint("5"))], False),  # unknown
    ],
)
async def test_the_shards_are_listed_at_once_when_no_lease_covers_some_hash_keys(autojump_clock, leases, found):
    world = World(shard("s-0", LOW), shard("s-1", HIGH), shard_sync_seconds=100.0)
    world.leases.clear()
    world.leases |= {lease.key: lease for lease in leases}
    await world.run(90)
    holes = world.reported(events.HashRangeHoleFound)
    if not found:
        assert (holes, len(world.listed_at)) == ([], 1)
        return
    assert holes[0] == events.HashRangeHoleFound(2**127, 2**128 - 1)
    assert len(world.listed_at) > 1
    assert (world.listed_at[1] - 1) % (100.0 / AUDITS) == 0  # the first listing took a second: it created leases


async def test_a_circle_of_parents_is_reported_once_until_it_is_gone(autojump_clock):
    world = World(shard_sync_seconds=10.0)
    names = [f"s-{n:02}" for n in range(12)]
    for key, parent in zip(names, (*names[1:], names[0]), strict=True):
        await MemoryLeaseStore.create(world.store, Lease(key, Checkpoint("5"), parents=(parent,)))
    async with trio.open_nursery() as nursery:
        await nursery.start(world.sync.run)
        await trio.sleep(25)
        assert world.reported(events.ParentCycleFound) == [events.ParentCycleFound(tuple(names[:10]))]
        await MemoryLeaseStore.delete(world.store, names[0])
        await trio.sleep(10)
        await MemoryLeaseStore.create(world.store, Lease(names[0], Checkpoint("5"), parents=(names[1],)))
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert len(world.reported(events.ParentCycleFound)) == 2


async def test_what_is_known_of_a_shard_is_from_its_lease_or_else_the_listing(autojump_clock):
    world = World(PARENT, shard("s-1", LOW, ["s-0"]))
    await world.run()
    sync = world.sync
    assert [sync.is_closed(name) for name in ("s-0", "s-1", "s-9")] == [True, False, False]
    assert sync.range_of(Lease("s-1", Checkpoint("5"))) == LOW
    assert sync.range_of(Lease("s-1", Checkpoint("5"), hash_key_range=HIGH)) == HIGH
    assert sync.range_of(Lease("s-9", Checkpoint("5"))) is None


@pytest.mark.parametrize("distribution", [None, "AUTO"])
async def test_a_shard_has_the_ranges_of_its_ancestors_unless_the_stream_distributes_records_itself(
    autojump_clock, distribution
):
    world = World(PARENT, shard("s-1", LOW, ["s-0"]))
    child = Lease("s-1", Checkpoint("5"), parents=("s-0",))
    world.described = replace(world.described, distribution=distribution)
    await world.run()
    assert world.sync.ancestors_of(child) == ([] if distribution == "AUTO" else [KEYS])
    world.identity.description = None
    assert world.sync.ancestors_of(child) == [KEYS]
