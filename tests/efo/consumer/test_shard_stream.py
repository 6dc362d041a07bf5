"""Shard streams: pause, resume, seek, acks, and idle subscriptions, over FakeKinesis in virtual time (rule R9)."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager

import pytest
import trio

from efo import events
from efo.consumer.consumer import Consumer
from efo.consumer.shard_stream import ShardStream
from efo.errors import ConfigurationError, ShardNotReadError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, Lease, Position
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from tests.workers import open_worker

STREAM = "orders"


class Environment:
    """A fake with a stream, and a reader of its shards. `received`: the numbers that the reader got.

    `pace`: seconds that the reader takes for each batch. `acks`: whether it acks. `shard_id`: the first shard.
    """

    def __init__(self, fake: FakeKinesis) -> None:
        self.fake = fake
        self.store = MemoryLeaseStore()
        self.seen: list[events.Event] = []
        self.received: list[int] = []
        self.shard_id = fake.open_shards(STREAM)[0]
        self.pace = 0.0
        self.acks = True

    async def read(self, shard: ShardStream) -> None:
        async for batch in shard:
            await trio.sleep(self.pace)
            self.received += [int(record.data) for record in batch.records]
            if self.acks:
                shard.ack(batch)

    @asynccontextmanager
    async def consuming(self, read=None, *, until=None, **changes: object):
        settings = ConsumerSettings(**changes)
        async with (
            open_worker(
                self.fake.kinesis(STREAM), self.store, settings, self.seen.append, rng=random.Random(1), until=until
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, read or self.read)
            yield consumer
            consumer.drain()

    def put(self, *numbers: int) -> list[str]:
        return [self.fake.put(STREAM, "k", b"%d" % n)[1] for n in numbers]

    def number(self, index: int) -> str:
        return self.fake.records(STREAM)[self.shard_id][index].sequence_number

    @property
    def live(self) -> int:
        return self.fake.subscriptions(STREAM, self.shard_id).live

    def end_reasons(self) -> list[str]:
        return [event.reason for event in self.seen if isinstance(event, events.SubscriptionEnded)]

    async def checkpoint(self) -> Checkpoint:
        (lease,) = [lease for lease in await self.store.list() if lease.key == self.shard_id]
        return lease.checkpoint


@asynccontextmanager
async def open_environment(**settings: object):
    async with FakeKinesis(settings=FakeSettings(**settings)) as fake:
        fake.create_stream(STREAM)
        yield Environment(fake)


# --- pause and resume --------------------------------------------------------------------------------------


async def test_a_paused_shard_delivers_nothing_and_continues_at_the_same_place(autojump_clock):
    async with open_environment() as env, env.consuming() as consumer:
        env.put(*range(3))
        await trio.sleep(5)
        consumer.pause(env.shard_id)
        consumer.pause(env.shard_id)
        assert consumer.status().shards[0].is_paused
        for n in range(3, 100):
            env.put(n)
            await trio.sleep(10)  # much longer than a subscription lives
        assert env.received == [0, 1, 2]
        consumer.resume(env.shard_id)
        consumer.resume(env.shard_id)
        assert not consumer.status().shards[0].is_paused
        await trio.sleep(10)
        assert env.received == list(range(100))
        kinds = [type(event) for event in env.seen if isinstance(event, events.ShardPaused | events.ShardResumed)]
        assert kinds == [events.ShardPaused, events.ShardResumed]
        assert (await env.checkpoint()) >= Checkpoint(env.number(99))


async def test_a_paused_shard_keeps_its_lease_and_drains(autojump_clock):
    async with open_environment() as env:
        async with env.consuming() as consumer:
            env.put(1)
            await trio.sleep(3)
            consumer.pause(env.shard_id)
            await trio.sleep(300)
            assert [lease.owner for lease in await env.store.list()] == ["worker"]
        assert (await env.checkpoint()) >= Checkpoint(env.number(0))
        assert [lease.owner for lease in await env.store.list()] == [None]


async def test_pauses_at_any_moment_of_a_delivery_lose_nothing(autojump_clock):
    async with open_environment() as env, env.consuming() as consumer:
        for n in range(200):
            env.put(n)
            await trio.lowlevel.checkpoint()
            (consumer.pause if n % 2 else consumer.resume)(env.shard_id) if consumer.status().shards else None
            await trio.sleep(random.Random(n).random() * 0.02)
        if consumer.status().shards[0].is_paused:
            consumer.resume(env.shard_id)
        await trio.sleep(20)
        assert env.received == list(range(200))


# --- the end -----------------------------------------------------------------------------------------------


async def test_a_consumer_ends_when_all_was_read_though_a_reader_goes_on(autojump_clock):
    """Not only at the next lease scan, nor when the reader returns: an iteration waits for it (`on_end`)."""
    async with open_environment() as env:
        env.put(*range(3))
        read_at, ended_at = [], []

        async def read(shard):
            await env.read(shard)
            read_at.append(trio.current_time())
            await trio.sleep(100)

        async with env.consuming(read, until="now", lease_scan_seconds=30) as consumer:
            consumer.on_end = lambda: ended_at.append(trio.current_time())
            await trio.sleep(90)
            assert env.received == [0, 1, 2]
            assert ended_at == read_at


async def test_a_consumer_is_caught_up_when_all_up_to_the_tip_is_delivered_and_acked(autojump_clock):
    delivered, received = trio.open_memory_channel(1)

    async def read(shard):
        async for batch in shard:
            await delivered.send((shard, batch))

    async with open_environment() as env, env.consuming(read, lease_scan_seconds=1) as consumer:
        env.put(1)
        await trio.sleep(10)
        assert not consumer.caught_up()  # not acked
        shard, batch = received.receive_nowait()
        shard.ack(batch)
        assert consumer.caught_up()
        consumer.pause(env.shard_id)
        env.put(2)
        await trio.sleep(10)
        assert not consumer.caught_up()  # not delivered


# --- idle subscriptions ------------------------------------------------------------------------------------


async def test_an_idle_subscription_is_closed_and_reopened_without_loss_or_repetition(autojump_clock):
    async with open_environment(event_records=1) as env, env.consuming(unsubscribe_idle_seconds=60) as consumer:
        env.put(*range(5))
        await trio.sleep(3)
        assert env.live == 1
        consumer.pause(env.shard_id)
        env.put(*range(5, 10))
        await trio.sleep(59)
        assert env.live == 1
        await trio.sleep(2)
        assert (env.live, env.end_reasons()) == (0, ["idle"])
        await trio.sleep(1000)
        before = env.fake.subscriptions(STREAM, env.shard_id).made
        consumer.resume(env.shard_id)
        await trio.sleep(10)
        assert env.received == list(range(10))
        assert (env.live, env.fake.subscriptions(STREAM, env.shard_id).made) == (1, before + 1)


async def test_a_reader_that_waits_for_events_longer_than_it_may_be_idle_stays_subscribed(autojump_clock):
    async with open_environment(idle_interval=20.0) as env, env.consuming(unsubscribe_idle_seconds=10):
        await trio.sleep(200)
        assert (env.live, env.end_reasons()) == (1, [])


async def test_the_subscription_of_a_reader_that_is_busy_for_long_is_closed(autojump_clock):
    async with open_environment(event_records=1) as env, env.consuming(unsubscribe_idle_seconds=30):
        env.pace = 100.0
        env.put(*range(5))
        await trio.sleep(90)
        assert env.live == 0
        await trio.sleep(600)
        assert env.received == list(range(5))
        assert set(env.end_reasons()) == {"idle"}


async def test_the_subscription_of_a_reader_that_keeps_up_is_never_idle(autojump_clock):
    async with open_environment(event_records=1) as env, env.consuming(unsubscribe_idle_seconds=10):
        env.pace = 9.0
        env.put(*range(20))
        await trio.sleep(240)
        assert env.received == list(range(20))
        assert "idle" not in env.end_reasons()


async def test_a_reader_that_is_busy_at_the_end_of_a_shard_still_finishes_it(autojump_clock):
    async with open_environment() as env, env.consuming(unsubscribe_idle_seconds=10):
        env.pace = 100.0
        env.put(1)
        env.fake.split(STREAM, env.shard_id)
        await trio.sleep(150)
        assert env.received == [1]
        assert (await env.checkpoint()) == Checkpoint.SHARD_END


# --- seek --------------------------------------------------------------------------------------------------


async def test_seeks_to_checkpoints_and_positions_move_back_and_forward(autojump_clock):
    async with open_environment() as env, env.consuming() as consumer:
        numbers = env.put(*range(10))
        await trio.sleep(3)
        consumer.seek(env.shard_id, Checkpoint(numbers[6]))
        await trio.sleep(10)
        consumer.seek(env.shard_id, Position.at(numbers[8]))
        await trio.sleep(10)
        consumer.seek(env.shard_id, Position.after(numbers[8]))
        await trio.sleep(10)
        consumer.seek(env.shard_id, Position.trim_horizon())
        await trio.sleep(10)
        consumer.seek(env.shard_id, Position.latest())
        await trio.sleep(3)
        env.put(10)
        await trio.sleep(10)
        assert env.received == [*range(10), 7, 8, 9, 8, 9, 9, *range(10), 10]
        assert next(event.to for event in env.seen if isinstance(event, events.ShardRepositioned)) == Checkpoint(
            numbers[6]
        )
        assert (await env.checkpoint()) >= Checkpoint(env.number(10))


async def test_a_seek_to_a_time_continues_with_the_records_since_then(autojump_clock):
    async with open_environment() as env, env.consuming() as consumer:
        env.put(0)
        await trio.sleep(100)
        middle = env.fake.clock()
        env.put(1)
        await trio.sleep(3)
        consumer.seek(env.shard_id, Position.at_timestamp(middle))
        await trio.sleep(10)
        assert env.received == [0, 1, 1]


async def test_acks_of_batches_from_before_a_seek_do_not_move_the_checkpoint(autojump_clock):
    shard, batches = None, []

    async def read(stream: ShardStream) -> None:
        nonlocal shard
        shard = stream
        async for batch in stream:
            batches.append(batch)  # noqa: PERF401 - the test reads it meanwhile

    async with open_environment() as env, env.consuming(read):
        numbers = env.put(*range(10))
        await trio.sleep(3)
        shard.seek(Checkpoint(numbers[2]))
        await trio.sleep(10)
        before, after = batches
        shard.ack(before)
        shard.ack_record(before, before.records[3])
        await trio.sleep(10)
        assert (await env.checkpoint()) == Checkpoint(numbers[2])
        assert not shard.is_wanted(before)
        shard.ack_record(after, after.records[0])
        await trio.sleep(10)
        assert (await env.checkpoint()) == Checkpoint(numbers[3])
        shard.ack(after)
        await trio.sleep(10)
        assert (await env.checkpoint()) >= Checkpoint(numbers[9])


async def test_a_seek_during_a_delivery_drops_the_records_before_its_target(autojump_clock):
    received = []

    async def read(shard: ShardStream) -> None:
        async for batch in shard:
            received.extend(batch.records)
            shard.ack(batch)

    async with open_environment() as env, env.consuming(read) as consumer:
        await trio.sleep(3)
        seen = []
        for n in range(80):
            last = env.put(n)[0]
            for _ in range(n):
                await trio.lowlevel.checkpoint()  # the event is on its way from the fake to the reader
            seen.append(len(received))
            received.clear()
            consumer.seek(env.shard_id, Checkpoint(last))
            await trio.sleep(8)
            assert received == []
        assert set(seen) == {0, 1}  # both cases happened: the seek came before, and after the delivery


async def test_a_seek_into_an_aggregate_drops_the_user_records_before_it(autojump_clock):
    async with open_environment() as env, env.consuming() as consumer:
        _, number = env.fake.put(STREAM, "outer", aggregate([AggregateEntry("k", b"%d" % n) for n in range(5)]))
        await trio.sleep(3)
        consumer.seek(env.shard_id, Checkpoint(number, 2))
        await trio.sleep(10)
        assert env.received == [0, 1, 2, 3, 4, 3, 4]


class TestLargeAggregates:
    """The user records of a large aggregate are several batches."""

    COUNT = 25_000

    def put(self, env):
        """Put a large aggregate, and a record after it. Return the sequence number of the aggregate."""
        entries = [AggregateEntry("k", b"%d" % n) for n in range(self.COUNT)]
        _, number = env.fake.put(STREAM, "outer", aggregate(entries))
        env.put(self.COUNT)
        return number

    async def test_every_batch_but_the_last_is_without_a_continuation(self, autojump_clock):
        batches = []

        async def read(shard: ShardStream) -> None:
            async for batch in shard:
                batches.append(batch)
                shard.ack(batch)

        async with open_environment() as env:
            number = self.put(env)
            async with env.consuming(read):
                await trio.sleep(3)
        records = [record for batch in batches for record in batch]
        assert [int(record.data) for record in records] == list(range(self.COUNT + 1))
        assert max(map(len, batches)) <= 10_000
        *parts, last = [batch for batch in batches if any(record.sequence_number == number for record in batch)]
        assert len(parts) >= 2
        assert {batch.continuation for batch in parts} == {None}
        assert int(last.continuation) >= int(number)

    async def test_an_ack_of_one_batch_saves_the_checkpoint_within_the_aggregate(self, autojump_clock):
        """Rule R3: the continuation is not saved before the last batch is acked."""
        acked = []

        async def read(shard: ShardStream) -> None:
            async for batch in shard:
                if not acked:
                    acked.append(batch)
                    shard.ack(batch)

        async with open_environment() as env:
            number = self.put(env)
            async with env.consuming(read):
                await trio.sleep(10)
            assert (await env.checkpoint()) == Checkpoint(number, len(acked[0]) - 1)

    async def test_a_restart_within_the_aggregate_loses_and_repeats_nothing(self, autojump_clock):
        """Rule R5: each reader stops after one batch."""

        async def read(shard: ShardStream) -> None:
            async for batch in shard:
                env.received += [int(record.data) for record in batch]
                shard.ack(batch)
                shard.drain()

        async with open_environment() as env:
            self.put(env)
            restarts = 0
            while len(env.received) <= self.COUNT:
                async with env.consuming(read):
                    await trio.sleep(3)
                restarts += 1
        assert env.received == list(range(self.COUNT + 1))
        assert restarts >= 3

    async def test_a_pause_between_two_batches_loses_nothing(self, autojump_clock):
        async def read(shard: ShardStream) -> None:
            async for batch in shard:
                env.received += [int(record.data) for record in batch]
                consumer.pause(shard.shard_id)
                shard.ack(batch)

        async with open_environment() as env:
            self.put(env)
            async with env.consuming(read) as consumer:
                for _ in range(6):
                    await trio.sleep(100)  # longer than an idle shard stays subscribed
                    consumer.resume(env.shard_id)
                await trio.sleep(3)
        assert env.received == list(range(self.COUNT + 1))

    async def test_a_seek_between_two_batches_forgets_the_rest(self, autojump_clock):
        async def read(shard: ShardStream) -> None:
            async for batch in shard:
                env.received += [int(record.data) for record in batch]
                if batch.records[0].sequence_number == number and not seeks:
                    seeks.append(len(batch))
                    shard.seek(Checkpoint(number, self.COUNT - 2))
                else:
                    shard.ack(batch)

        seeks = []
        async with open_environment() as env:
            number = self.put(env)
            async with env.consuming(read):
                await trio.sleep(10)
        assert env.received == [*range(seeks[0]), self.COUNT - 1, self.COUNT]

    async def test_other_tasks_run_between_the_batches(self, autojump_clock):
        turns, seen = 0, []

        async def read(shard: ShardStream) -> None:
            async for batch in shard:
                seen.append(turns)
                shard.ack(batch)

        async with open_environment() as env:
            self.put(env)
            async with env.consuming(read), trio.open_nursery() as nursery:

                @nursery.start_soon
                async def count() -> None:
                    nonlocal turns
                    while len(seen) < 3:
                        turns += 1
                        await trio.lowlevel.checkpoint()

                await trio.sleep(3)
        assert seen[0] < seen[2]  # trio runs the tasks of one turn in any order


async def test_a_seek_to_a_checkpoint_is_saved_at_a_drain(autojump_clock):
    async with open_environment() as env:
        async with env.consuming() as consumer:
            numbers = env.put(*range(5))
            await trio.sleep(3)
            consumer.seek(env.shard_id, Checkpoint(numbers[1]))
        assert (await env.checkpoint()) == Checkpoint(numbers[1])


@pytest.mark.parametrize("checkpoint", [Checkpoint.LATEST, Checkpoint.SHARD_END])
async def test_a_seek_to_a_checkpoint_that_names_no_place_is_rejected(autojump_clock, checkpoint):
    async with open_environment() as env, env.consuming() as consumer:
        await trio.sleep(3)
        with pytest.raises(ConfigurationError, match="Position"):
            consumer.seek(env.shard_id, checkpoint)
        consumer.seek(env.shard_id, Checkpoint.TRIM_HORIZON)


async def test_pause_resume_and_seek_are_rejected_for_shards_that_are_not_read(autojump_clock):
    streams = []

    async def read(shard: ShardStream) -> None:
        streams.append(shard)
        async for batch in shard:
            shard.ack(batch)

    async with open_environment() as env, env.consuming(read) as consumer:
        for call in (
            consumer.pause,
            consumer.resume,
            lambda shard_id: consumer.seek(shard_id, Checkpoint.TRIM_HORIZON),
        ):
            with pytest.raises(ShardNotReadError, match="shardId-7"):
                call("shardId-7")
        await trio.sleep(3)
        env.fake.split(STREAM, env.shard_id)
        await trio.sleep(5)
        with pytest.raises(ShardNotReadError, match="ended"):
            streams[0].seek(Checkpoint.TRIM_HORIZON)


# --- single acks -------------------------------------------------------------------------------------------


async def test_records_may_be_acked_in_any_order(autojump_clock):
    async def read(shard: ShardStream) -> None:
        async for batch in shard:
            for record in reversed(batch.records):
                if record.data != b"2":
                    shard.ack_record(batch, record)

    async with open_environment() as env:
        async with env.consuming(read):
            numbers = env.put(*range(5))
            await trio.sleep(20)
        assert (await env.checkpoint()) == Checkpoint(numbers[1])
        async with env.consuming():
            await trio.sleep(10)
        assert env.received == [2, 3, 4]


async def test_a_checkpoint_is_saved_at_once_on_request(autojump_clock):
    saved = []

    async def read(shard: ShardStream) -> None:
        async for batch in shard:
            shard.ack_to(Checkpoint(batch.records[0].sequence_number))
            started = trio.current_time()
            await shard.save()
            saved.append((await env.checkpoint(), trio.current_time() - started))
            with pytest.raises(ConfigurationError, match="LATEST"):
                shard.ack_to(Checkpoint.LATEST)

    async with open_environment() as env, env.consuming(read):
        numbers = env.put(*range(3))
        await trio.sleep(0.5)
        assert saved == [(Checkpoint(numbers[0]), 0)]


# --- selected shards, and start positions ------------------------------------------------------------------


@pytest.mark.parametrize("selection", ["ids", "function"])
async def test_only_selected_shards_are_taken(autojump_clock, selection):
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=4)
        env = Environment(fake)
        wanted = set(fake.open_shards(STREAM)[1:3])
        select = sorted(wanted) if selection == "ids" else lambda lease: lease.key in wanted
        async with env.consuming(shards=select) as consumer:
            fake.put_many(STREAM, [(f"k{n}", b"%d" % n) for n in range(100)])
            await trio.sleep(30)
            assert {shard.shard_id for shard in consumer.status().shards} == wanted
            owners = {lease.key: lease.owner for lease in await env.store.list()}
            assert {key for key, owner in owners.items() if owner} == wanted
        expected = [int(r.data) for key, records in fake.records(STREAM).items() if key in wanted for r in records]
        assert sorted(env.received) == sorted(expected)


async def test_a_restarted_worker_releases_its_lease_of_a_shard_that_is_not_selected(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        env = Environment(fake)
        first, second = fake.open_shards(STREAM)
        await env.store.create(Lease(first, Checkpoint.TRIM_HORIZON, owner="worker", counter=3))
        async with env.consuming(shards=[second]) as consumer:
            await trio.sleep(10)
            assert [shard.shard_id for shard in consumer.status().shards] == [second]
            assert {lease.key: lease.owner for lease in await env.store.list()} == {first: None, second: "worker"}


def test_a_single_shard_id_as_a_string_is_rejected():
    with pytest.raises(ConfigurationError, match="shards"):
        ConsumerSettings(shards="shardId-000000000000")


async def test_start_at_sets_the_start_of_each_new_shard(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=3)
        env = Environment(fake)
        fake.put_many(STREAM, [(f"k{n}", b"%d" % n) for n in range(60)])
        await trio.sleep(10)
        first, second, third = fake.open_shards(STREAM)
        records = fake.records(STREAM)
        at = records[second][4].sequence_number
        starts = {first: Position.latest(), second: Checkpoint(at)}
        async with env.consuming(start_at=lambda lease: starts.get(lease.key)):
            await trio.sleep(10)
        assert sorted(env.received) == sorted(int(r.data) for r in (*records[second][5:], *records[third]))
        env.received.clear()
        async with env.consuming(start_at=lambda _lease: Position.trim_horizon()):
            await trio.sleep(10)
        assert env.received == []  # start_at has no effect on shards that were read before


@pytest.mark.parametrize("how", ["initial_position", "start_at", "seek"])
@pytest.mark.parametrize("seconds", [60.0, 3600.0])
async def test_a_time_in_the_future_is_a_mistake_unless_clocks_may_differ_by_that_much(autojump_clock, how, seconds):
    async with open_environment() as env:
        future = Position.at_timestamp(env.fake.clock() + seconds)
        settings = {
            "initial_position": {"initial_position": future},
            "start_at": {"start_at": lambda _lease: future},
            "seek": {},
        }[how]

        async def read(shard: ShardStream) -> None:
            if how == "seek":
                shard.seek(future)
            await env.read(shard)

        async def run() -> None:
            async with env.consuming(read, **settings):
                await trio.sleep(5)
                env.put(1)
                await trio.sleep(90)

        if seconds < 300:
            await run()
            assert env.received == [1]
            return
        with pytest.RaisesGroup(
            pytest.RaisesExc(ConfigurationError, match="is in the future, and it is 2026-01-01T00:0"),
            flatten_subgroups=True,
            allow_unwrapped=True,
        ):
            await run()


async def test_start_at_has_no_effect_on_children_of_shards_that_were_read(autojump_clock):
    async with open_environment() as env, env.consuming(start_at=lambda _lease: Position.latest()):
        await trio.sleep(3)
        env.put(1)
        env.fake.split(STREAM, env.shard_id)
        env.put(2)
        await trio.sleep(30)
        assert env.received == [1, 2]


async def test_a_drain_checkpoints_the_processed_records(autojump_clock):
    async with open_environment(event_records=1) as env:
        env.pace = 1.0
        async with env.consuming():
            env.put(*range(10))
            await trio.sleep(5.5)
        processed = list(env.received)
        assert (await env.checkpoint()) == Checkpoint(env.number(len(processed) - 1))
        env.pace = 0.0
        async with env.consuming():
            await trio.sleep(10)
        assert env.received == list(range(10))
        assert 3 < len(processed) < 10


async def test_each_batch_is_reported_when_it_is_delivered_and_when_it_is_acked(autojump_clock):
    async with open_environment(event_records=2) as env:
        env.pace = 1.0
        async with env.consuming():
            env.put(*range(6))
            await trio.sleep(10)
    reported = [e for e in env.seen if isinstance(e, events.BatchDelivered | events.RecordsProcessed)]
    assert [type(e) for e in reported] == [events.BatchDelivered, events.RecordsProcessed] * 3
    assert {(e.shard_id, e.records) for e in reported} == {(env.shard_id, 2)}


async def test_the_data_of_an_event_is_counted_once_also_in_several_batches(autojump_clock):
    async with open_environment() as env:
        large = aggregate([AggregateEntry("k", b"%d" % n) for n in range(25_000)])
        env.fake.put(STREAM, "outer", large)
        env.fake.put(STREAM, "k", b"7")
        async with env.consuming():
            await trio.sleep(10)
    processed = [e for e in env.seen if isinstance(e, events.RecordsProcessed)]
    assert len(processed) > 2
    assert sum(e.data_bytes for e in processed) == len(large) + 1


async def test_the_status_lists_the_shards_of_the_consumer(autojump_clock):
    async with open_environment() as env, env.consuming() as consumer:
        assert isinstance(consumer, Consumer)
        await trio.sleep(3)
        assert [shard.is_paused for shard in consumer.status().shards] == [False]


@pytest.mark.scenario("G69")
async def test_a_record_without_an_arrival_time_has_no_age(autojump_clock):
    """An arrival time of 0 means that there is none. The fake's clock starts at 0 in this test."""
    async with open_environment(epoch=0.0) as env:
        env.put(1)
        await trio.sleep(1)
        env.put(2)
        async with env.consuming():
            await trio.sleep(10)
    (processed,) = [e for e in env.seen if isinstance(e, events.RecordsProcessed)]
    assert (processed.records, processed.oldest_age) == (2, None)
    assert processed.newest_age == pytest.approx(1.0)
