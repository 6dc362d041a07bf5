"""The leak checks see what a running consumer holds, and find nothing after it has ended."""

from __future__ import annotations

import trio
import trio.testing

from efo.consumer.shard_stream import ShardStream
from efo.leases.stores.memory import MemoryLeaseStore
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from proofs.simulation.checks.leaks import find_leaks, stream_usage
from tests.workers import open_worker

STREAM = "orders"


async def test_a_reader_that_waits_leaves_bytes_buffered_on_its_stream(autojump_clock: trio.testing.MockClock) -> None:
    async def read(shard: ShardStream) -> None:
        async for _batch in shard:
            await trio.sleep_forever()

    settings = ConsumerSettings(stream_window=16_384)
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        async with open_worker(fake.kinesis(STREAM), MemoryLeaseStore(), settings) as consumer:
            nursery.start_soon(consumer.run, read)
            await trio.sleep(2)
            for n in range(100):
                fake.put(STREAM, "k", b"%d" % n + b"x" * 10_000)
                await trio.sleep(0.01)
            usage = stream_usage(consumer)
            assert 0 < usage.max_buffered <= 16_384
            assert (usage.open_streams, usage.max_streams) == (1, 6)
            assert set(find_leaks(consumer)) >= {"leases held", "shards read", "shards begun", "connections"}
            nursery.cancel_scope.cancel()
    assert find_leaks(consumer) == {}
