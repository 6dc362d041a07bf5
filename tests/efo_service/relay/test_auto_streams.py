"""The relay of a stream that changes to AUTO and back while it runs: each sink has every record once, with its key."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Batch
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from efo_service.relay.destination import SkippingSink
from efo_service.relay.relay import relay_shard
from tests.efo_service.relay.all_sinks import SINKS
from tests.efo_service.relay.relaying import to
from tests.workers import open_worker

STREAM = "orders"
TIMEOUT = 60.0
Expected = Counter[tuple[bytes | None, bytes]]
"""Pairs of key and value."""


class RefusesAll(SkippingSink):
    """A sink all of whose records become dead letters."""

    @asynccontextmanager
    async def open(self, *arguments):
        async with super().open(*arguments) as shard:
            shard.refusal = lambda _record: "none is taken"
            yield shard


class CountedShard:
    """A shard stream that counts the records which are acked in all shards, so after their commit."""

    def __init__(self, shard, counted: Counted) -> None:
        self._shard = shard
        self._counted = counted

    def __getattr__(self, name):
        return getattr(self._shard, name)

    def __aiter__(self) -> CountedShard:
        return self

    async def __anext__(self) -> Batch:
        return await anext(self._shard)

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        self._shard.ack_through(batch, index)
        through = batch.records[-1 if index is None else index]
        self._counted.acked(self._shard.shard_id, int(through.sequence_number))


class Counted:
    """How far each shard is committed."""

    def __init__(self) -> None:
        self._through: dict[str, int] = {}
        self._changed = trio.Event()

    def acked(self, shard_id: str, sequence: int) -> None:
        self._through[shard_id] = max(sequence, self._through.get(shard_id, 0))
        self._changed.set()

    async def reached(self, fake: FakeKinesis) -> None:
        """Wait until every record that the stream has is committed."""
        last = {shard: int(records[-1].sequence_number) for shard, records in fake.records(STREAM).items() if records}
        while any(self._through.get(shard, 0) < sequence for shard, sequence in last.items()):
            self._changed = trio.Event()
            await self._changed.wait()


def put_by_key(fake: FakeKinesis) -> Expected:
    pairs = [(b"key-%d" % n, b"by key %d" % n) for n in range(8)]
    fake.put_many(STREAM, [(key.decode(), data) for key, data in pairs])
    return Counter(pairs)


def put_by_kinesis(fake: FakeKinesis) -> Expected:
    pairs: list[tuple[bytes | None, bytes]] = [(None, b"by Kinesis %d" % n) for n in range(8)]
    fake.put_many(STREAM, [(None, data) for _, data in pairs])
    users = [(b"user-%d" % n, b"in an aggregate %d" % n) for n in range(8)]
    fake.put(STREAM, None, aggregate(AggregateEntry(key.decode(), data) for key, data in users))
    return Counter([*pairs, *users])


@pytest.mark.parametrize("name", ["log", "object log", "json lines", "kafka", "dead letters"])
async def test_a_stream_changes_to_auto_and_back_while_it_is_relayed(tmp_path, servers, read_mode, name) -> None:
    kind, counted = SINKS["log" if name == "dead letters" else name], Counted()
    arguments = (tmp_path,) if kind.serve is None else (tmp_path, servers.url(kind.serve))
    settings = ConsumerSettings(poll_seconds=0.25)
    with trio.fail_after(TIMEOUT):
        async with FakeKinesis() as fake, kind.open(*arguments) as sink:
            fake.create_stream(STREAM, 2, distribution="USER_PARTITION_KEY")

            destination = to(RefusesAll(), sink) if name == "dead letters" else to(sink)

            async def relay(shard) -> None:
                await relay_shard(CountedShard(shard, counted), destination)

            opening = open_worker(fake.kinesis(STREAM), MemoryLeaseStore(), settings)
            async with opening as consumer, trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, relay)
                expected = put_by_key(fake)
                await counted.reached(fake)
                for _ in range(2):
                    fake.distribute(STREAM, "AUTO")
                    expected += put_by_kinesis(fake)
                    await counted.reached(fake)
                    fake.distribute(STREAM, "USER_PARTITION_KEY")
                    expected += put_by_key(fake)
                    await counted.reached(fake)
                consumer.drain()
            shards = fake.open_shards(STREAM)
        found: Expected = Counter()
        for shard_id in shards:
            messages = await trio.to_thread.run_sync(partial(kind.read, *arguments, shard_id))
            found += Counter((message.key, message.value) for message in messages)
    assert found == expected
