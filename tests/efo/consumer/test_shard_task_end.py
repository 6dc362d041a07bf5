"""What a shard task writes at its end, however it ends: with a shard and a lease that record it."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import pytest
import trio

from efo.consumer.shard_task import LAST_SAVE_TIMEOUT, STORE_RETRY_INTERVAL, ShardTask
from efo.errors import EfoError, HandlerError, LeaseLostError, LeaseStoreUnavailableError
from efo.model import Checkpoint, ChildShard, HashKeyRange, Lease
from efo.settings import ConsumerSettings

CHILDREN = tuple(ChildShard(name, ("s-0",), HashKeyRange("0", "1")) for name in ("s-1", "s-2"))
END = ["save", "confirm", "create s-1", "create s-2", "save_children s-1 s-2", "checkpoint SHARD_END", "wake"]


class Shard:
    """A shard that was read to its end, unless the test says otherwise."""

    shard_id = "s-0"

    def __init__(self) -> None:
        self.children: tuple[ChildShard, ...] | None = CHILDREN
        self.has_ended = True
        self.is_draining = self.has_unacked = self.is_lost = False
        self.unread = SimpleNamespace(was_open_at=70.0)
        self.idle_after: float | None = None

    @property
    def is_finished(self) -> bool:
        return self.children is not None

    def drain(self) -> None:
        self.is_draining = True

    async def unsubscribe_when_idle(self, after: float) -> None:
        self.idle_after = after
        await trio.sleep_forever()


class World:
    """A shard task. `calls`: what it wrote. `failing`: what a write raises, by its name, one after the other."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.times: list[float] = []
        self.created: list[Lease] = []
        self.failing: defaultdict[str, list[Exception]] = defaultdict(list)
        self.seconds = 0.0
        self.shard = Shard()
        self.lost = trio.Event()
        self.lease = Lease("s-0", Checkpoint("1"), stream_created_at=5.0)
        self.known: dict[str, Lease] = {}
        self.attempts_ended = False
        self.opening_error: Exception | None = None
        coordinator = SimpleNamespace(leases=self.known, wake=lambda: self.calls.append("wake"))
        self.task = ShardTask(self, self._open, ConsumerSettings(unsubscribe_idle_seconds=33.0), coordinator, self)

    def _open(self, attempts: trio.Nursery) -> Shard:
        if self.opening_error is not None:
            raise self.opening_error
        attempts.start_soon(self._attempt)
        return self.shard

    async def _attempt(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.attempts_ended = True

    async def _write(self, name: str, *what: str) -> None:
        self.calls.append(" ".join((name, *what)))
        self.times.append(trio.current_time())
        await trio.sleep(self.seconds)
        if self.failing[name]:
            raise self.failing[name].pop(0)

    # The held lease, and the lease store:

    def watch(self, *, on_lost, on_handoff_requested) -> None:
        self.on_lost, self.on_handoff_requested = on_lost, on_handoff_requested

    async def save(self) -> None:
        await self._write("save")

    async def release(self) -> None:
        await self._write("release")

    async def confirm(self) -> None:
        await self._write("confirm")

    async def create(self, lease: Lease) -> bool:
        await self._write("create", lease.key)
        self.created.append(lease)
        return True

    async def save_children(self, children: tuple[str, ...]) -> None:
        await self._write("save_children", *children)

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        await self._write("checkpoint", str(checkpoint))


async def read(_shard: Shard) -> None:
    await trio.sleep(1)


async def test_the_end_of_a_shard_is_written_in_order_and_its_children_know_their_stream(autojump_clock):
    world = World()
    assert await world.task.run(read) is True
    assert world.calls == END
    assert [(lease.key, lease.checkpoint, lease.unread_since, lease.stream_created_at) for lease in world.created] == [
        ("s-1", Checkpoint.TRIM_HORIZON, 70.0, 5.0),
        ("s-2", Checkpoint.TRIM_HORIZON, 70.0, 5.0),
    ]
    assert world.attempts_ended
    assert world.shard.idle_after == 33.0


async def test_the_lease_of_a_child_that_has_one_is_not_created(autojump_clock):
    world = World()
    world.known["s-1"] = Lease("s-1", Checkpoint("9"))
    await world.task.run(read)
    assert [lease.key for lease in world.created] == ["s-2"]


async def test_a_shard_that_is_gone_ends_without_children(autojump_clock):
    world = World()
    world.shard.children = ()
    assert await world.task.run(read)
    assert world.calls == ["save", "confirm", "save_children", "checkpoint SHARD_END", "wake"]


@pytest.mark.parametrize("is_finished", [False, True])
async def test_a_shard_that_was_not_processed_to_its_end_is_released(autojump_clock, is_finished):
    """Also one that was read to its end, if its last batches are not acked since it drains."""
    world = World()
    world.shard.is_draining, world.shard.has_unacked = True, is_finished
    if not is_finished:
        world.shard.children = None
    assert await world.task.run(read) is False
    assert world.calls == ["save", "release"]


async def test_a_shard_that_was_processed_to_its_end_is_finished_also_in_a_drain(autojump_clock):
    world = World()
    world.shard.is_draining = True
    assert await world.task.run(read)


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_hand_off_request_drains_the_shard(autojump_clock, has_ended):
    world = World()
    world.shard.children, world.shard.has_ended = None, has_ended

    async def request(_shard: Shard) -> None:
        world.on_handoff_requested()

    assert await world.task.run(request) is False
    assert world.shard.is_draining


async def test_a_reader_that_acks_not_all_of_a_shard_that_ended_is_refused(autojump_clock):
    world = World()
    world.shard.has_unacked = True
    with pytest.raises(EfoError, match="s-0 was read to its end, but its reader returned without acking"):
        await world.task.run(read)
    assert world.calls == ["save"]


async def test_a_reader_that_returns_early_is_refused_and_what_it_acked_is_saved(autojump_clock):
    world = World()
    world.shard.has_ended = False
    with pytest.raises(HandlerError, match="s-0: the reader returned before its iteration"):
        await world.task.run(read)
    assert world.calls == ["save"]


async def fail(_shard: Shard) -> None:
    raise LookupError("bad")


@pytest.mark.parametrize("error", [None, LeaseLostError("taken"), LeaseStoreUnavailableError("busy")])
async def test_what_was_acked_is_saved_once_before_the_error_of_a_reader_is_raised(autojump_clock, error):
    world = World()
    if error is not None:
        world.failing["save"] = [error]
    with pytest.raises(LookupError, match="bad"):
        await world.task.run(fail)
    assert world.calls == ["save"]


async def test_a_last_save_that_takes_too_long_is_given_up(autojump_clock):
    world = World()
    world.seconds = 60.0
    with pytest.raises(LookupError, match="bad"):
        await world.task.run(fail)
    assert trio.current_time() == LAST_SAVE_TIMEOUT == 2.0


async def test_a_task_that_is_cancelled_saves_what_was_acked(autojump_clock):
    world = World()
    world.seconds = 1.5
    with trio.move_on_after(0.5) as scope:
        await world.task.run(read)
    assert scope.cancelled_caught
    assert (world.calls, trio.current_time()) == (["save"], 2.0)


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_lost_lease_ends_the_reader_at_once_and_is_not_saved(autojump_clock, is_known):
    world = World()

    async def lose(_shard: Shard) -> None:
        if is_known:
            world.lost.set()
        world.on_lost()
        await trio.sleep(60)

    assert await world.task.run(lose) is False
    assert (world.shard.is_lost, trio.current_time()) == (True, 0.0)
    assert world.calls == ([] if is_known else ["save"])


async def test_a_shard_that_cannot_be_opened_is_not_saved(autojump_clock):
    world = World()
    world.opening_error = LookupError("bad")
    with pytest.raises(LookupError):
        await world.task.run(read)
    assert world.calls == []


@pytest.mark.parametrize("name", ["save", "confirm", "create", "save_children", "checkpoint", "release"])
async def test_a_write_is_repeated_until_the_store_performs_it(autojump_clock, name):
    world = World()
    if name == "release":
        world.shard.children = None
    world.failing[name] = [LeaseStoreUnavailableError("busy")] * 2
    await world.task.run(read)
    failed = [time for call, time in zip(world.calls, world.times, strict=False) if call.split()[0] == name]
    assert failed[:3] == [1.0, 1.0 + STORE_RETRY_INTERVAL, 1.0 + 2 * STORE_RETRY_INTERVAL]
    assert STORE_RETRY_INTERVAL == 0.5
