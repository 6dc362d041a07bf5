"""Whole consumers that poll, or fall back to polling: idle shards, quota, denial, and the way back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from efo import events
from efo.consumer.shard_stream import ShardStream
from efo.errors import AccessDeniedError, ConsumerLimitError, ConsumerNotFoundError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint
from efo.protocol.denials import GRACE
from efo.settings import LATEST, ConsumerSettings, ReadMode
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.faults.kinds import Refuse
from efo.testing.faults.script import ALWAYS, When
from tests.workers import open_worker

STREAM = "orders"
POLLING = ConsumerSettings(read_mode="polling")
DENIED = Refuse("AccessDeniedException")
OF_SUBSCRIBE = When(operation="SubscribeToShard", times=ALWAYS)
Clock = trio.testing.MockClock


class Reading:
    """Runs workers one after the other on one lease store. `numbers`: what they read, in order."""

    def __init__(self, fake: FakeKinesis) -> None:
        self.fake = fake
        self.store = MemoryLeaseStore()
        self.numbers: list[int] = []
        self.seen: list[events.Event] = []

    async def __call__(self, shard: ShardStream) -> None:
        async for batch in shard:
            self.numbers += [int(record.data) for record in batch]
            shard.ack(batch)

    async def run(self, settings: ConsumerSettings, seconds: float) -> None:
        """Run a worker for a time, and stop it."""
        opening = open_worker(self.fake.kinesis(STREAM), self.store, settings, self.seen.append)
        async with opening as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, self)
            await trio.sleep(seconds)
            consumer.drain()

    async def put(self, count: int, every: float = 0.5) -> None:
        """Put the numbers from 0, for one key."""
        for number in range(count):
            self.fake.put(STREAM, "k", b"%d" % number)
            await trio.sleep(every)

    @property
    def modes(self) -> list[tuple[str, str | None]]:
        """The changes of the read mode, with their reasons."""
        return [(event.mode, event.error_type) for event in self.seen if isinstance(event, events.ReadModeChanged)]

    async def checkpoint(self) -> Checkpoint:
        (lease,) = await self.store.list()
        return lease.checkpoint


async def test_polling_registers_no_fan_out_consumer_and_makes_no_subscription(autojump_clock: Clock) -> None:
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        reading = Reading(fake)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reading.put, 20)
            await reading.run(POLLING, 15)
        assert reading.numbers == list(range(20))
        description = await fake.kinesis(STREAM).control_plane.describe_stream()
        assert await fake.kinesis(STREAM).control_plane.list_consumers(description.arn) == []
        assert not any(isinstance(event, events.SubscribeAttempted) for event in reading.seen)


async def test_a_polled_idle_shard_keeps_its_checkpoint_and_a_restart_repeats_nothing(autojump_clock: Clock) -> None:
    """Also when the record of the checkpoint has passed its retention meanwhile (rule R3)."""
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        reading = Reading(fake)
        _, number = fake.put(STREAM, "k", b"0")
        await reading.run(POLLING, 600)
        assert await reading.checkpoint() == Checkpoint(number)
        fake.put(STREAM, "k", b"1")
        await reading.run(POLLING, 10)
        await trio.sleep(30 * 3600)  # a record is retained for 24 hours
        fake.put(STREAM, "k", b"2")
        await reading.run(POLLING, 10)
        assert reading.numbers == [0, 1, 2]


async def test_a_polled_shard_without_records_starts_at_its_pinned_latest_again(autojump_clock: Clock) -> None:
    settings = ConsumerSettings(read_mode="polling", initial_position=LATEST)
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        reading = Reading(fake)
        fake.put(STREAM, "k", b"0")
        await trio.sleep(1)
        await reading.run(settings, 60)
        fake.put(STREAM, "k", b"1")  # nobody reads
        await trio.sleep(60)
        await reading.run(settings, 10)
        assert reading.numbers == [1]


@pytest.mark.parametrize("second", ["fanout", "polling", "auto"])
@pytest.mark.parametrize("first", ["fanout", "polling", "auto"])
async def test_another_worker_may_read_in_another_mode(
    autojump_clock: Clock, first: ReadMode, second: ReadMode
) -> None:
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        reading = Reading(fake)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reading.put, 100)
            await reading.run(ConsumerSettings(read_mode=first), 20)
            await reading.run(ConsumerSettings(read_mode=second), 40)
        assert reading.numbers == list(range(100))


def full_quota(fake: FakeKinesis) -> Callable[[], object]:
    """Use up the stream's quota of fan-out consumers; return what makes room for one."""
    arns = [fake.register(STREAM, f"other-{number}").arn for number in range(20)]
    return lambda: fake.deregister(arns[0])


