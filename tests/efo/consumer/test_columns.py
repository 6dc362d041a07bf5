"""A reader of columns gets the records that any other gets: with checkpoints, filters and limits, in each form."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any

import pytest
import trio

from efo.consumer.shard_stream import ShardStream
from efo.kinesis import subscribe_call
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, Lease, Record
from efo.protocol.event_decoder import EventDecoder
from efo.protocol.lazy_batch import records_of
from efo.protocol.packed import packed
from efo.testing import FakeKinesis
from efo.testing.settings import FakeSettings
from tests.packing import PackingStep
from tests.workers import open_worker

STREAM = "orders"


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> PackingStep:
    step = PackingStep()
    monkeypatch.setattr(subscribe_call, "EventDecoder", partial(EventDecoder, step, 0))
    return step


async def read(
    fake: FakeKinesis, store: MemoryLeaseStore, count: int, *, looks: bool = False, **options: object
) -> tuple[list[Record], int]:
    """Read so many records of one shard as columns; return them, and how many batches were packed.

    `looks`: it looks at the records, after that.
    """
    found, columns = list[Record](), 0
    async with open_worker(fake.kinesis(STREAM), store, **options) as consumer:

        async def reader(shard: ShardStream) -> None:
            nonlocal columns
            async for batch in shard:
                columns += packed(records_of(batch)) is not None
                rows = batch.to_arrow()
                assert rows.num_rows == len(batch)
                found.extend(map(record_of, rows.to_pylist()))
                if looks:
                    assert [*batch] == found[-len(batch) :]
                shard.ack(batch)
                if len(found) == count:
                    consumer.drain()

        with trio.fail_after(60):
            await consumer.run(reader)
    return found, columns


def record_of(row: dict[str, Any]) -> Record:
    arrived, tags = row.pop("approximate_arrival_timestamp"), row.pop("tags")
    return Record(approximate_arrival_timestamp=arrived.timestamp(), tags=(*map(tuple, tags),), **row)


async def test_records_and_checkpoints_are_the_same(autojump_clock: object, step: PackingStep) -> None:
    store = MemoryLeaseStore()
    async with FakeKinesis(settings=FakeSettings(event_records=10)) as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [(f"key-{n}", b"%d" % n) for n in range(50)])
        (records,) = fake.records(STREAM).values()
        found, columns = await read(fake, store, 50)
        assert found == records
        assert columns == step.packs == 4  # the Python step reads the first event
        (lease,) = store.rows()
        assert lease.checkpoint == Checkpoint(records[-1].sequence_number)


async def test_after_a_look_the_records_are_made_at_once(autojump_clock: object, step: PackingStep) -> None:
    async with FakeKinesis(settings=FakeSettings(event_records=10)) as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [("key", b"%d" % n) for n in range(50)])
        (records,) = fake.records(STREAM).values()
        found, columns = await read(fake, MemoryLeaseStore(), 50, looks=True)
        assert found == records
        assert columns == step.packs == 1


async def test_a_checkpoint_within_an_event_is_not_repeated(autojump_clock: object, step: PackingStep) -> None:
    store = MemoryLeaseStore()
    async with FakeKinesis(settings=FakeSettings(event_records=10)) as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [("key", b"%d" % n) for n in range(40)])
        (shard, records), *_ = fake.records(STREAM).items()
        await store.create(Lease(shard, Checkpoint(records[13].sequence_number)))
        found, _ = await read(fake, store, 26)
        assert found == records[14:]


async def test_what_was_put_after_the_time_is_not_delivered(
    autojump_clock: trio.testing.MockClock, step: PackingStep
) -> None:
    async with FakeKinesis(settings=FakeSettings(event_records=10)) as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [("key", b"%d" % n) for n in range(25)])
        await trio.sleep(30)
        until = dt.datetime.fromtimestamp(fake.clock() - 15, dt.UTC)
        fake.put_many(STREAM, [("key", b"late")] * 5)
        found, _ = await read(fake, MemoryLeaseStore(), 99, until=until)
        assert [record.data for record in found] == [b"%d" % n for n in range(25)]
        assert step.packs
