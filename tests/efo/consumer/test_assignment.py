"""Consumers with assignment strategies: which worker reads which shard, and what happens to a wrong strategy."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio

import efo
from efo import events
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"


async def read(shard):
    async for batch in shard:
        shard.ack(batch)


async def owners(store):
    """Return the owners of the unfinished leases, by the order of their hash keys."""
    leases = [lease for lease in await store.list() if not lease.is_finished]
    return [lease.owner for lease in sorted(leases, key=lambda lease: int(lease.hash_key_range.starting_hash_key))]


async def test_zones_keep_their_hash_keys_through_joins_a_split_and_the_end_of_a_worker(autojump_clock):
    store = efo.leases.MemoryLeaseStore()
    settings = efo.ConsumerSettings(assignment=efo.leases.zone_assignment(["a", "b"]))
    async with FakeKinesis() as fake, trio.open_nursery() as nursery, AsyncExitStack() as stack:
        fake.create_stream(STREAM, shards=4)
        lost = []

        async def start(worker_id):
            opening = open_worker(
                fake.kinesis(STREAM),
                store,
                settings,
                lambda event: lost.append(event) if isinstance(event, events.LeaseLost) else None,
                worker_id=worker_id,
            )
            consumer = await stack.enter_async_context(opening)
            nursery.start_soon(consumer.run, read)
            await trio.sleep(30)
            return consumer

        running = [await start("a-1")]
        assert await owners(store) == ["a-1"] * 4
        running.append(await start("b-1"))
        assert await owners(store) == ["a-1"] * 2 + ["b-1"] * 2
        running.append(await start("a-2"))
        assert sorted((await owners(store))[:2]) == ["a-1", "a-2"]
        fake.split(STREAM, fake.open_shards(STREAM)[3])
        await trio.sleep(60)
        assert (await owners(store))[2:] == ["b-1"] * 3
        running[1].drain()
        await trio.sleep(30)
        assert {owner[0] for owner in await owners(store)} == {"a"}
        assert {event.reason for event in lost} <= {"released", "handed_over"}  # each move was a graceful hand-off
        for consumer in running:
            consumer.drain()


async def test_a_worker_takes_a_few_leases_in_each_scan(autojump_clock):
    store, taken = efo.leases.MemoryLeaseStore(), []

    def observe(event):
        if isinstance(event, events.LeaseStoreCalled) and event.operation == "take":
            taken.append(trio.current_time())

    settings = efo.ConsumerSettings(max_leases_per_scan=2, lease_scan_seconds=1.0, initial_position=efo.TRIM_HORIZON)
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=6)
        async with open_worker(fake.kinesis(STREAM), store, settings, observe) as consumer:
            nursery.start_soon(consumer.run, read)
            await trio.sleep(20)
            assert await owners(store) == ["worker"] * 6
            consumer.drain()
    scans = [round(at - taken[0]) for at in taken]
    assert scans == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (
            lambda _view: efo.leases.AssignmentPlan(take=(efo.leases.Lease("x", efo.Checkpoint.LATEST),)),
            "x to take, but",
        ),
        (efo.leases.zone_assignment(["a", "b"]), "'worker' is in none of the zones"),
    ],
)
async def test_a_strategy_that_cannot_work_stops_the_consumer_with_one_clear_error(strategy, message, autojump_clock):
    settings = efo.ConsumerSettings(assignment=strategy)
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)

        async def handle(_batch) -> None: ...

        with pytest.raises(efo.errors.ConfigurationError, match=message):
            await efo.consume(
                fake.kinesis(STREAM),
                handle,
                application="app",
                worker_id="worker",
                leases=efo.leases.MemoryLeaseStore(),
                settings=settings,
                observer=efo.events.ignore_events,
            )
