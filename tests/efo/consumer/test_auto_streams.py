"""Whole consumers of a stream that changes to AUTO and back while it is read: nothing is lost, in both read modes."""

from __future__ import annotations

from collections import defaultdict

import pytest
import trio
import trio.testing

from efo.consumer.handlers.handler import Handler
from efo.consumer.shard_task import ShardReader
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Batch, Record
from efo.protocol.aggregation import AGGREGATE_KEY, AggregateEntry, AggregateMode, aggregate
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from tests.workers import open_worker

STREAM = "orders"
KEYS = [f"key-{n}" for n in range(12)]


class Reading:
    """What a consumer handled.

    `keys`: the partition key of each record. `numbers`: what each key has, in order. `order`: positions in each shard.
    """

    def __init__(self) -> None:
        self.keys: dict[str, str | None] = {}
        self.numbers: defaultdict[str | None, list[int]] = defaultdict(list)
        self.order: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    async def __call__(self, record: Record, batch: Batch) -> None:
        await trio.lowlevel.checkpoint()
        name = record.data.decode()
        assert name not in self.keys, f"{name} is handled twice"
        self.keys[name] = record.partition_key
        self.numbers[record.partition_key].append(int(name.split("-")[-1]))
        self.order[batch.shard_id].append((int(record.sequence_number), record.sub_sequence_number))


class Putting:
    """Puts numbered records of each kind. `expected`: the partition key with which each must be delivered.

    `outer_keys`: the partition keys of aggregates.
    """

    def __init__(self, fake: FakeKinesis, outer_keys: tuple[str | None, ...]) -> None:
        self.fake = fake
        self._outer_keys = outer_keys
        self.expected: dict[str, str | None] = {}
        self._numbers: defaultdict[str, int] = defaultdict(int)

    def by_key(self) -> None:
        for key in KEYS:
            self.fake.put(STREAM, key, self._next(key, key))

    def by_kinesis(self) -> None:
        """Put records without a key, one with a key of its own, and aggregates of many hash keys."""
        for _ in range(12):
            self.fake.put(STREAM, None, self._next("none", None))
        self.fake.put(STREAM, "ignored", self._next("ignored", "ignored"))
        for outer in self._outer_keys:
            users = [AggregateEntry(f"user-{n}", self._next("user", f"user-{n}")) for n in range(8)]
            self.fake.put(STREAM, outer, aggregate(users))

    def _next(self, kind: str, key: str | None) -> bytes:
        name = f"{kind}-{self._numbers[kind]}"
        self._numbers[kind] += 1
        self.expected[name] = key
        return name.encode()


@pytest.mark.parametrize("key_concurrency", [1, 4])
@pytest.mark.parametrize("aggregates", list(AggregateMode))
async def test_a_stream_changes_to_auto_and_back_while_it_is_read(
    autojump_clock: trio.testing.MockClock, read_mode: str, aggregates: AggregateMode, key_concurrency: int
) -> None:
    reading = Reading()
    reader: ShardReader = Handler(record_handler=reading, key_concurrency=key_concurrency)
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, 2, distribution="USER_PARTITION_KEY")
        filters = aggregates in {AggregateMode.FILTER, AggregateMode.DROP}  # those with a key, as they say
        putting = Putting(fake, (None,) if filters else (None, AGGREGATE_KEY, "another producer's"))
        putting.by_key()
        settings = ConsumerSettings(aggregates=aggregates, shard_sync_seconds=5.0)
        async with (
            open_worker(fake.kinesis(STREAM), MemoryLeaseStore(), settings) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            for number in range(3):
                await trio.sleep(3)
                fake.distribute(STREAM, "AUTO")
                putting.by_kinesis()
                await trio.sleep(3)
                putting.by_kinesis()
                fake.split(STREAM, fake.open_shards(STREAM)[number])
                putting.by_kinesis()
                await trio.sleep(3)
                fake.distribute(STREAM, "USER_PARTITION_KEY")
                putting.by_key()
            await trio.sleep(30)
            assert all(shard.state != "isolated" for shard in consumer.status().shards)
            consumer.drain()
        assert reading.keys == putting.expected
        for key in KEYS:
            assert reading.numbers[key] == sorted(reading.numbers[key])
        if key_concurrency == 1:
            assert all(marks == sorted(marks) for marks in reading.order.values())


async def test_an_aggregate_of_the_kpl_is_whole_although_it_looks_like_one_of_an_old_shard_map(
    autojump_clock: trio.testing.MockClock, read_mode: str
) -> None:
    """All hash keys are of the only ancestor, the first of its shard: on any other stream, the KPL puts it again."""
    reading = Reading()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, 1, distribution="AUTO")
        fake.split(STREAM, fake.open_shards(STREAM)[0])
        putting = Putting(fake, (AGGREGATE_KEY, AGGREGATE_KEY))  # one in each shard
        putting.by_kinesis()
        async with (
            open_worker(fake.kinesis(STREAM), MemoryLeaseStore(), ConsumerSettings()) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, Handler(record_handler=reading))
            await trio.sleep(30)
            consumer.drain()
    assert reading.keys == putting.expected
