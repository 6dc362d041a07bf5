"""Pause, resume, seek, single acks and subscriptions that nobody wants, over FakeKinesis in virtual time (rule R9)."""

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
from efo.model import LATEST, SHARD_END, TRIM_HORIZON, Checkpoint, Lease, Position
from efo.protocol.aggregation import Entry, aggregate
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from tests.workers import open_worker

STREAM = "orders"


class Given:
    """One shard that is being read by `read`; `got` are the numbers that it acked."""

    def __init__(self, fake: FakeKinesis) -> None:
        self.fake = fake
        self.store = MemoryLeaseStore()
        self.seen: list[events.Event] = []
        self.got: list[int] = []
        self.shard_id = fake.open_shards(STREAM)[0]
        self.pace = 0.0
        self.acks = True

    async def read(self, shard: ShardStream) -> None:
        async for batch in shard:
            await trio.sleep(self.pace)
            self.got += [int(record.data) for record in batch.records]
            if self.acks:
                shard.ack(batch)

    @asynccontextmanager
    async def consuming(self, read=None, **changes: object):
        settings = ConsumerSettings(**changes)
        async with (
            open_worker(
                self.fake.kinesis(STREAM), self.store, settings, self.seen.append, rng=random.Random(1)
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

    def ended(self) -> list[str]:
        return [event.reason for event in self.seen if isinstance(event, events.SubscriptionEnded)]

    async def checkpoint(self) -> Checkpoint:
        (lease,) = [lease for lease in await self.store.list() if lease.key == self.shard_id]
        return lease.checkpoint


@asynccontextmanager
async def given(**settings: object):
    async with FakeKinesis(settings=FakeSettings(**settings)) as fake:
        fake.create_stream(STREAM)
        yield Given(fake)


# --- pause and resume --------------------------------------------------------------------------------------


async def test_a_paused_shard_hands_out_nothing_and_goes_on_where_it_was(autojump_clock):
    async with given() as g, g.consuming() as consumer:
        g.put(*range(3))
        await trio.sleep(5)
        consumer.pause(g.shard_id)
        consumer.pause(g.shard_id)
        assert consumer.status().shards[0].is_paused
        for n in range(3, 100):
            g.put(n)
            await trio.sleep(10)  # far beyond the life of a subscription
        assert g.got == [0, 1, 2]
        consumer.resume(g.shard_id)
        consumer.resume(g.shard_id)
        assert not consumer.status().shards[0].is_paused
        await trio.sleep(10)
        assert g.got == list(range(100))
        told = [type(event) for event in g.seen if isinstance(event, events.ShardPaused | events.ShardResumed)]
        assert told == [events.ShardPaused, events.ShardResumed]
        assert (await g.checkpoint()) >= Checkpoint(g.number(99))


async def test_a_paused_shard_keeps_its_lease_and_stops_gracefully(autojump_clock):
    async with given() as g:
        async with g.consuming() as consumer:
            g.put(1)
            await trio.sleep(3)
            consumer.pause(g.shard_id)
            await trio.sleep(300)
            assert [lease.owner for lease in await g.store.list()] == ["worker"]
        assert (await g.checkpoint()) >= Checkpoint(g.number(0))
        assert [lease.owner for lease in await g.store.list()] == [None]


async def test_a_pause_while_an_event_is_on_its_way_loses_nothing(autojump_clock):
    async with given() as g, g.consuming() as consumer:
        for n in range(200):
            g.put(n)
            await trio.lowlevel.checkpoint()
            (consumer.pause if n % 2 else consumer.resume)(g.shard_id) if consumer.status().shards else None
            await trio.sleep(random.Random(n).random() * 0.02)
        if consumer.status().shards[0].is_paused:
            consumer.resume(g.shard_id)
        await trio.sleep(20)
        assert g.got == list(range(200))


# --- subscriptions that nobody wants -----------------------------------------------------------------------


async def test_a_subscription_without_demand_is_given_up_and_resumed_without_loss_or_repetition(autojump_clock):
    async with given(event_records=1) as g, g.consuming(unsubscribe_idle_after=60) as consumer:
        g.put(*range(5))
        await trio.sleep(3)
        assert g.live == 1
        consumer.pause(g.shard_id)
        g.put(*range(5, 10))
        await trio.sleep(59)
        assert g.live == 1
        await trio.sleep(2)
        assert (g.live, g.ended()) == (0, ["idle"])
        await trio.sleep(1000)
        made = g.fake.subscriptions(STREAM, g.shard_id).made
        consumer.resume(g.shard_id)
        await trio.sleep(10)
        assert g.got == list(range(10))
        assert (g.live, g.fake.subscriptions(STREAM, g.shard_id).made) == (1, made + 1)


async def test_a_reader_that_is_blocked_for_long_gives_up_too(autojump_clock):
    async with given(event_records=1) as g, g.consuming(unsubscribe_idle_after=30):
        g.pace = 100.0
        g.put(*range(5))
        await trio.sleep(90)
        assert g.live == 0
        await trio.sleep(600)
        assert g.got == list(range(5))
        assert set(g.ended()) == {"idle"}


async def test_a_reader_that_keeps_up_never_gives_up(autojump_clock):
    async with given(event_records=1) as g, g.consuming(unsubscribe_idle_after=10):
        g.pace = 9.0
        g.put(*range(20))
        await trio.sleep(240)
        assert g.got == list(range(20))
        assert "idle" not in g.ended()


async def test_a_reader_that_is_blocked_at_the_end_of_a_shard_still_finishes_it(autojump_clock):
    async with given() as g, g.consuming(unsubscribe_idle_after=10):
        g.pace = 100.0
        g.put(1)
        g.fake.split(STREAM, g.shard_id)
        await trio.sleep(150)
        assert g.got == [1]
        assert (await g.checkpoint()) == SHARD_END


# --- seek --------------------------------------------------------------------------------------------------


async def test_seek_back_and_forward_while_it_runs(autojump_clock):
    async with given() as g, g.consuming() as consumer:
        numbers = g.put(*range(10))
        await trio.sleep(3)
        consumer.seek(g.shard_id, Checkpoint(numbers[6]))
        await trio.sleep(10)
        consumer.seek(g.shard_id, Position.at(numbers[8]))
        await trio.sleep(10)
        consumer.seek(g.shard_id, Position.after(numbers[8]))
        await trio.sleep(10)
        consumer.seek(g.shard_id, Position.trim_horizon())
        await trio.sleep(10)
        consumer.seek(g.shard_id, Position.latest())
        await trio.sleep(3)
        g.put(10)
        await trio.sleep(10)
        assert g.got == [*range(10), 7, 8, 9, 8, 9, 9, *range(10), 10]
        assert next(event.to for event in g.seen if isinstance(event, events.ShardRepositioned)) == Checkpoint(
            numbers[6]
        )
        assert (await g.checkpoint()) >= Checkpoint(g.number(10))


async def test_seek_to_a_time(autojump_clock):
    async with given() as g, g.consuming() as consumer:
        g.put(0)
        await trio.sleep(100)
        middle = g.fake.clock()
        g.put(1)
        await trio.sleep(3)
        consumer.seek(g.shard_id, Position.at_timestamp(middle))
        await trio.sleep(10)
        assert g.got == [0, 1, 1]


async def test_acks_of_before_a_seek_do_not_move_the_checkpoint(autojump_clock):
    shard, batches = None, []

    async def read(stream: ShardStream) -> None:
        nonlocal shard
        shard = stream
        async for batch in stream:
            batches.append(batch)  # noqa: PERF401 - it is looked at while it grows

    async with given() as g, g.consuming(read):
        numbers = g.put(*range(10))
        await trio.sleep(3)
        shard.seek(Checkpoint(numbers[2]))
        await trio.sleep(10)
        before, after = batches
        shard.ack(before)
        shard.ack_record(before, before.records[3])
        await trio.sleep(10)
        assert (await g.checkpoint()) == Checkpoint(numbers[2])
        assert not shard.is_wanted(before)
        shard.ack_record(after, after.records[0])
        await trio.sleep(10)
        assert (await g.checkpoint()) == Checkpoint(numbers[3])
        shard.ack(after)
        await trio.sleep(10)
        assert (await g.checkpoint()) >= Checkpoint(numbers[9])


async def test_a_seek_just_when_an_event_comes_hands_out_nothing_of_before(autojump_clock):
    got = []

    async def read(shard: ShardStream) -> None:
        async for batch in shard:
            got.extend(batch.records)
            shard.ack(batch)

    async with given() as g, g.consuming(read) as consumer:
        await trio.sleep(3)
        seen = []
        for n in range(80):
            last = g.put(n)[0]
            for _ in range(n):
                await trio.lowlevel.checkpoint()  # the event is somewhere between the fake and the reader
            seen.append(len(got))
            got.clear()
            consumer.seek(g.shard_id, Checkpoint(last))
            await trio.sleep(8)
            assert got == []
        assert set(seen) == {0, 1}  # both were met: not yet there, and there already


async def test_a_seek_into_an_aggregate_cuts_what_is_before(autojump_clock):
    async with given() as g, g.consuming() as consumer:
        _, number = g.fake.put(STREAM, "outer", aggregate([Entry("k", b"%d" % n) for n in range(5)]))
        await trio.sleep(3)
        consumer.seek(g.shard_id, Checkpoint(number, 2))
        await trio.sleep(10)
        assert g.got == [0, 1, 2, 3, 4, 3, 4]


async def test_a_seek_to_a_checkpoint_survives_a_stop(autojump_clock):
    async with given() as g:
        async with g.consuming() as consumer:
            numbers = g.put(*range(5))
            await trio.sleep(3)
            consumer.seek(g.shard_id, Checkpoint(numbers[1]))
        assert (await g.checkpoint()) == Checkpoint(numbers[1])


@pytest.mark.parametrize("nowhere", [LATEST, SHARD_END])
async def test_a_seek_to_no_place_is_refused(autojump_clock, nowhere):
    async with given() as g, g.consuming() as consumer:
        await trio.sleep(3)
        with pytest.raises(ConfigurationError, match="Position"):
            consumer.seek(g.shard_id, nowhere)
        consumer.seek(g.shard_id, TRIM_HORIZON)


async def test_what_is_not_read_cannot_be_paused_or_sought(autojump_clock):
    streams = []

    async def read(shard: ShardStream) -> None:
        streams.append(shard)
        async for batch in shard:
            shard.ack(batch)

    async with given() as g, g.consuming(read) as consumer:
        for call in (consumer.pause, consumer.resume, lambda shard_id: consumer.seek(shard_id, TRIM_HORIZON)):
            with pytest.raises(ShardNotReadError, match="shardId-7"):
                call("shardId-7")
        await trio.sleep(3)
        g.fake.split(STREAM, g.shard_id)
        await trio.sleep(5)
        with pytest.raises(ShardNotReadError, match="ended"):
            streams[0].seek(TRIM_HORIZON)


# --- single acks -------------------------------------------------------------------------------------------


async def test_single_records_are_acked_in_any_order(autojump_clock):
    async def read(shard: ShardStream) -> None:
        async for batch in shard:
            for record in reversed(batch.records):
                if record.data != b"2":
                    shard.ack_record(batch, record)

    async with given() as g:
        async with g.consuming(read):
            numbers = g.put(*range(5))
            await trio.sleep(20)
        assert (await g.checkpoint()) == Checkpoint(numbers[1])
        async with g.consuming():
            await trio.sleep(10)
        assert g.got == [2, 3, 4]


# --- which shards, and from where --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ids", "predicate"])
async def test_only_selected_shards_are_taken(autojump_clock, how):
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=4)
        g = Given(fake)
        wanted = set(fake.open_shards(STREAM)[1:3])
        select = sorted(wanted) if how == "ids" else lambda lease: lease.key in wanted
        async with g.consuming(shards=select) as consumer:
            fake.put_many(STREAM, [(f"k{n}", b"%d" % n) for n in range(100)])
            await trio.sleep(30)
            assert {shard.shard_id for shard in consumer.status().shards} == wanted
            owners = {lease.key: lease.owner for lease in await g.store.list()}
            assert {key for key, owner in owners.items() if owner} == wanted
        expected = [int(r.data) for key, records in fake.records(STREAM).items() if key in wanted for r in records]
        assert sorted(g.got) == sorted(expected)


async def test_a_lease_of_an_earlier_life_that_is_not_selected_is_given_back(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        g = Given(fake)
        first, second = fake.open_shards(STREAM)
        await g.store.create(Lease(first, TRIM_HORIZON, owner="worker", counter=3))
        async with g.consuming(shards=[second]) as consumer:
            await trio.sleep(10)
            assert [shard.shard_id for shard in consumer.status().shards] == [second]
            assert {lease.key: lease.owner for lease in await g.store.list()} == {first: None, second: "worker"}


def test_one_id_as_text_is_not_taken_for_several():
    with pytest.raises(ConfigurationError, match="shards"):
        ConsumerSettings(shards="shardId-000000000000")


async def test_where_to_start_may_be_said_for_each_shard(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=3)
        g = Given(fake)
        fake.put_many(STREAM, [(f"k{n}", b"%d" % n) for n in range(60)])
        await trio.sleep(10)
        first, second, third = fake.open_shards(STREAM)
        records = fake.records(STREAM)
        at = records[second][4].sequence_number
        starts = {first: Position.latest(), second: Checkpoint(at)}
        async with g.consuming(start_at=lambda lease: starts.get(lease.key)):
            await trio.sleep(10)
        assert sorted(g.got) == sorted(int(r.data) for r in (*records[second][5:], *records[third]))
        g.got.clear()
        async with g.consuming(start_at=lambda _lease: Position.trim_horizon()):
            await trio.sleep(10)
        assert g.got == []  # they have been read: their checkpoints say where to go on


async def test_children_of_our_reading_start_at_their_beginning_whatever_is_said(autojump_clock):
    async with given() as g, g.consuming(start_at=lambda _lease: Position.latest()):
        await trio.sleep(3)
        g.put(1)
        g.fake.split(STREAM, g.shard_id)
        g.put(2)
        await trio.sleep(30)
        assert g.got == [1, 2]


async def test_stop_checkpoints_what_was_processed(autojump_clock):
    async with given(event_records=1) as g:
        g.pace = 1.0
        async with g.consuming():
            g.put(*range(10))
            await trio.sleep(5.5)
        handled = list(g.got)
        assert (await g.checkpoint()) == Checkpoint(g.number(len(handled) - 1))
        g.pace = 0.0
        async with g.consuming():
            await trio.sleep(10)
        assert g.got == list(range(10))
        assert 3 < len(handled) < 10


async def test_every_batch_that_is_given_is_told_and_again_when_it_is_done(autojump_clock):
    async with given(event_records=2) as g:
        g.pace = 1.0
        async with g.consuming():
            g.put(*range(6))
            await trio.sleep(10)
    told = [e for e in g.seen if isinstance(e, events.BatchDelivered | events.RecordsProcessed)]
    assert [type(e) for e in told] == [events.BatchDelivered, events.RecordsProcessed] * 3
    assert {(e.shard_id, e.records) for e in told} == {(g.shard_id, 2)}


async def test_status_is_a_consumer_s(autojump_clock):
    async with given() as g, g.consuming() as consumer:
        assert isinstance(consumer, Consumer)
        await trio.sleep(3)
        assert [shard.is_paused for shard in consumer.status().shards] == [False]


@pytest.mark.scenario("G69")
async def test_a_record_whose_arrival_nobody_told_has_no_age(autojump_clock):
    """0 says that: it is the fake's clock at the start of this test."""
    async with given(epoch=0.0) as g:
        g.put(1)
        await trio.sleep(1)
        g.put(2)
        async with g.consuming():
            await trio.sleep(10)
    (processed,) = [e for e in g.seen if isinstance(e, events.RecordsProcessed)]
    assert (processed.records, processed.oldest_age) == (2, None)
    assert processed.newest_age == pytest.approx(1.0)
