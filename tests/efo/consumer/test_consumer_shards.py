"""Which shards a consumer reads, isolates and gives up, and what it says of them: the sources of the shards are the
tests'."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from efo import events
from efo.consumer.consumer import Consumer
from efo.consumer.ending import CLOSED, TWO_READERS
from efo.errors import (
    AccessDeniedError,
    ConfigurationError,
    EfoError,
    IsolateShardError,
    LeaseStoreUnavailableError,
    ResourceNotFoundError,
    ShardNotReadError,
)
from efo.exception_groups import collapse_groups
from efo.health import IsolatedShard
from efo.kinesis.identity import StreamIdentity
from efo.kinesis.shard_source import ShardEnd
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, ChildShard, HashKeyRange, Lease, Position, Shard, StreamDescription
from efo.settings import ConsumerSettings
from tests.efo.consumer.no_readers import NO_READERS
from tests.efo.consumer.test_shard_stream_events import WALL, Source, event

KEYS = HashKeyRange("0", str(2**128 - 1))
DENIED = AccessDeniedError("AccessDeniedException", "no permission")
GONE = ResourceNotFoundError("ResourceNotFoundException", "no such stream")


async def read(shard) -> None:
    """Ack each batch."""
    async for batch in shard:
        shard.ack(batch)


async def hold(shard) -> None:
    """Ack nothing."""
    async for _ in shard:
        pass


def shard(name: str, *parents: str, is_open: bool = True) -> Shard:
    first, second = [*parents, None, None][:2]
    return Shard(name, KEYS, "100", None if is_open else "900", first, second)


class Store(MemoryLeaseStore):
    """A lease table that is unavailable while `is_down`."""

    is_down = False

    async def release(self, lease: Lease) -> Lease:
        if self.is_down:
            raise LeaseStoreUnavailableError("down")
        return await super().release(lease)


class Advice:
    """Takes the advice of a consumer. `unacked`: what it was told of at each end of a run."""

    def __init__(self) -> None:
        self.given = ("an advice",)
        self.told: list[dict[str, int]] = []

    def unacked(self, records: dict[str, int]) -> None:
        self.told.append(dict(records))

    def shards_listed(self, *_arguments: object) -> None:
        """Give none."""

    def worker_id(self, *_arguments: object) -> None:
        """Give none."""


class World:
    """A worker of one stream. `sources`: those of each shard, the last one last; `sent`: what a new source sends.

    `reads`: what `run` runs of each shard, by name; others are read and acked.
    """

    def __init__(self, *shards: Shard, on_service_error="stop", joint=None, until=None, timeout=None, **settings):
        self.shards = shards
        self.seen: list[events.Event] = []
        self.ends = 0
        self.advice = Advice()
        self.store = Store()
        self.sources: defaultdict[str, list[Source]] = defaultdict(list)
        self.sent: dict[str, list[object]] = {}
        self.reads: dict[str, Any] = {}
        self.service = SimpleNamespace(open=self._open, is_registered=True, read_mode="auto", fan_out_error=None)
        control = SimpleNamespace(
            list_shards=self._list, describe_stream=self._describe, get_shard_iterator=self._refuse
        )
        self.consumer = Consumer(
            SimpleNamespace(stream="orders", control_plane=control, clock=lambda: WALL, service_time=None),
            self.store,
            ConsumerSettings(**{"lease_scan_seconds": 1.0, "shard_cooldown_seconds": 30.0, **settings}),
            worker_id="ann",
            on_service_error=on_service_error,
            sources=self.service,
            identity=StreamIdentity(control, trio.current_time()),
            observer=self.seen.append,
            advice=self.advice,
            spans=None,
            rng=random.Random(1),
            joint=joint,
            until=until,
            timeout=timeout,
        )
        self.consumer.on_end = self._end

    def _end(self) -> None:
        self.ends += 1

    async def _list(self) -> tuple[Shard, ...]:
        await trio.lowlevel.checkpoint()
        return self.shards

    async def _describe(self) -> StreamDescription:
        await trio.lowlevel.checkpoint()
        return StreamDescription("orders", "arn", "ACTIVE", 24)

    @staticmethod
    async def _refuse(*_arguments: object) -> None:
        await trio.lowlevel.checkpoint()
        raise DENIED

    def _open(self, _attempts: trio.Nursery, shard_id: str, position: Position) -> Source:
        source = Source()
        source.opened_at = source.position = position
        source.send(*self.sent.pop(shard_id, ()))
        self.sources[shard_id].append(source)
        return source

    async def _read(self, shard) -> None:
        await self.reads.get(shard.shard_id, read)(shard)

    async def run(self) -> None:
        await self.consumer.run(self._read)

    @asynccontextmanager
    async def leasing(self):
        """Keep leases, as `open_consumer` does."""
        with collapse_groups():
            async with trio.open_nursery() as keeping:
                await keeping.start(self.consumer._coordinator.run)
                yield
                keeping.cancel_scope.cancel()

    @asynccontextmanager
    async def running(self, seconds: float = 3.0):
        """Run it for some seconds, then what is in the block, then drain it."""
        async with self.leasing(), trio.open_nursery() as nursery:
            nursery.start_soon(self.run)
            await trio.sleep(seconds)
            yield self.consumer
            self.consumer.drain()

    def reported(self, kind: type) -> list:
        return [event for event in self.seen if isinstance(event, kind)]

    async def owners(self) -> dict[str, str | None]:
        return {lease.key: lease.owner for lease in await self.store.list()}


# --- what it says of its shards ----------------------------------------------------------------------------


async def test_a_status_has_what_is_known_of_the_consumer(autojump_clock):
    world = World(shard("a"))
    world.reads["a"] = hold
    world.sent["a"] = [event(101, 102)]
    world.service.fan_out_error = DENIED
    async with world.running(61.0) as consumer:
        status = consumer.status()
        assert (status.worker_id, status.consumer_active, status.is_draining) == ("ann", True, False)
        assert (status.read_mode, status.failure) == ("auto", None)
        assert status.fan_out_error == "AccessDeniedException: no permission"
        assert [each.shard_id for each in status.shards] == ["a"]
        assert status.counts == status.leases.shards == {"waiting_parent": 0, "ready": 0, "consuming": 1, "finished": 0}
        assert (status.leases.leases, status.leases.workers) == ({"held": 1, "unowned": 0, "expired": 0}, 1)
        first, slow = status.advice
        assert (first, slow.topic) == ("an advice", "slow_batch")
        assert consumer.now() == trio.current_time() == 61.0
        assert consumer.lineage()[0] == world.shards
        assert [*consumer.lineage()[1]] == ["a"]
        world.service.fan_out_error = None
        consumer.drain()
        assert (consumer.status().fan_out_error, consumer.status().is_draining) == (None, True)
    assert repr(consumer) == "<Consumer of ann>"


async def test_before_the_lease_table_was_read_nothing_is_counted(autojump_clock):
    consumer = World(shard("a")).consumer
    assert (consumer.counts(), consumer.status().counts, consumer.shards()) == (None, None, [])


async def test_shards_are_counted_by_their_state_when_it_may_have_changed(autojump_clock):
    world = World(shard("a"), shard("p", is_open=False), shard("q", is_open=False), shards=["a"])
    await world.store.create(Lease("d", Checkpoint.SHARD_END, hash_key_range=KEYS))
    await world.store.create(Lease("e", Checkpoint.SHARD_END, hash_key_range=KEYS))
    for key in ("p", "q"):
        await world.store.create(Lease(key, Checkpoint("5"), hash_key_range=KEYS, owner="bob", counter=1))
        await world.store.create(Lease(f"child-{key}", Checkpoint.TRIM_HORIZON, parents=(key,), hash_key_range=KEYS))
    async with world.running(8.0):
        counts = {"waiting_parent": 2, "ready": 2, "consuming": 1, "finished": 2}
        assert world.consumer.counts().shards == counts
        counted = [each.counts for each in world.reported(events.ShardsCounted)]
        assert counted[-1] == counts
        assert len(counted) < 5  # not at each of the eight scans


# --- its run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reader", "message"), NO_READERS)
async def test_what_is_no_reader_is_refused(autojump_clock, reader, message):
    with pytest.raises(ConfigurationError, match=message):
        await World().consumer.run(reader)


async def test_a_consumer_has_one_reader_at_a_time_and_may_be_read_again_until_it_is_closed(autojump_clock):
    world = World(shard("a"), timeout=5.0)
    async with world.leasing():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.run)
            await trio.sleep(1)
            with pytest.raises(ConfigurationError, match=TWO_READERS):
                await world.run()
        assert trio.current_time() == 5.0
        await world.run()
        world.consumer.is_closed = True
        with pytest.raises(ConfigurationError, match=CLOSED):
            await world.run()
        with pytest.raises(ConfigurationError, match=CLOSED):
            world.consumer.pause("a")


async def test_a_drain_ends_each_shard_after_its_batch_and_frees_its_lease(autojump_clock):
    world = World(shard("a"), shard("b"))
    world.sent["a"] = [event(101)]
    async with world.running() as consumer:
        assert await world.owners() == {"a": "ann", "b": "ann"}
        consumer.drain()
        await trio.sleep(1)
        assert await world.owners() == {"a": None, "b": None}
        assert world.ends == 1
    assert {e.shard_id for e in world.reported(events.ShardStopped)} == {"a", "b"}
    assert {e.error_type for e in world.reported(events.ShardStopped)} == {None}
    assert world.advice.told == [{}]
    assert {lease.key: str(lease.checkpoint) for lease in await world.store.list()} == {"a": "199", "b": "TRIM_HORIZON"}


def test_another_run_of_trio_may_drain_also_after_the_end():
    async def make() -> World:
        return World()

    world = trio.run(make)

    async def drain() -> None:
        world.consumer.drain()

    trio.run(drain)
    world.consumer.drain()
    assert world.ends == 0


async def test_a_run_of_a_consumer_that_is_drained_reads_nothing(autojump_clock):
    world = World(shard("a"))
    async with world.leasing():
        world.consumer.drain()
        with trio.fail_after(5):
            await world.run()
    assert world.reported(events.ShardStarted) == []


async def test_an_error_of_a_reader_ends_all_and_is_reported_once_with_its_place(autojump_clock):
    async def fail(_shard) -> None:
        raise LookupError("a customer")

    world = World(shard("a"), shard("b"))
    world.reads["a"], world.reads["b"] = fail, hold
    world.sent["b"] = [event(101)]
    with pytest.raises(LookupError):
        async with world.leasing():
            await world.run()
    consumer = world.consumer
    assert consumer.failure is not None
    assert consumer.failure.startswith("LookupError at test_consumer_shards.py:")
    assert "customer" not in consumer.failure
    assert [e.error_type for e in world.reported(events.ConsumerFailed)] == ["LookupError"]
    assert world.advice.told == [{}]
    consumer.failed(ValueError("another"))
    assert len(world.reported(events.ConsumerFailed)) == 1
    assert [(e.shard_id, e.error_type, e.detail) for e in world.reported(events.ShardStopped) if e.error_type] == [
        ("a", "LookupError", "")
    ]


async def test_a_failure_has_the_text_of_an_error_of_efo(autojump_clock):
    world = World()
    world.consumer.failed(EfoError("no room"))
    assert world.consumer.failure == f"{EfoError.error_type}: no room"


@pytest.mark.parametrize("kind", ["drained", "lost", "isolated"])
async def test_what_a_reader_did_not_ack_is_an_advice_if_it_could_have(autojump_clock, kind):
    async def isolate(shard) -> None:
        async for _ in shard:
            raise IsolateShardError("no")

    world = World(shard("a"))
    world.reads["a"] = isolate if kind == "isolated" else hold
    world.sent["a"] = [event(101, 102)]
    async with world.running() as consumer:
        if kind == "lost":
            (lease,) = await world.store.list()
            await world.store.take(lease, "bob")
            await trio.sleep(5)
            assert consumer.shards() == []
    assert world.advice.told == [{"a": 2} if kind == "drained" else {}]


async def test_what_was_unacked_is_no_advice_once_the_shard_is_read_again(autojump_clock):
    world = World(shard("a"))
    world.reads["a"] = hold
    world.sent["a"] = [event(101)]
    async with world.running() as consumer:
        world.reads["a"] = read
        consumer.release("a")
        await trio.sleep(40)
        assert len(world.sources["a"]) == 2
    assert world.advice.told == [{}]


@pytest.mark.parametrize("reads", [read, hold])
async def test_it_was_caught_up_at_the_end_if_all_was_acked(autojump_clock, reads):
    world = World(shard("a"))
    world.reads["a"] = reads
    world.sent["a"] = [event(101)]
    async with world.running() as consumer:
        assert consumer.caught_up() is (reads is read)
        assert not consumer.is_complete
        if reads is read:
            world.sources["a"][0].send(event(102, behind=5))
            await trio.sleep(1)
            assert not consumer.caught_up()


async def test_a_consumer_that_is_to_end_ends_when_all_is_delivered(autojump_clock):
    world = World(shard("a"), until="now")
    world.sent["a"] = [event(101)]
    async with world.leasing():
        with trio.fail_after(30):
            await world.run()
    assert world.consumer.is_complete
    assert world.consumer.caught_up()
    assert world.ends == 1
    assert await world.owners() == {"a": None}


async def test_a_shard_that_was_read_up_to_the_end_is_not_read_again_while_others_are(autojump_clock):
    world = World(shard("a"), shard("b"), until="now")
    world.sent["a"] = [event(101)]
    async with world.running(20.0):
        assert await world.owners() == {"a": None, "b": "ann"}
        assert len(world.sources["a"]) == 1


# --- one shard ---------------------------------------------------------------------------------------------


async def test_pause_resume_and_seek_are_those_of_the_shard(autojump_clock):
    world = World(shard("a"))
    async with world.running() as consumer:
        consumer.pause("a")
        consumer.resume("a")
        consumer.seek("a", Checkpoint("300"))
        await trio.sleep(1)
        assert [type(e) for e in world.seen if isinstance(e, events.ShardPaused | events.ShardResumed)] == [
            events.ShardPaused,
            events.ShardResumed,
        ]
        assert world.sources["a"][-1].opened_at == Position.at("300")
        with pytest.raises(ShardNotReadError, match="does not read b"):
            consumer.pause("b")


async def test_a_shard_that_ends_is_finished_and_its_children_follow(autojump_clock):
    world = World(shard("a"))
    world.sent["a"] = [event(101), ShardEnd((ChildShard("b", ("a",), KEYS),))]
    async with world.running() as consumer:
        assert world.reported(events.ShardFinished) == [events.ShardFinished("a", ("b",))]
        assert [e.shard_id for e in world.reported(events.ShardStarted)] == ["a", "b"]
        assert [each.shard_id for each in consumer.shards()] == ["b"]
    assert [e.shard_id for e in world.reported(events.ShardStopped)] == ["b"]


@pytest.mark.parametrize(
    ("lease", "position"),
    [
        (Lease("a", Checkpoint.LATEST, latest_at=WALL - 7, hash_key_range=KEYS), Position.at_timestamp(WALL - 7)),
        (Lease("a", Checkpoint.LATEST, hash_key_range=KEYS), Position.at_timestamp(WALL)),
        (Lease("a", Checkpoint("5"), hash_key_range=KEYS), Position.at("5")),
    ],
)
async def test_a_shard_is_read_after_its_checkpoint_or_at_the_time_of_its_lease(autojump_clock, lease, position):
    world = World(shard("a"), initial_position="LATEST")
    await world.store.create(lease)
    async with world.running():
        assert [source.opened_at for source in world.sources["a"]] == [position]
    assert world.reported(events.ShardStarted) == [events.ShardStarted("a", lease.checkpoint)]


@pytest.mark.parametrize(
    ("start", "lease", "position"),
    [
        (Position.at("300"), None, Position.at("300")),
        (Checkpoint("300"), None, Position.at("300")),
        ("LATEST", None, Position.at_timestamp(WALL)),
        (None, None, Position.trim_horizon()),
        (Position.at("300"), Lease("a", Checkpoint("5"), hash_key_range=KEYS), Position.at("5")),
        (
            Position.at("300"),
            Lease("a", Checkpoint.TRIM_HORIZON, parents=("p", "q"), hash_key_range=KEYS),
            Position.trim_horizon(),
        ),
        (
            Position.at("300"),
            Lease("a", Checkpoint.TRIM_HORIZON, parents=("q",), hash_key_range=KEYS),
            Position.at("300"),
        ),
    ],
)
async def test_the_application_chooses_where_a_shard_starts_that_continues_nothing(
    autojump_clock, start, lease, position
):
    world = World(shard("a"), start_at=lambda _lease: start)
    if lease is not None:
        await world.store.create(lease)
        await world.store.create(Lease("p", Checkpoint.SHARD_END, hash_key_range=KEYS))
    async with world.running():
        assert world.sources["a"][-1].opened_at == position


async def test_a_lease_that_is_not_selected_or_is_requested_is_given_back(autojump_clock):
    world = World(shard("a"), shard("b"), shards=["b"])
    await world.store.create(Lease("a", Checkpoint("5"), owner="ann", counter=3, hash_key_range=KEYS))
    async with world.running(5.0):
        assert await world.owners() == {"a": None, "b": "ann"}
        assert [e.shard_id for e in world.reported(events.ShardStarted)] == ["b"]


# --- shards that it does not read --------------------------------------------------------------------------


async def test_a_shard_is_released_for_another_worker_and_read_again_after_the_cooldown(autojump_clock):
    world = World(shard("a"), shard("b"))
    async with world.running() as consumer:
        consumer.release("a")
        assert consumer.isolated() == [IsolatedShard("a", "released", 30.0)]
        await trio.sleep(20)
        assert await world.owners() == {"a": None, "b": "ann"}
        assert consumer.isolated() == [IsolatedShard("a", "released", 10.0)]
        assert [(each.shard_id, each.state) for each in consumer.shards()] == [("b", "live"), ("a", "isolated")]
        await trio.sleep(11)
        assert await world.owners() == {"a": "ann", "b": "ann"}
        assert consumer.isolated() == [IsolatedShard("a", "released", 0.0)]  # it has acked nothing yet
        assert [(each.shard_id, each.state) for each in consumer.shards()] == [("b", "live"), ("a", "live")]
        world.sources["a"][-1].send(event(101))
        await trio.sleep(1)
        assert consumer.isolated() == []


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "cooldown", "error_type", "detail", "record"),
    [
        (IsolateShardError("the table is locked"), 30.0, "isolate_shard", "the table is locked", None),
        (IsolateShardError("no", cooldown=7.0, record="101"), 7.0, "isolate_shard", "no", "101"),
        (IsolateShardError("no", cooldown=0.0), 0.0, "isolate_shard", "no", None),
        (caused(IsolateShardError("no"), LookupError("a customer")), 30.0, "LookupError", "no", None),
        (DENIED, 30.0, "AccessDeniedException", "AccessDeniedException: no permission", None),
    ],
)
async def test_a_shard_that_fails_is_isolated_and_the_others_are_read(
    autojump_clock, error, cooldown, error_type, detail, record
):
    async def fail(_shard) -> None:
        await trio.sleep(2)
        raise error

    world = World(shard("a"), shard("b"), on_service_error="isolate")
    world.reads["a"] = fail
    async with world.running(2.5) as consumer:
        world.reads["a"] = read
        assert world.reported(events.ShardIsolated) == [events.ShardIsolated("a", cooldown, error_type, detail)]
        assert events.ShardStopped("a", error_type, detail) in world.seen
        if cooldown:
            left = cooldown - 0.5
            assert consumer.isolated() == [IsolatedShard("a", error_type, left, detail, record)]
            assert await world.owners() == {"a": None, "b": "ann"}
        await trio.sleep(cooldown + 2)
        assert len(world.sources["a"]) == 1
        assert len(world.sources["b"]) == 1


@pytest.mark.parametrize(
    ("error", "on_service_error", "joint"),
    [(DENIED, "stop", None), (GONE, "isolate", "joint"), (LookupError("bad"), "isolate", None)],
)
async def test_an_error_that_is_not_of_one_shard_stops_everything(autojump_clock, error, on_service_error, joint):
    world = World(shard("a"), on_service_error=on_service_error)
    world.consumer._is_one_of_several = joint is not None
    world.sent["a"] = [error]
    with pytest.raises(type(error)):
        async with world.leasing():
            await world.run()
    assert world.reported(events.ShardIsolated) == []


async def test_a_stream_that_is_gone_isolates_a_shard_of_a_consumer_of_one_stream(autojump_clock):
    world = World(shard("a"), on_service_error="isolate")
    world.sent["a"] = [GONE]
    async with world.running():
        assert [e.error_type for e in world.reported(events.ShardIsolated)] == ["ResourceNotFoundException"]


async def test_nothing_else_starts_while_everything_stops(autojump_clock):
    async def fail(_shard) -> None:
        raise LookupError("bad")

    async def slow(shard) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        await read(shard)

    world = World(shard("a"), shard("b"))
    world.reads["a"], world.reads["b"] = fail, slow
    with pytest.raises(LookupError):
        async with world.leasing():
            await world.run()
    assert sorted(e.shard_id for e in world.reported(events.ShardStarted)) == ["a", "b"]


@pytest.mark.parametrize("successor", [None, "another worker", "it is finished", "its lease is deleted"])
async def test_a_shard_whose_lease_could_not_be_renewed_lags_until_it_is_known_who_reads_it(autojump_clock, successor):
    world = World(shard("a"), failover_seconds=10.0)
    async with world.running() as consumer:
        consumer.pause("a")
        (held,) = consumer._coordinator.held.values()
        consumer._coordinator.stop_acquiring()
        held.mark_lost("expired")
        await trio.sleep(0.1)
        assert [(each.shard_id, each.state, each.is_paused) for each in consumer.shards()] == [("a", "no_lease", False)]
        (lease,) = await world.store.list()
        if successor == "another worker":
            await world.store.take(lease, "bob")
        elif successor == "it is finished":
            await world.store.checkpoint(lease, Checkpoint.SHARD_END)
        elif successor == "its lease is deleted":
            await world.store.delete("a")
        await trio.sleep(2)
        assert [each.shard_id for each in consumer.shards()] == (["a"] if successor is None else [])
    assert consumer.shards() == []


async def test_a_lease_that_cannot_be_released_is_not_renewed(autojump_clock):
    async def fail(_shard) -> None:
        raise IsolateShardError("no", cooldown=1000.0)

    world = World(shard("a"), failover_seconds=10.0)
    world.reads["a"] = fail
    world.store.is_down = True
    async with world.running(5.0):
        world.store.is_down = False
        (before,) = await world.store.list()
        await trio.sleep(20)
        (after,) = await world.store.list()
        assert (before.owner, after.counter) == ("ann", before.counter)
