"""Records that expired unread are reported, and nothing else is (rule R5), in all read modes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import trio

from efo import events
from efo.consumer.expired_records import ExpiredRecords
from efo.errors import AccessDeniedError, EfoError
from efo.kinesis.identity import StreamIdentity
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, Lease, Record, StreamDescription
from efo.protocol.unread import Gap
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from tests.workers import open_worker

STREAM = "orders"
MODES = pytest.mark.parametrize("read_mode", ["fanout", "polling", "auto"])
DAY = 3600.0
"""Seconds: the retention period here. A day of AWS would be a long test."""
HOUR = DAY / 24


class World:
    """A stream of one shard, and an application that reads it, time after time, with the same leases.

    `pace`: seconds that it takes for each batch.
    """

    def __init__(self, fake: FakeKinesis, read_mode: str) -> None:
        self.fake = fake
        self.store = MemoryLeaseStore()
        self.seen: list[events.Event] = []
        self.got: list[int] = []
        self.put_at: dict[int, float] = {}
        self.pace = 0.0
        # Fewer calls and renewals than by default: much virtual time passes here.
        self.settings = ConsumerSettings(
            read_mode=read_mode, checkpoint_seconds=10.0, poll_seconds=5.0, failover_seconds=60.0
        )
        fake.create_stream(STREAM)

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.put_at[number] = self.fake.clock()
            self.fake.put(STREAM, "k", b"%d" % number)

    async def run(self, seconds: float = 60.0, during=None, **changes: object) -> None:
        async def read(shard):
            async for batch in shard:
                await trio.sleep(self.pace)
                self.got += [int(record.data) for record in batch.records]
                shard.ack(batch)

        settings = replace(self.settings, **changes)
        async with (
            open_worker(self.fake.kinesis(STREAM), self.store, settings, self.seen.append) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, read)
            if during is not None:
                await during()
            await trio.sleep(seconds)
            consumer.drain()

    def expired(self) -> list[events.RecordsExpired]:
        return [event for event in self.seen if isinstance(event, events.RecordsExpired)]

    def unexplained(self) -> list[int]:
        """Return the records that are neither read nor in what is reported."""
        spans = [(event.since, event.until) for event in self.expired()]
        unread = {number: at for number, at in self.put_at.items() if number not in self.got}
        return [n for n, at in unread.items() if not any(since <= at <= until + 1 for since, until in spans)]

    def hours_gone(self) -> list[float]:
        return [round(event.seconds / HOUR, 1) for event in self.expired()]


# --- reported --------------------------------------------------------------------------------------------------


@MODES
async def test_a_stop_for_longer_than_the_retention(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        world.put(1)
        await world.run()
        await trio.sleep(HOUR)
        world.put(2)  # nobody will ever read it
        await trio.sleep(2 * DAY)
        world.put(3)
        await world.run()
        assert world.got == [1, 3]
        assert world.hours_gone() == [pytest.approx(25.0, abs=0.3)]
        (event,) = world.expired()
        assert event.since == pytest.approx(fake.settings.epoch + 60, abs=60)
        assert event.until - event.since == pytest.approx(event.seconds)
        (lease,) = await world.store.list()
        assert lease.unread_since == pytest.approx(fake.clock(), abs=60)


@MODES
async def test_a_stop_for_longer_than_the_retention_of_a_shard_with_nothing_left(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        world.put(1)
        await world.run()
        world.put(2)
        await trio.sleep(3 * DAY)
        await world.run()
        assert world.got == [1]
        assert world.hours_gone() == [pytest.approx(48.0, abs=0.3)]


@MODES
async def test_a_reader_that_is_slower_than_the_retention(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        world.pace = 36 * HOUR
        world.put(1)

        async def during():
            for number in range(2, 14):
                await trio.sleep(6 * HOUR)
                world.put(number)

        await world.run(12 * HOUR, during, unsubscribe_idle_seconds=60.0)
        world.pace = 0.0
        await world.run()
        assert world.got[0] == 1
        assert world.got[-1] == 13
        assert len(world.got) < 13
        assert world.unexplained() == []
        assert world.expired() != []


@MODES
async def test_a_retention_that_is_decreased_while_the_reader_is_behind(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        fake.retain(STREAM, 7)
        world.put(1)
        await world.run()
        for number in range(2, 8):
            await trio.sleep(12 * HOUR)
            world.put(number)
        fake.retain(STREAM, 1)
        await world.run()
        assert world.got == [1, 5, 6, 7]
        assert world.unexplained() == []
        assert world.hours_gone() == [pytest.approx(48.0, abs=0.5)]


@MODES
async def test_a_shard_that_is_gone_entirely(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        world.put(1)
        await world.run()
        world.put(2)
        fake.split(STREAM, fake.open_shards(STREAM)[0])
        await trio.sleep(3 * DAY)
        world.put(3)
        await world.run(120)
        assert world.got == [1, 3]
        parent = world.expired()[0]
        assert parent.shard_id == "shardId-000000000000"
        assert parent.seconds == pytest.approx(2 * DAY, rel=0.01)


# --- not reported ----------------------------------------------------------------------------------------------


@MODES
async def test_a_stop_that_is_shorter_than_the_retention(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        for number in range(5):
            world.put(number)
            await world.run()
            await trio.sleep(20 * HOUR)
        assert world.got == [0, 1, 2, 3, 4]
        assert world.expired() == []


@MODES
async def test_a_shard_that_is_idle_for_longer_than_the_retention_while_it_is_read(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        world.put(1)

        async def during():
            await trio.sleep(1.5 * DAY)
            world.put(2)

        await world.run(60, during)
        await trio.sleep(HOUR)
        world.put(3)
        await world.run()  # its position is a record of days ago, and its time is not
        assert world.got == [1, 2, 3]
        assert world.expired() == []


@MODES
async def test_a_stop_longer_than_the_retention_is_not_reported_if_the_retention_is_longer(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        fake.retain(STREAM, 7)
        world.put(1)
        await world.run()
        await trio.sleep(3 * DAY)
        world.put(2)
        await world.run()
        assert world.got == [1, 2]
        assert world.expired() == []


@MODES
async def test_leases_that_do_not_know_their_time(autojump_clock, read_mode):
    # Those of KCL and of earlier versions: nothing is known, so nothing is claimed.
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        world.put(1)
        await world.run()
        for lease in await world.store.list():
            await world.store.delete(lease.key)
            await world.store.create(replace(lease, unread_since=None))
        await trio.sleep(3 * DAY)
        world.put(2)
        await world.run()
        assert world.got == [1, 2]
        assert world.expired() == []


@MODES
@pytest.mark.parametrize("initial", ["TRIM_HORIZON", "LATEST"])
async def test_a_first_start_wants_nothing_from_before(autojump_clock, read_mode, initial):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        world.put(1)
        await trio.sleep(3 * DAY)
        world.put(2)
        await world.run(initial_position=initial)
        assert world.expired() == []


@MODES
async def test_a_reset_wants_nothing_from_before(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        world.put(1)
        await world.run()
        await trio.sleep(3 * DAY)
        (lease,) = await world.store.list()
        await world.store.reset(lease, Checkpoint.TRIM_HORIZON)
        world.put(2)
        await world.run()
        assert world.got == [1, 2]
        assert world.expired() == []


@MODES
async def test_the_children_of_a_reshard_are_not_older_than_it(autojump_clock, read_mode):
    async with FakeKinesis(settings=FakeSettings(retention_hours=1)) as fake:
        world = World(fake, read_mode)
        world.put(1)

        async def during():
            await trio.sleep(1.5 * DAY)
            fake.split(STREAM, fake.open_shards(STREAM)[0])
            await trio.sleep(60)
            world.put(2)

        await world.run(120, during)
        assert world.got == [1, 2]
        assert world.expired() == []


# --- the judge by itself ---------------------------------------------------------------------------------------

H = 3600.0


class FakeControlPlane:
    """Describes a stream. `hours`: its retention period, or an error."""

    def __init__(self, hours: float | EfoError) -> None:
        self.hours = hours
        self.calls = 0

    async def describe_stream(self) -> StreamDescription:
        await trio.lowlevel.checkpoint()
        self.calls += 1
        if isinstance(self.hours, EfoError):
            raise self.hours
        return StreamDescription("s", "arn", "ACTIVE", self.hours)


class Judge:
    """ExpiredRecords with a fake stream. `now`: the service's time."""

    def __init__(self, nursery: trio.Nursery, hours: float | EfoError = 24.0) -> None:
        self.control = FakeControlPlane(hours)
        self.seen: list[events.RecordsExpired] = []
        self.now = 2400 * H
        self.expired = ExpiredRecords(StreamIdentity(self.control), lambda: self.now, self.seen.append)
        nursery.start_soon(self.expired.run)

    def of(self, since: float, shard_id: str = "s-0"):
        return self.expired.of_shard(Lease(shard_id, Checkpoint("7"), unread_since=since))

    def lose(self, since: float, until: float | None, shard_id: str = "s-0") -> None:
        """Let what arrived so many hours ago be suspected to have expired."""
        end = None if until is None else self.now - until * H
        self.expired._gaps.append((shard_id, Gap(self.now - since * H, end, self.now)))
        self.expired._suspected.set()

    def record(self, arrived_at: float) -> Record:
        return Record("9", arrived_at, b"", "k")


