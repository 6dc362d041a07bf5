"""A stream is deleted and created again under its name, while its application keeps its leases; or it only looks so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import trio
import trio.testing

import efo
from efo.leases.stores.memory import MemoryLeaseStore
from efo.testing import FakeKinesis, FakeSettings, When
from efo.testing.faults import Refuse, StaleListing
from efo.testing.faults.script import ALWAYS
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("identity")

STREAM: Final = "orders"
OLD, NEW = f"old{CANARY}", f"new{CANARY}"
COUNT: Final = 12
READ: Final = ("fanout", "polling", "auto")
LIMIT: Final = 1800.0
"""Seconds of virtual time within which a recreated stream must be refused: a missing shard is waited for longest."""
REMEDY: Final = "efo leases reset"


class World:
    """A stream, and an application that reads it time after time with the same leases, in virtual time."""

    def __init__(self, fake: FakeKinesis, mode: str, shards: int = 2) -> None:
        self.fake = fake
        self.store = MemoryLeaseStore()
        self.got: set[bytes] = set()
        self.error: efo.errors.EfoError | None = None
        self.settings = efo.ConsumerSettings(read_mode=mode, checkpoint_seconds=1.0, shard_sync_seconds=10.0)  # type: ignore[arg-type] # of READ
        fake.create_stream(STREAM, shards)
        self.put(OLD)

    def put(self, text: str) -> None:
        """Put records."""
        self.fake.put_many(STREAM, [(f"{CANARY}{n}", f"{text}{n}".encode()) for n in range(COUNT)])

    def recreate(self, shards: int = 2) -> None:
        """Delete the stream, create it again, and put new records."""
        self.fake.delete_stream(STREAM)
        self.fake.create_stream(STREAM, shards)
        self.put(NEW)

    async def run(self, seconds: float = 60.0, during: Callable[[], object] | None = None) -> float:
        """Read for some time; `during` is called after a third of it. Return how long it was read."""
        self.error, began = None, trio.current_time()

        async def bill(record: efo.Record, _batch: efo.Batch) -> None:
            await trio.lowlevel.checkpoint()
            self.got.add(record.data)

        run = partial(efo.consume, self.fake.kinesis(STREAM), record_handler=bill, application="billing")
        try:
            async with trio.open_nursery() as nursery:
                consumer = await nursery.start(partial(run, leases=self.store, settings=self.settings))
                await trio.sleep(seconds / 3)
                if during is not None:
                    during()
                await trio.sleep(seconds * 2 / 3)
                consumer.drain()
        except* efo.errors.EfoError as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self.error = error if isinstance(error, efo.errors.EfoError) else None
        return trio.current_time() - began

    async def forget_times(self) -> None:
        """Let the leases be rows of KCL, or of an earlier efo, which do not say when their stream was created."""
        for lease in await self.store.list():
            await self.store.delete(lease.key)
            await self.store.create(replace(lease, stream_created_at=None, unread_since=None))

    async def delete_leases(self) -> None:
        """Do what the remedy says."""
        for lease in await self.store.list():
            await self.store.delete(lease.key)

    @property
    def unread(self) -> int:
        """How many of the new records are not read."""
        return COUNT - len({data for data in self.got if data.startswith(NEW.encode())})


Story = Callable[[World], Any]


@asynccontextmanager
async def open_world(mode: str, shards: int = 2, *faults: tuple[Any, When]) -> AsyncIterator[World]:
    async with FakeKinesis(settings=FakeSettings(stream_deleting=0.0)) as fake:
        for fault, when in faults:
            fake.faults.add(fault, when)
        yield World(fake, mode, shards)


def in_virtual_time(main: Callable[[], Any]) -> Outcome:
    outcome: Outcome = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return outcome


async def _refused(world: World, seconds: float) -> Outcome:
    """Judge what was seen of a recreated stream: one sentence with the remedy, then all of it after the remedy."""
    error, unread = world.error, world.unread
    is_refused = isinstance(error, efo.errors.StreamRecreatedError) and REMEDY in str(error)
    await world.delete_leases()
    await world.run()
    did = f"{type(error).__name__} after {seconds:.0f} s, {unread} unread; {world.unread} after its leases were deleted"
    lost = 0 if is_refused else unread
    return Outcome(did, is_refused and not world.error and not world.unread, {"records_lost_silently": lost})


def kept(world: World) -> Outcome:
    """Judge what was seen of a stream that was not recreated: it is read whole."""
    did = f"{type(world.error).__name__ if world.error else 'no error'}, {world.unread} of {COUNT} unread"
    lost = 0 if world.error else world.unread
    return Outcome(did, world.error is None and not world.unread, {"records_lost_silently": lost})


# --- recreated -------------------------------------------------------------------------------------------------


def _recreated(mode: str, shards: int, *, is_running: bool, denied: bool = False, unnamed: bool = False) -> None:
    async def main() -> Outcome:
        faults = [(Refuse("AccessDeniedException"), When(operation="DescribeStreamSummary", times=ALWAYS))]
        async with open_world(mode, 2, *(faults if denied else [])) as world:
            if is_running:
                return await _refused(world, await world.run(LIMIT, partial(world.recreate, shards)))
            await world.run()
            if unnamed:
                await world.forget_times()
            world.recreate(shards)
            return await _refused(world, await world.run(LIMIT))

    how = "while it is read" if is_running else "while nobody reads it"
    more = ", no permission to describe it" if denied else ", leases of KCL" if unnamed else ""
    title = f"{mode}: recreated {how}, 2 shards become {shards}{more}"
    cases.case("refused with the remedy; read whole after it", name=title)(lambda: in_virtual_time(main))


for _mode in READ:
    for _shards in (1, 2, 3):
        _recreated(_mode, _shards, is_running=False)
        _recreated(_mode, _shards, is_running=True)
    _recreated(_mode, 3, is_running=False, unnamed=True)
_recreated("polling", 2, is_running=False, denied=True)
_recreated("polling", 3, is_running=True, denied=True)


def _finished(mode: str, *, unnamed: bool) -> None:
    async def main() -> Outcome:
        async with open_world(mode, 1) as world:
            await world.run(during=lambda: world.fake.split(STREAM, "shardId-000000000000"))
            if unnamed:
                await world.forget_times()
            world.recreate(3)
            return await _refused(world, await world.run(LIMIT))

    title = f"{mode}: split, read, recreated; the first shard's lease is finished{', leases of KCL' * unnamed}"
    cases.case("refused with the remedy; read whole after it", name=title)(lambda: in_virtual_time(main))


for _mode in READ:
    _finished(_mode, unnamed=False)
    _finished(_mode, unnamed=True)


def _other_hash_keys(mode: str) -> None:
    async def main() -> Outcome:
        async with open_world(mode) as world:
            await world.run()
            for lease in await world.store.list():
                await world.store.delete(lease.key)
                at_start = replace(lease, checkpoint=efo.Checkpoint.TRIM_HORIZON, stream_created_at=None)
                await world.store.create(replace(at_start, unread_since=None))
            world.recreate(3)
            return await _refused(world, await world.run(LIMIT))

    title = f"{mode}: nothing was read, no time is known, and the shards have other hash keys"
    cases.case("refused with the remedy; read whole after it", name=title)(lambda: in_virtual_time(main))


for _mode in READ:
    _other_hash_keys(_mode)


# --- not recreated ---------------------------------------------------------------------------------------------


def _not_recreated(mode: str, name: str, story: Callable[[World], Any], *faults: tuple[Any, When]) -> None:
    async def main() -> Outcome:
        async with open_world(mode, 2, *faults) as world:
            await story(world)
            return kept(world)

    cases.case("read on, whole", name=f"{mode}: {name}")(lambda: in_virtual_time(main))


async def _leases_of_kcl(world: World) -> None:
    await world.run()
    await world.forget_times()
    world.put(NEW)
    await world.run()


async def _resharded(world: World) -> None:
    def reshard() -> None:
        world.fake.split(STREAM, "shardId-000000000000")
        world.put(NEW)

    await world.run(400.0, reshard)


async def _without_permission(world: World) -> None:
    await world.run(during=lambda: world.fake.split(STREAM, "shardId-000000000000"))
    await world.forget_times()
    world.put(NEW)
    await world.run(400.0)


for _mode in READ:
    _not_recreated(_mode, "leases of KCL, and the stream of before", _leases_of_kcl)
    _not_recreated(_mode, "split, and listings are late", _resharded, (StaleListing(20.0), When(times=ALWAYS)))
_not_recreated(
    "polling",
    "split, leases of KCL, no permission to describe the stream",
    _without_permission,
    (Refuse("AccessDeniedException"), When(operation="DescribeStreamSummary", times=ALWAYS)),
)
