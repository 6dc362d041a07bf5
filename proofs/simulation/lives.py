"""What a stream lives through besides its records: it is created again under its name, or its records expire unread.

These are small worlds of their own, for some of the seeds. Nothing may be unread in silence: a recreated stream is
refused by every worker, or read from its beginning; and what expired before it was read lies in what efo reports. And
nothing may be reported that is not so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Final

import trio
import trio.testing

from efo import events
from efo.consumer.opening import open_consumer
from efo.consumer.shard_stream import ShardStream
from efo.errors import EfoError, StreamRecreatedError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.settings import ConsumerSettings, ReadMode
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.faults.kinds import Refuse, StaleListing
from efo.testing.faults.script import When
from proofs.simulation.story import Lived

STREAM: Final = "orders"
SHARE: Final = 0.25
"""The share of the seeds that have such a world."""
LIMIT: Final = 1200.0
"""Seconds within which every worker must refuse a recreated stream: a missing shard is waited for longest."""
_IDLE: Final = 20.0
"""Seconds between the events of an idle shard. What is unread is known as of an event: before a stop, and after it."""
_EDGE: Final = 2.0
"""Seconds by which the times of a report and of a record may differ."""


@dataclass(slots=True)
class Life:
    """What happened in such a world, and what went wrong."""

    lines: list[Lived] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def note(self, *what: str) -> None:
        """Add to the story."""
        self.lines += map(Lived, what)


def live(seed: int, life: Life) -> None:
    """Run the world of a seed, if it has one."""
    random = Random(f"{seed}/identity")
    if random.random() < SHARE:
        kind = random.choice((RecreatedStream, ExpiringStream))
        trio.run(kind(random, life).run, clock=trio.testing.MockClock(autojump_threshold=0))


class Application:
    """An application that reads the stream, by workers that are started again and again with the same leases.

    `handled`: the records that were handled. `pace`: seconds that a worker takes for a batch. `refused`: the workers
    that refused the stream, of those that `start` started. `reports`: what is reported as expired.
    """

    def __init__(self, fake: FakeKinesis, settings: ConsumerSettings, random: Random) -> None:
        self.store = MemoryLeaseStore()
        self.handled: list[bytes] = []
        self.pace = 0.0
        self.refused: set[int] = set()
        self.reports: list[events.RecordsExpired] = []
        self._fake = fake
        self._settings = settings
        self._random = random
        self._stopping = trio.Event()

    def start(self, nursery: trio.Nursery, workers: int) -> None:
        """Start workers, which run until `stop`, or until they refuse the stream."""
        self._stopping = trio.Event()
        self.refused.clear()
        for number in range(workers):
            nursery.start_soon(self._supervise, number, self._stopping)

    def stop(self) -> None:
        """Stop all workers gracefully."""
        self._stopping.set()

    async def _supervise(self, number: int, stopping: trio.Event) -> None:
        """Run a worker, and start it again after a failure, as an orchestrator does."""
        while not stopping.is_set():
            try:
                await self._run(number, stopping)
            except StreamRecreatedError:
                self.refused.add(number)
                return
            except EfoError:  # the stream does not exist just now
                with trio.move_on_after(self._random.uniform(0.5, 5.0)):
                    await stopping.wait()

    async def _run(self, number: int, stopping: trio.Event) -> None:
        opening = open_consumer(
            self._fake.kinesis(STREAM),
            application="app",
            leases=self.store,
            worker_id=f"w{number}",
            settings=self._settings,
            observer=self._observe,
            rng=Random(self._random.random()),
        )
        async with opening as consumer:

            async def drain() -> None:
                await stopping.wait()
                consumer.drain()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(drain)
                await consumer.run(self._read)
                nursery.cancel_scope.cancel()

    async def _read(self, shard: ShardStream) -> None:
        async for batch in shard:
            await trio.sleep(self.pace)
            self.handled += [record.data for record in batch.records]
            shard.ack(batch)

    def _observe(self, event: events.Event) -> None:
        if isinstance(event, events.RecordsExpired):
            self.reports.append(event)

    async def forget_stream(self) -> None:
        """Let the leases be rows of KCL, or of an earlier efo, which do not name the stream."""
        for lease in await self.store.list():
            await self.store.delete(lease.key)
            await self.store.create(replace(lease, stream_created_at=None, unread_since=None))

    async def forget_leases(self) -> None:
        """Delete all leases, as an operator does."""
        for lease in await self.store.list():
            await self.store.delete(lease.key)

    async def reaches(self, is_reached: Callable[[], bool], seconds: float) -> bool:
        """Wait until it is reached; return whether it was, within these seconds."""
        with trio.move_on_after(seconds):
            while not is_reached():  # noqa: ASYNC110 - no event announces it
                await trio.sleep(1.0)
        return is_reached()


class RecreatedStream:
    """A stream that is deleted and created again, while its application is stopped or runs; or that is not."""

    def __init__(self, random: Random, life: Life) -> None:
        self.life = life
        self._random = random
        self._mode: ReadMode = random.choice(("fanout", "polling", "auto"))
        self._before, self._after = random.randint(1, 3), random.randint(1, 4)
        self._workers = random.randint(1, 2)
        self._is_running = random.random() < 0.5
        self._is_recreated = random.random() < 0.8
        self._is_unnamed = not self._is_running and random.random() < 0.5
        self._is_denied = self._mode == "polling" and random.random() < 0.4
        self._reshards = random.random() < 0.4
        self._is_late = random.random() < 0.3
        self._is_unread = self._is_unnamed and random.random() < 0.5  # then nothing tells it, and nothing is lost
        if self._is_unread:
            self._after, self._reshards = self._before, False
        elif not self._is_recreated:  # then late listings are what could be taken for it
            self._reshards, self._is_late = True, random.random() < 0.8
        elif random.random() < 0.3:  # a finished lease, and children of which nothing was read: one shard tells it
            self._before, self._after, self._reshards = 1, 3, True
        self._new = 0

    async def run(self) -> None:
        """Run the world and check it."""
        random = self._random
        settings = ConsumerSettings(
            read_mode=self._mode,
            failover_seconds=6.0,
            checkpoint_seconds=random.choice((1.0, 5.0)),
            shard_sync_seconds=random.choice((10.0, 30.0)),
        )
        fake_settings = FakeSettings(stream_deleting=0.0, idle_interval=_IDLE)
        async with FakeKinesis(settings=fake_settings) as fake, trio.open_nursery() as nursery:
            app = Application(fake, settings, random)
            if self._is_denied:
                fake.faults.add(Refuse("AccessDeniedException"), When(operation="DescribeStreamSummary", times=inf))
            if self._is_late:
                fake.faults.add(StaleListing(random.uniform(2.0, 60.0)), When(times=inf))
            fake.create_stream(STREAM, self._before)
            app.start(nursery, self._workers)
            await self._read_old(fake)
            if not self._is_running:
                await self._stop(app, nursery)
            if self._is_recreated:
                await self._recreate(fake)
            else:
                await trio.sleep(random.uniform(0.0, 200.0))
            self._put(fake, 10)
            if not self._is_running:
                if self._is_unnamed:
                    await app.forget_stream()
                app.start(nursery, self._workers)
            if self._is_recreated:
                await self._check_recreated(fake, app)
            else:
                await self._check_kept(fake, app)
            await self._stop(app, nursery)

    # --- what happens --------------------------------------------------------------------------------------

    async def _read_old(self, fake: FakeKinesis) -> None:
        old = 0 if self._is_unread else self._random.choice((0, 3, 30))
        fake.put_many(STREAM, [(f"k{n}", b"old %d" % n) for n in range(old)])
        await trio.sleep(self._random.uniform(15.0, 40.0))
        if self._reshards:
            fake.split(STREAM, self._random.choice(fake.open_shards(STREAM)))
            await trio.sleep(self._random.uniform(0.0, 60.0))

    async def _recreate(self, fake: FakeKinesis) -> None:
        await trio.sleep(self._random.uniform(0.0, 5.0))
        fake.delete_stream(STREAM)
        await trio.sleep(self._random.choice((0.0, 0.0, self._random.uniform(0.0, 30.0))))
        fake.create_stream(STREAM, self._after)
        how = "running" if self._is_running else "stopped"
        size = "fewer" if self._after < self._before else "more" if self._after > self._before else "same"
        self.life.note(f"R15.recreated_{how}", f"R15.recreated_{size}", f"R15.recreated_{self._mode}")
        if self._reshards:
            self.life.note("R15.recreated_after_reshard")

    def _put(self, fake: FakeKinesis, count: int) -> None:
        """Put new records: those of each key have growing numbers."""
        numbers = range(self._new, self._new + count)
        self._new += count
        fake.put_many(STREAM, [(f"k{n % 5}", b"new %d" % n) for n in numbers])

    async def _stop(self, app: Application, nursery: trio.Nursery) -> None:
        app.stop()
        with trio.move_on_after(60.0):
            while nursery.child_tasks:  # noqa: ASYNC110 - the nursery goes on
                await trio.sleep(0.5)
        if nursery.child_tasks:
            self.life.problems.append(f"{self._reported}: workers do not stop")
            nursery.cancel_scope.cancel()

    # --- what must hold ------------------------------------------------------------------------------------

    @property
    def _reported(self) -> str:
        how = "running" if self._is_running else "stopped"
        return f"a stream of {self._before} shards, recreated with {self._after} while {how}, read by {self._mode}"

    def _has_all_new(self, app: Application) -> bool:
        return {b"new %d" % n for n in range(self._new)} <= set(app.handled)

    async def _check_recreated(self, fake: FakeKinesis, app: Application) -> None:
        await trio.sleep(self._random.uniform(0.0, 30.0))
        self._put(fake, 10)

        def is_refused() -> bool:
            return len(app.refused) == self._workers

        await app.reaches(lambda: is_refused() or (self._is_unread and self._has_all_new(app)), LIMIT)
        if is_refused():
            self.life.note(
                "R15.refused", *(["R15.refused_without_its_time"] if self._is_unnamed or self._is_denied else [])
            )
        elif app.refused or not self._has_all_new(app):
            self.life.problems.append(
                f"{self._reported}: {len(app.refused)} of {self._workers} workers refuse it, and "
                f"{self._new - len({d for d in app.handled if d.startswith(b'new')})} of its records are unread"
            )
        else:
            self.life.note("R15.read_as_new")
            return
        await app.forget_leases()
        app.handled.clear()
        async with trio.open_nursery() as nursery:
            app.start(nursery, self._workers)
            self._put(fake, 5)
            if not await app.reaches(lambda: self._has_all_new(app), 400.0):
                self.life.problems.append(f"{self._reported}: it is not read whole after its leases were deleted")
            self.life.note("R15.healed")
            await self._stop(app, nursery)

    async def _check_kept(self, fake: FakeKinesis, app: Application) -> None:
        if self._reshards:
            fake.merge(STREAM, *fake.open_shards(STREAM)[:2])
        for _ in range(3):
            await trio.sleep(self._random.uniform(0.0, 60.0))
            self._put(fake, 5)
        if not await app.reaches(lambda: bool(app.refused) or self._has_all_new(app), 400.0) or app.refused:
            self.life.problems.append(f"a stream that was not recreated is refused or not read, by {self._mode}")
        if self._is_unnamed or self._is_denied:
            self.life.note("R15.taken_over")


class ExpiringStream:
    """A stream with a short retention period, and an application that is stopped, slow or idle for longer."""

    def __init__(self, random: Random, life: Life) -> None:
        self.life = life
        self._random = random
        self._mode: ReadMode = random.choice(("fanout", "polling", "auto"))
        self._hours = random.choice((0.1, 0.2))
        self._put_at: dict[bytes, tuple[str, float]] = {}
        self._is_quiet = random.random() < 0.3
        self._unread_seconds = 0.0

    @property
    def _retention(self) -> float:
        return self._hours * 3600.0

    async def run(self) -> None:
        """Run the world and check it."""
        settings = ConsumerSettings(
            read_mode=self._mode,
            failover_seconds=6.0,
            poll_seconds=5.0,
            checkpoint_seconds=5.0,
            unsubscribe_idle_seconds=30.0,
        )
        async with FakeKinesis(settings=FakeSettings(idle_interval=_IDLE)) as fake:
            fake.create_stream(STREAM, self._random.randint(1, 2))
            fake.retain(STREAM, self._hours)
            app = Application(fake, settings, self._random)
            await self._reading(app, 30.0)  # what came before the first start is nobody's
            async with trio.open_nursery() as producing:
                producing.start_soon(self._produce, fake)
                can_expire = False
                for _ in range(self._random.randint(2, 4)):
                    can_expire |= await self._phase(fake, app)
                producing.cancel_scope.cancel()
            app.pace = 0.0
            await self._reading(app, 60.0)
            self._check(app, can_expire=can_expire)

    # --- what happens --------------------------------------------------------------------------------------

    async def _produce(self, fake: FakeKinesis) -> None:
        """Put a record now and then; in some worlds after long pauses alone."""
        while True:
            await trio.sleep(self._random.expovariate(1 / (self._retention * (1.2 if self._is_quiet else 0.15))))
            data = b"%d" % len(self._put_at)
            shard, _ = fake.put(STREAM, f"k{len(self._put_at)}", data)
            self._put_at[data] = shard, fake.clock()

    async def _phase(self, fake: FakeKinesis, app: Application) -> bool:
        """Let something happen; return whether records may expire by it."""
        random, retention = self._random, self._retention
        quiet = ("read", "read", "stop", "split")
        match random.choice(quiet if self._is_quiet else ("read", "read", "stop", "stop", "slow", "decrease", "split")):
            case "read":
                await self._reading(app, retention * random.uniform(0.2, 1.5))
            case "stop":
                seconds = retention * random.uniform(0.2, 2.5)
                await trio.sleep(seconds)
                self._unread_seconds += seconds  # one stop may follow another
                return self._unread_seconds > retention - 3 * _IDLE
            case "slow":
                app.pace = retention * random.uniform(0.2, 1.5)
                await self._reading(app, retention * random.uniform(1.0, 2.0))
                app.pace = 0.0
                return True
            case "decrease":
                await self._reading(app, 30.0)
                await trio.sleep(retention * random.uniform(0.3, 0.8))
                self._hours /= 2
                fake.retain(STREAM, self._hours)
                self.life.note("R5.retention_decreased")
                return True
            case _:
                fake.split(STREAM, random.choice(fake.open_shards(STREAM)))
                await self._reading(app, 60.0)
        return False

    async def _reading(self, app: Application, seconds: float) -> None:
        self._unread_seconds = 0.0
        async with trio.open_nursery() as nursery:
            app.start(nursery, 1)
            await trio.sleep(seconds)
            app.stop()

    # --- what must hold ------------------------------------------------------------------------------------

    def _check(self, app: Application, *, can_expire: bool) -> None:
        handled, reported = set(app.handled), f"read by {self._mode}, a retention of {self._retention:g} s"
        for data, (shard, at) in self._put_at.items():
            spans = [(r.since, r.until) for r in app.reports if r.shard_id == shard]
            is_reported = any(since - _EDGE <= at <= until + _EDGE for since, until in spans)
            is_denied = any(since + _EDGE < at < until - _EDGE for since, until in spans)
            if data not in handled and not is_reported:
                self.life.problems.append(f"{reported}: record {data!r} of {shard} is unread, and nothing tells it")
            if data in handled and is_denied:
                self.life.problems.append(
                    f"{reported}: record {data!r} of {shard} was read, and is reported as expired"
                )
        if app.reports and not can_expire:
            self.life.problems.append(f"{reported}: {app.reports[0]} is reported, and nothing can have expired")
        if len(handled) < len(self._put_at):
            self.life.note("R5.expired_unread", f"R5.expired_unread_{self._mode}")
        if not can_expire and self._is_quiet:
            self.life.note("R5.idle_and_not_expired")
