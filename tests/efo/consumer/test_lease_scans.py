"""How often a consumer looks at the table of leases."""

import pytest
import trio

from efo import events
from efo.errors import ConfigurationError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker


async def read(shard):
    async for batch in shard:
        shard.ack(batch)


async def looks_in_a_minute(**settings):
    seen = []
    async with FakeKinesis() as fake:
        fake.create_stream("orders")
        chosen = ConsumerSettings(**settings)
        async with (
            open_worker(fake.kinesis("orders"), MemoryLeaseStore(), chosen, seen.append) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, read)
            await trio.sleep(10)
            seen.clear()
            await trio.sleep(59)
            consumer.drain()
            return sum(isinstance(event, events.LeaseStoreCalled) and event.operation == "list" for event in seen)


async def test_looks_are_as_far_apart_as_they_are_wanted(autojump_clock):
    often, seldom = await looks_in_a_minute(), await looks_in_a_minute(lease_scan_interval=20)
    assert often > 100  # every half second
    assert seldom <= 4  # and one more where the shards are listed again, each minute


def test_looks_cannot_be_on_top_of_each_other():
    with pytest.raises(ConfigurationError, match="scan_interval"):
        ConsumerSettings(lease_scan_interval=0)