@pytest.fixture
async def judge(nursery):
    return partial(Judge, nursery)


async def test_a_thousand_shards_ask_once(autojump_clock, judge):
    judge = judge()
    for number in range(1000):
        judge.of(judge.now - 48 * H, f"s-{number}").received((), 0)
    await trio.sleep(1)
    assert judge.control.calls == 1
    assert len(judge.seen) == 1000


async def test_the_retention_is_asked_for_again_later(autojump_clock, judge):
    judge = judge(48.0)
    judge.of(judge.now - 30 * H).received((), 0)
    await trio.sleep(100)
    assert judge.seen == []
    judge.control.hours = 24.0
    judge.of(judge.now - 30 * H).received((), 0)
    await trio.sleep(1)
    assert [round(event.seconds / H) for event in judge.seen] == [6]


async def test_without_permission_the_shortest_retention_of_aws_is_assumed(autojump_clock, judge):
    judge = judge(AccessDeniedError("AccessDeniedException", "no"))
    judge.of(judge.now - 30 * H).received((), 0)
    await trio.sleep(1)
    assert [round(event.seconds / H) for event in judge.seen] == [6]


async def test_a_shard_that_goes_on_losing_records_is_reported_with_growing_pauses_and_nothing_is_left_out(
    autojump_clock,
):
    seen: list[tuple[float, events.RecordsExpired]] = []
    async with trio.open_nursery() as nursery:
        judge = Judge(nursery)
        judge.expired._observer = lambda event: seen.append((trio.current_time(), event))
        shard = judge.of(judge.now - 25 * H)
        for _ in range(200):
            judge.now += 60.0
            shard.received([judge.record(judge.now - 24 * H)], 86_400_000)  # it reads at the trim horizon
            await trio.sleep(60)
        nursery.cancel_scope.cancel()
    times = [at for at, _ in seen]
    assert times == [0, 60, 180, 420, 900, 1860, 3780, 7380, 10980, 12000]  # up to one hour apart, and at the end
    assert sum(event.seconds for _, event in seen) == pytest.approx(H + 200 * 60)
    assert all(one.until == other.since for (_, one), (_, other) in pairwise(seen))


