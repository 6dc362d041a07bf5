"""What a whole consumer knows of its shards, while Kinesis, the reader or the lease store fails, in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from efo.errors import IsolateShardError
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.faults import Stall
from efo.testing.faults.script import When
from tests.stores import UnreachableStore
from tests.workers import open_worker

STREAM = "orders"


async def read(shard):
    async for batch in shard:
        shard.ack(batch)


@asynccontextmanager
async def consuming(fake, store=None, reader=read, **settings):
    chosen = ConsumerSettings(**settings)
    async with (
        open_worker(fake.kinesis(STREAM), store or UnreachableStore(), chosen) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, reader)
        yield consumer
        nursery.cancel_scope.cancel()


def reported(consumer):
    """Return condition, state and lag of the one shard."""
    (shard,) = consumer.status().shards
    return shard.condition, shard.state, shard.lag


async def test_a_healthy_idle_shard_has_no_lag_at_any_time_also_over_renewals(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with consuming(fake) as consumer:
            await trio.sleep(7)
            for _ in range(1300):
                condition, _, lag = reported(consumer)
                assert (condition, lag) == ("current", 0)
                await trio.sleep(0.5)


async def test_a_frozen_stream_lags_and_is_frozen_after_ten_seconds_until_events_come_again(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with consuming(fake) as consumer:
            await trio.sleep(7)
            (shard,) = consumer.status().shards
            last_event_at = trio.current_time() - shard.last_event_age
            fault = fake.faults.add(Stall(), When(probability=1.0))
            await trio.sleep_until(last_event_at + 9.9)
            assert reported(consumer) == ("current", "live", 0)
            for seconds in (10.1, 20, 30):
                await trio.sleep_until(last_event_at + seconds)
                assert reported(consumer) == ("frozen", "live", pytest.approx(seconds))
            await trio.sleep_until(last_event_at + 75)  # efo has subscribed again meanwhile, in vain
            condition, _, lag = reported(consumer)
            assert (condition in {"frozen", "disconnected"}, lag) == (True, pytest.approx(75))
            fake.faults.remove(fault)
            await trio.sleep(60)
            assert reported(consumer) == ("current", "live", 0)


async def test_a_reader_that_takes_nothing_lags_and_is_not_frozen(autojump_clock):
    async def stuck(shard):
        async for _ in shard:
            await trio.sleep_forever()

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put(STREAM, "key", b"x")
        async with consuming(fake, reader=stuck) as consumer:
            await trio.sleep(20)
            condition, state, lag = reported(consumer)
            assert (condition, state) == ("unread", "live")
            assert 19 <= lag <= 20
            await trio.sleep(60)
            condition, state, lag = reported(consumer)
            assert (condition, state) == ("unread", "unsubscribed")
            assert 79 <= lag <= 80
            (shard,) = consumer.status().shards
            assert 79 <= shard.checkpoint_age <= 80


async def test_a_stream_that_froze_behind_a_busy_reader_is_frozen_ten_seconds_after_the_reader_waits_again(
    autojump_clock,
):
    async def busy(shard):
        async for batch in shard:
            await released.wait()
            shard.ack(batch)

    released = trio.Event()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with consuming(fake, reader=busy) as consumer:
            await trio.sleep(7)
            fake.put(STREAM, "key", b"x")
            await trio.sleep(1)
            fake.faults.add(Stall(), When(probability=1.0))
            await trio.sleep(30)
            assert reported(consumer)[:2] == ("unread", "live")  # nothing has arrived, but nothing was wanted either
            released.set()
            await trio.sleep(9.9)
            assert reported(consumer)[:2] == ("current", "live")
            await trio.sleep(0.2)
            assert reported(consumer)[:2] == ("frozen", "live")


async def test_what_is_not_acked_is_as_far_behind_as_its_event_was(autojump_clock):
    async def hold(shard):
        async for _ in shard:
            readings.append(shard.reading())
            await trio.sleep_forever()

    readings = []
    async with FakeKinesis(settings=FakeSettings(event_records=1)) as fake:
        fake.create_stream(STREAM)
        fake.put(STREAM, "key", b"first")
        fake.put(STREAM, "key", b"second")
        async with consuming(fake, reader=hold, initial_position="TRIM_HORIZON"):
            await trio.sleep(10)
    (reading,) = readings
    assert reading.unacked_behind == reading.millis_behind_latest / 1000 > 0


async def test_a_paused_shard_lags_and_is_paused(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with consuming(fake) as consumer:
            await trio.sleep(6)
            consumer.pause(fake.open_shards(STREAM)[0])
            await trio.sleep(30)
            condition, _, lag = reported(consumer)
            assert condition == "paused"
            assert 30 <= lag <= 35
            consumer.resume(fake.open_shards(STREAM)[0])
            await trio.sleep(6)
            assert reported(consumer) == ("current", "live", 0)


async def test_a_shard_that_is_given_up_with_a_dead_lease_store_lags_and_the_table_is_unknown(autojump_clock):
    store = UnreachableStore()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with consuming(fake, store, failover_seconds=10) as consumer:
            await trio.sleep(20)
            assert consumer.counts().leases == {"held": 1, "unowned": 0, "expired": 0}
            store.is_down = True
            await trio.sleep(10)
            assert reported(consumer)[:2] == ("no_lease", "no_lease")
            await trio.sleep(30)
            assert consumer.counts() is None
            assert consumer.status().counts is None
            assert reported(consumer)[2] > 30
            store.is_down = False
            await trio.sleep(10)
            assert reported(consumer) == ("current", "live", 0)
            assert consumer.status().counts["consuming"] == 1


async def test_a_shard_that_another_worker_reads_is_not_reported_by_its_former_reader(autojump_clock):
    store = UnreachableStore()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with consuming(fake, store) as consumer:
            await trio.sleep(20)
            store.is_down = True
            await trio.sleep(10)
            store.is_down = False
            (lease,) = await store.list()
            await store.take(lease, "other")
            await trio.sleep(2)
            assert consumer.status().shards == ()


async def test_an_isolated_shard_lags_until_it_is_read_again(autojump_clock):
    async def fail_once(shard):
        if not failed:
            failed.append(shard)
            raise IsolateShardError("no room", cooldown=30)
        await read(shard)

    failed = []
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with consuming(fake, reader=fail_once) as consumer:
            await trio.sleep(25)
            condition, state, lag = reported(consumer)
            assert (condition, state) == ("isolated", "isolated")
            assert 20 <= lag <= 25
            await trio.sleep(20)
            assert reported(consumer) == ("current", "live", 0)


async def test_the_checkpoint_has_the_age_of_the_first_record_that_it_does_not_include(autojump_clock):
    async def hold(shard):
        async for batch in shard:
            await release.wait()
            shard.ack(batch)

    release = trio.Event()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with consuming(fake, reader=hold) as consumer:
            await trio.sleep(10)
            (shard,) = consumer.status().shards
            assert shard.checkpoint_age == 0
            fake.put(STREAM, "key", b"x")
            await trio.sleep(8)
            (shard,) = consumer.status().shards
            assert 7.5 <= shard.checkpoint_age <= 8
            release.set()
            await trio.sleep(6)
            (shard,) = consumer.status().shards
            assert shard.checkpoint_age == 0
            assert shard.saved_age < 6