async def test_auto_polls_while_the_quota_is_used_up_and_goes_back(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("efo.consumer.shard_sources.FANOUT_RETRY_INTERVAL", 60)
    async with FakeKinesis(settings=FakeSettings(consumers_creating=50)) as fake:
        fake.create_stream(STREAM)
        reading, make_room = Reading(fake), full_quota(fake)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reading.put, 400)
            nursery.start_soon(reading.run, ConsumerSettings(read_mode="auto"), 210)
            await trio.sleep(90)
            assert reading.modes == [("polling", "consumer_limit")]
            make_room()
        assert reading.numbers == list(range(400))
        assert reading.modes == [("polling", "consumer_limit"), ("fanout", None)]
        assert [type(event) for event in reading.seen].count(events.ConsumerReady) == 1


@pytest.mark.parametrize(("given", "modes"), [(None, []), ("by ARN", [("polling", "consumer_not_found")])])
async def test_auto_goes_on_when_its_consumer_is_deleted(
    autojump_clock: Clock, given: str | None, modes: list[tuple[str, str]]
) -> None:
    """It registers its own one again (rule R13), and polls without one that was given by its ARN."""
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        consumer = fake.register(STREAM, "app")
        settings = ConsumerSettings(read_mode="auto", consumer_arn=consumer.arn if given else None)
        reading = Reading(fake)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reading.put, 200)
            nursery.start_soon(reading.run, settings, 110)
            await trio.sleep(20)
            fake.deregister(consumer.arn)
        assert reading.numbers == list(range(200))
        assert reading.modes == modes


async def test_fan_out_alone_stops_when_its_given_consumer_is_deleted(autojump_clock: Clock) -> None:
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        consumer = fake.register(STREAM, "app")
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                with pytest.raises(ConsumerNotFoundError, match="ask its owner for the ARN of the present one"):
                    await Reading(fake).run(ConsumerSettings(consumer_arn=consumer.arn), 60)

            nursery.start_soon(run)
            await trio.sleep(20)
            fake.deregister(consumer.arn)


async def test_auto_changes_often_and_loses_and_repeats_nothing(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("efo.consumer.shard_sources.FANOUT_RETRY_INTERVAL", 5)
    async with FakeKinesis(settings=FakeSettings(subscription_life=20.0)) as fake:
        fake.create_stream(STREAM, shards=2)
        reading = Reading(fake)
        for start in range(0, 300, 60):
            fake.faults.add(DENIED, When(operation="SubscribeToShard", times=ALWAYS, start=start, stop=start + 30))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reading.put, 600)
            nursery.start_soon(reading.run, ConsumerSettings(read_mode="auto"), 310)
            await trio.sleep(100)
            fake.split(STREAM, fake.open_shards(STREAM)[0])
            await trio.sleep(100)
            fake.merge(STREAM, *fake.open_shards(STREAM)[:2])
        assert reading.numbers == list(range(600))
        assert len(reading.modes) >= 8


async def test_the_status_says_how_shards_are_read(autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efo.consumer.shard_sources.FANOUT_RETRY_INTERVAL", 10)
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        rule = fake.faults.add(DENIED, OF_SUBSCRIBE)
        reading, settings = Reading(fake), ConsumerSettings(read_mode="auto")
        async with (
            open_worker(fake.kinesis(STREAM), reading.store, settings) as consumer,
            trio.open_nursery() as nursery,
        ):
            assert consumer.status().read_mode == "fanout"
            nursery.start_soon(consumer.run, reading)
            await trio.sleep(5)
            status = consumer.status()
            assert status.read_mode == "polling"
            assert "not authorized" in (status.fan_out_error or "") or "AccessDenied" in (status.fan_out_error or "")
            (shard,) = status.shards
            assert (shard.state, shard.condition, shard.lag, shard.read_mode) == ("live", "current", 0.0, "polling")
            assert shard.last_event_age is not None
            assert shard.last_event_age <= 1.0  # of the last page
            fake.faults.remove(rule)
            await trio.sleep(15)
            status = consumer.status()
            assert (status.read_mode, status.fan_out_error, status.shards[0].read_mode) == ("fanout", None, "fanout")
            consumer.drain()


async def test_fan_out_alone_does_not_poll(autojump_clock: Clock) -> None:
    async with FakeKinesis(settings=FakeSettings(consumers_creating=50)) as fake:
        fake.create_stream(STREAM)
        make_room = full_quota(fake)
        with pytest.raises(ConsumerLimitError, match="read without one: read_mode 'polling' or 'auto'"):
            await Reading(fake).run(ConsumerSettings(), 10)
        make_room()
        await trio.sleep(2)
        fake.faults.add(DENIED, OF_SUBSCRIBE)
        with pytest.raises(AccessDeniedError):
            await Reading(fake).run(ConsumerSettings(), GRACE + 40)
