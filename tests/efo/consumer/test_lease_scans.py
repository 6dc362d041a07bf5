"""How often a consumer scans the lease table."""

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


async def scans_in_a_minute(**settings):
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


async def test_the_lease_table_is_scanned_at_the_lease_scan_interval(autojump_clock):
    default, long = await scans_in_a_minute(), await scans_in_a_minute(lease_scan_seconds=20)
    assert default > 100  # every half second
    assert long <= 4  # three scans, and one by the shard sync of each minute


def test_a_lease_scan_interval_of_zero_is_rejected():
    with pytest.raises(ConfigurationError, match="lease_scan_seconds=0"):
        ConsumerSettings(lease_scan_seconds=0)
