"""A consumer that runs for months through reshards holds no more than at its beginning."""

from __future__ import annotations

from itertools import count

import pytest
import trio
import trio.testing

from efo import events
from efo.consumer.shard_stream import ShardStream
from efo.errors import IsolateShardError
from efo.kinesis.client import KinesisClient
from efo.kinesis.http2 import Http2
from efo.leases.stores.memory import MemoryLeaseStore
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from efo.testing.control_plane import FakeControlPlane
from tests.growth import items_held
from tests.workers import open_worker

STREAM = "orders"
NOT_OF_THE_CONSUMER = (FakeKinesis, FakeControlPlane, KinesisClient, MemoryLeaseStore, Http2, trio.lowlevel.Task)
"""The fake is behind its client. h2 remembers up to 65,536 streams of a connection that have ended."""
QUICK = ConsumerSettings(
    failover_seconds=40,
    lease_scan_seconds=10,
    shard_sync_seconds=10,
    shard_cooldown_seconds=12,
    subscribes_per_second=5,
)


async def test_a_consumer_holds_nothing_of_the_shards_that_are_gone(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("efo.consumer.shard_sync.CLEANUP_AFTER", 10.0)
    numbers, held, ended = count(), list[int](), 0

    async def read(shard: ShardStream) -> None:
        async for batch in shard:
            if next(numbers) % 3 == 0:
                raise IsolateShardError("now and then")
            shard.ack(batch)

    def observe(event: events.Event) -> None:
        nonlocal ended
        ended += isinstance(event, events.ShardFinished)

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=1)
        fake.retain(STREAM, 30 / 3600)
        opening = open_worker(fake.kinesis(STREAM), MemoryLeaseStore(), QUICK, observe)
        async with opening as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, read)
            for number in range(24):
                pair = fake.split(STREAM, fake.open_shards(STREAM)[0])
                fake.put_many(STREAM, [(f"key-{n}", b"x") for n in range(8)])
                await trio.sleep(40)
                fake.merge(STREAM, *pair)
                await trio.sleep(120)
                assert len(consumer.lineage()[1]) <= 4
                if number in {11, 23}:
                    held.append(items_held(consumer, without=NOT_OF_THE_CONSUMER))
            nursery.cancel_scope.cancel()
    assert ended >= 70
    assert held[1] <= held[0] + 5
