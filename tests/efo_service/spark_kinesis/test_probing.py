"""Waiting for the log, on a fake stream under virtual time."""

from __future__ import annotations

import pytest
import trio

from efo.errors import LeaseStoreUnavailableError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, Lease, Position
from efo.protocol.aggregation import AggregateEntry, AggregateMode, aggregate
from efo.testing import FakeKinesis
from efo_service.spark_kinesis.catch_up import CatchUp
from efo_service.spark_kinesis.probing import Probe

SHARD = "shardId-000000000000"


class Leases(MemoryLeaseStore):
    """Leases that a test writes as a relay would. `failures`: how many listings fail."""

    failures = 0

    async def list(self):
        if self.failures:
            self.failures -= 1
            raise LeaseStoreUnavailableError("down")
        return await super().list()

    async def set(self, key: str, checkpoint: Checkpoint) -> None:
        await self.create(Lease(key, Checkpoint.TRIM_HORIZON))
        lease = await self.get(key)
        assert lease is not None
        await self.checkpoint(await self.take(lease, "relay"), checkpoint)


@pytest.fixture
async def fake(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("orders", shards=1)
        yield fake


class Waiting:
    def __init__(self, fake: FakeKinesis, leases: Leases) -> None:
        self.probe = Probe(fake.kinesis("orders"), leases, Position.trim_horizon(), AggregateMode.FILTER)
        self.started: list[CatchUp] = []
        self.done = False

    async def run(self) -> None:
        await self.probe.wait(None, self.started.append)
        self.done = True


async def test_it_waits_until_the_last_record_is_committed(autojump_clock, fake, nursery):
    numbers = [fake.put("orders", "key", b"data")[1] for _ in range(3)]
    leases = Leases()
    waiting = Waiting(fake, leases)
    nursery.start_soon(waiting.run)
    await trio.sleep(5)
    assert not waiting.done  # no lease yet
    for checkpoint in (Checkpoint.TRIM_HORIZON, *map(Checkpoint, numbers[:2])):
        await leases.set(SHARD, checkpoint)
        await trio.sleep(5)
        assert not waiting.done
    leases.failures = 3
    await leases.set(SHARD, Checkpoint(numbers[2]))
    await trio.sleep(10)
    assert waiting.done


async def test_later_records_are_not_waited_for(autojump_clock, fake, nursery):
    number = fake.put("orders", "key", b"data")[1]
    leases = Leases()
    await leases.set(SHARD, Checkpoint(number))
    fake.put("orders", "key", b"at the same time")
    waiting = Waiting(fake, leases)
    nursery.start_soon(waiting.run)
    await trio.sleep(20)
    assert not waiting.done
    later = fake.put("orders", "key", b"later")
    assert later
    await leases.set(SHARD, Checkpoint(fake.records("orders")[SHARD][1].sequence_number))
    await trio.sleep(5)
    assert waiting.done


async def test_a_part_of_an_aggregate_is_not_enough(autojump_clock, fake, nursery):
    number = fake.put("orders", "key", aggregate([AggregateEntry("key", b"%d" % index) for index in range(3)]))[1]
    leases = Leases()
    await leases.set(SHARD, Checkpoint(number, 1))
    waiting = Waiting(fake, leases)
    nursery.start_soon(waiting.run)
    await trio.sleep(5)
    assert not waiting.done
    await leases.set(SHARD, Checkpoint(number, 2))
    await trio.sleep(5)
    assert waiting.done


async def test_the_children_of_a_reshard_are_waited_for(autojump_clock, fake, nursery):
    first = fake.put("orders", "key", b"data")[1]
    children = fake.split("orders", SHARD)
    shard_id, second = fake.put("orders", "key", b"data")
    leases = Leases()
    waiting = Waiting(fake, leases)
    nursery.start_soon(waiting.run)
    await leases.set(SHARD, Checkpoint(first))
    await trio.sleep(5)
    assert not waiting.done  # the parent has nothing left, but its child has
    for child in children:
        await leases.set(child, Checkpoint.TRIM_HORIZON)
    await leases.set(SHARD, Checkpoint.SHARD_END)
    await trio.sleep(5)
    assert not waiting.done
    await leases.set(shard_id, Checkpoint(second))
    await trio.sleep(5)
    assert waiting.done
