"""Random histories of workers that read many streams: records, reshards, crashes, streams that come and go."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial

import pytest
import trio

import efo
from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis

NAMES = ("a", "b", "c", "d")
KEYS = 6


class World:
    """Streams, workers that come, go and crash, and what was read."""

    def __init__(self, seed: int, fake: FakeKinesis, nursery: trio.Nursery) -> None:
        self.rng = random.Random(seed)
        self._fake = fake
        self._nursery = nursery
        self._stores = defaultdict(efo.leases.MemoryLeaseStore)
        self._number = 0
        self._count = 0
        self.workers: dict[str, tuple[efo.MultiStreamConsumer, trio.CancelScope]] = {}
        self.wanted = set(NAMES)
        self.put: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.first_reads: dict[tuple[str, str], list[int]] = defaultdict(list)
        for name in NAMES:
            fake.create_stream(name, self.rng.randint(1, 3))

    async def handle(self, batch: efo.Batch) -> None:
        for record in batch:
            reads, number = self.first_reads[batch.stream, record.partition_key], int(record.data)
            if number not in reads:
                reads.append(number)
        await trio.sleep(self.rng.random() * 0.2)

    async def start(self) -> None:
        self._count += 1
        name = f"worker-{self._count}"

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as scope, collapse_groups():
                async with trio.open_nursery() as own:
                    consumer = await own.start(
                        partial(
                            efo.consume_streams,
                            [self._fake.kinesis(stream) for stream in sorted(self.wanted)],
                            self.handle,
                            application="app",
                            worker_id=name,
                            leases=lambda stream: self._stores[stream],
                            observer=lambda _stream: efo.events.ignore_events,
                        )
                    )
                    self.workers[name] = consumer, scope
                    task_status.started()

        await self._nursery.start(run)

    def step(self) -> str:
        return self.rng.choice(["put"] * 6 + ["reshard", "drop", "add", "start", "stop", "crash"])

    async def perform(self, step: str) -> None:
        stream = self.rng.choice(NAMES)
        match step:
            case "put":
                for _ in range(self.rng.randint(1, 40)):
                    key = f"key-{self.rng.randrange(KEYS)}"
                    self._number += 1
                    self._fake.put(stream, key, b"%d" % self._number)
                    self.put[stream, key].append(self._number)
            case "reshard":
                shards = self._fake.open_shards(stream)
                if len(shards) > 2 and self.rng.random() < 0.5:
                    self._fake.merge(stream, *shards[:2])
                else:
                    self._fake.split(stream, self.rng.choice(shards))
            case "drop" | "add":
                (self.wanted.discard if step == "drop" else self.wanted.add)(stream)
                for consumer, _ in self.workers.values():
                    consumer.update([self._fake.kinesis(name) for name in sorted(self.wanted)])
            case "start" if len(self.workers) < 3:
                await self.start()
            case "stop" | "crash" if len(self.workers) > 1:
                consumer, scope = self.workers.pop(self.rng.choice(sorted(self.workers)))
                (consumer.drain if step == "stop" else scope.cancel)()
        await trio.sleep(self.rng.random() * 8)

    async def end(self) -> None:
        """Read all streams to their ends, and stop."""
        self.wanted = set(NAMES)
        for consumer, _ in self.workers.values():
            consumer.update([self._fake.kinesis(name) for name in NAMES])
        await trio.sleep(180)
        for consumer, _ in self.workers.values():
            consumer.drain()


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_lost_and_each_key_keeps_its_order_whatever_comes_and_goes(seed, autojump_clock):
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        world = World(seed, fake, nursery)
        await world.start()
        for _ in range(40):
            await world.perform(world.step())
        await world.end()
    assert world.first_reads == world.put
