"""Subscribes to many shards of a fake over HTTP/2, and records gaps between subscriptions and the records read.

Used by `core.py` and, at a smaller scale, by `tests/efo/kinesis/test_renewal.py`.
"""

import collections
import math
import random
from contextlib import asynccontextmanager

import trio

from efo.events import ConnectionClosed, ConnectionOpened, SubscribeAttempted, SubscriptionEnded
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.pacing import SubscribePacer
from efo.kinesis.shard_subscription import ShardSubscription
from efo.kinesis.subscribe_call import SubscribeCaller
from efo.model import Position
from efo.testing import FakeKinesis, FakeSettings
from proofs.load.fake import LoadKinesis
from proofs.load.settings import Load

STREAM = "orders"


@asynccontextmanager
async def open_subscribed(shards, budget, faults=None, load=None, **settings):
    """Run a fake with these settings; yield a Subscribed for its shards.

    `load`: settings of an endless load that the stream serves instead of records that are put.
    """
    options = {"settings": FakeSettings(consumer_creating=0.0, **settings), "faults": faults}
    loaded = None if load is None else LoadKinesis(Load(shards={STREAM: shards}, **load), **options)
    async with (
        loaded or FakeKinesis(**options) as fake,
        trio.open_nursery() as nursery,
    ):
        if load is None:
            fake.create_stream(STREAM, shards)
        subscribed = Subscribed(nursery, fake, shards, budget)
        await nursery.start(subscribed.pool.run)
        await nursery.start(subscribed.limiter.run)
        yield subscribed
        nursery.cancel_scope.cancel()


class WatchedCaller(SubscribeCaller):
    """Keeps the last response of each shard in `event_streams`."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.event_streams = {}

    async def call(self, shard_id, position):
        self.event_streams[shard_id] = await super().call(shard_id, position)
        return self.event_streams[shard_id]


class Watch:
    """An observer that measures how long each shard was without an accepted subscription, after its first one."""

    def __init__(self):
        self.accepted: collections.Counter[str] = collections.Counter()
        self.live: collections.Counter[str] = collections.Counter()
        self.lost_at = {}
        self.longest_gap = 0.0
        self.connections = 0
        self.ended: collections.Counter[str] = collections.Counter()
        self.closed = []

    def __call__(self, event):
        match event:
            case SubscribeAttempted(error_type=None, shard_id=shard_id):
                self.accepted[shard_id] += 1
                self.live[shard_id] += 1
                gap = trio.current_time() - self.lost_at.pop(shard_id, math.inf)
                self.longest_gap = max(self.longest_gap, gap)
            case SubscriptionEnded(shard_id=shard_id, reason=reason):
                self.ended[reason] += 1
                self.live[shard_id] -= 1
                if not self.live[shard_id]:
                    self.lost_at[shard_id] = trio.current_time()
            case ConnectionOpened():
                self.connections += 1
            case ConnectionClosed(error_type=error_type):
                self.closed.append(error_type)


class Reading:
    """Reads shards, and keeps the sequence numbers per shard and the delay of each record after its put."""

    def __init__(self, fake):
        self.fake = fake
        self.numbers = collections.defaultdict(list)
        self.delays = []

    def delays_after(self, time):
        """Return the longest delay of the records read after `time`, in seconds, to 10 ms; None without records."""
        return max((round(delay, 2) for at, delay in self.delays if at > time), default=None)

    async def read(self, subscription, pause=0.0):
        """Read a subscription without end. `pause`: seconds to wait after each record."""
        while True:
            event = await subscription.receive()
            for record in event.records:
                self.numbers[subscription.shard_id].append(record.sequence_number)
                self.delays.append((trio.current_time(), self.fake.clock() - record.approximate_arrival_timestamp))
                if pause:
                    await trio.sleep(pause)


class Subscribed:
    """A fake with a stream, and the client objects that subscribe to its shards."""

    def __init__(self, nursery, fake, shards, budget):
        self.nursery = nursery
        self.fake = fake
        self.shards = shards
        self.watch = Watch()
        self.reading = Reading(fake)
        self.limiter = SubscribePacer(budget)
        kinesis = fake.kinesis(STREAM)
        self.pool = ConnectionPool(kinesis.connect, address="fake", observer=self.watch)
        arn = fake.register(STREAM, "reader").arn
        self.caller = WatchedCaller(
            self.pool, sign=kinesis.sign, authority=kinesis.authority, scheme="http", consumer_arn=lambda: arn
        )

    def make(self, seed, shard_id):
        """Return a subscription that is not read yet."""
        return ShardSubscription(
            self.nursery,
            shard_id,
            Position.trim_horizon(),
            caller=self.caller,
            limiter=self.limiter,
            diagnose=_undiagnosed,
            rng=random.Random(seed),
            observer=self.watch,
        )

    def subscribe(self, seed, shard_id, pause=0.0):
        self.nursery.start_soon(self.reading.read, self.make(seed, shard_id), pause)

    def subscribe_all(self):
        for seed, shard_id in enumerate(self.fake.open_shards(STREAM)):
            self.subscribe(seed, shard_id)

    async def put_for(self, seconds, every):
        """Put a record into each shard every `every` seconds, for `seconds` seconds."""
        until = trio.current_time() + seconds
        while trio.current_time() < until:
            for n in range(self.shards):
                self.put(n)
            await trio.sleep(every)

    def put(self, n, data=b"x" * 20):
        """Put a record into the n-th of the shards that the stream was created with."""
        self.fake.put(STREAM, "k", data, str(n * 2**128 // self.shards))

    def unread(self):
        """Return how many shards were not read completely, once and in order, and how many records were read twice."""
        wrong = repeated = 0
        for shard_id, records in self.fake.records(STREAM).items():
            read = self.reading.numbers[shard_id]
            wrong += read != [record.sequence_number for record in records]
            repeated += len(read) - len(set(read))
        return wrong, repeated


async def _undiagnosed(error):
    await trio.lowlevel.checkpoint()
    return error