async def test_what_is_not_judged_when_the_consumer_ends_is_judged_then(autojump_clock):
    async with trio.open_nursery() as nursery:
        judge = Judge(nursery)
        judge.of(judge.now - 30 * H).received((), 0)
        nursery.cancel_scope.cancel()
    assert [round(event.seconds / H) for event in judge.seen] == [6]


async def test_a_start_at_the_trim_horizon_that_runs_just_before_it_is_not_reported(autojump_clock, judge):
    judge = judge()
    shard = judge.of(judge.now - 24 * H)
    for seconds in range(59):  # sparse records, read one by one
        judge.now += 1
        shard.received([judge.record(judge.now - 24 * H + 300 * seconds)], 86_400_000)
        await trio.sleep(1)
    assert judge.seen == []


async def test_small_losses_add_up(autojump_clock, judge):
    judge = judge()
    shard = judge.of(judge.now - 24 * H)
    for _ in range(61):
        judge.now += 1
        shard.received([judge.record(judge.now - 24 * H)], 86_400_000)
        await trio.sleep(1)
    assert [round(event.seconds) for event in judge.seen] == [60]


async def test_of_several_shards_each_is_reported_when_it_is_due(autojump_clock, judge):
    judge, found = judge(), []
    judge.expired._observer = lambda event: found.append((event.shard_id, trio.current_time()))
    for hours in (72, 48):
        for shard_id in ("s-0", "s-1"):
            judge.lose(hours, hours - 12, shard_id)
            await trio.sleep(10)
    await trio.sleep(600)
    assert found == [("s-0", 0), ("s-1", 10), ("s-0", 60), ("s-1", 70)]


async def test_what_is_too_little_when_it_is_due_waits_for_more(autojump_clock, judge):
    judge = judge()
    judge.lose(72, 48)
    await trio.sleep(30)
    judge.lose(24 + 10 / 3600, None)
    await trio.sleep(600)
    assert [event.seconds for event in judge.seen] == [24 * H]
    judge.now += 50
    judge.lose(24 + 50 / 3600, None)
    await trio.sleep(1)
    assert [round(event.seconds) for event in judge.seen] == [24 * H, 60]


async def test_a_loss_that_is_known_does_not_begin_the_next_one(autojump_clock, judge):
    judge = judge()
    for since, until in ((72, 48), (72, 48), (40, 30)):
        judge.lose(since, until)
        await trio.sleep(100)
    assert [(event.since - judge.now) / H for event in judge.seen] == [-72, -40]


async def test_after_a_seek_the_time_of_the_new_place_counts(autojump_clock, judge):
    judge = judge()
    shard = judge.of(judge.now - 72 * H)
    shard.restart(judge.now - H)
    assert shard.since == judge.now - H
    shard.received((), 0)
    await trio.sleep(1)
    assert judge.seen == []


async def test_no_time_is_counted_twice(autojump_clock, judge):
    judge = judge()
    shard = judge.of(judge.now - 72 * H)
    for _ in range(10):
        shard.received((), 86_400_000)  # ranges without records, far behind the tip
        await trio.sleep(1)
    assert [event.seconds for event in judge.seen] == [48 * H]


async def test_a_shard_that_is_gone_ends_at_the_trim_horizon(autojump_clock, judge):
    judge = judge()
    judge.of(judge.now - 72 * H).gone()
    await trio.sleep(1)
    assert judge.seen == [events.RecordsExpired("s-0", judge.now - 72 * H, judge.now - 24 * H, 48 * H)]


async def test_gaps_are_judged_by_the_time_at_which_they_were_seen(autojump_clock, judge):
    judge = judge()
    judge.lose(24, None)
    judge.now += 24 * H
    await trio.sleep(1)
    assert judge.seen == []
