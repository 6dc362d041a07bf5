"""Merge: what a shard offers to an application in another thread, and how its reading ends."""

from __future__ import annotations

from contextlib import asynccontextmanager

import trio

import efo
from efo.adapters.merge import Merge
from efo.testing import FakeKinesis

STREAM, SHARD = "orders", "shardId-000000000000"


@asynccontextmanager
async def offering():
    """Read a shard until it offers a batch; yield the consumer, the merge and the lease store."""
    store, offered = efo.leases.MemoryLeaseStore(), trio.Event()
    merge = Merge(lambda function, *args: function(*args))
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=1)
        fake.put_many(STREAM, [("key", b"1"), ("key", b"2")])
        opening = efo.open_consumer(
            fake.kinesis(STREAM), application="app", leases=store, observer=efo.events.ignore_events
        )
        async with opening as consumer:
            merge.on_change = offered.set
            nursery.start_soon(consumer.run, merge.read)
            await offered.wait()
            yield consumer, merge, store
            nursery.cancel_scope.cancel()


async def owner_after(seconds, store):
    await trio.sleep(seconds)
    (lease,) = await store.list()
    return lease.owner


async def test_a_shard_whose_offer_nobody_took_is_released(autojump_clock):
    async with offering() as (consumer, _, store):
        consumer.release(SHARD)
        assert await owner_after(5, store) is None


async def test_a_shard_whose_batch_was_taken_is_released_when_it_is_acked(autojump_clock):
    async with offering() as (consumer, merge, store):
        batch = merge.take()
        assert batch is not None
        consumer.release(SHARD)
        assert await owner_after(5, store) is not None
        merge.ack(batch, lambda shard: shard.ack(batch))
        assert await owner_after(5, store) is None
