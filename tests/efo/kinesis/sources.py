"""Sources of the events of one shard, on a fake, for tests."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import trio

from efo.events import Event
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.identity import MissingShards
from efo.kinesis.pacing import SubscribePacer
from efo.kinesis.polling.auto_source import AutoSource, FanOut
from efo.kinesis.polling.shard_polling import PollCaller, ShardPolling
from efo.kinesis.registration import Registration
from efo.kinesis.shard_source import ShardEnd, ShardSource
from efo.kinesis.shard_subscription import ShardSubscription
from efo.kinesis.subscribe_call import SubscribeCaller
from efo.model import Position
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.faults.kinds import Refuse
from efo.testing.faults.script import ALWAYS, When

STREAM = "orders"
SHARD = "shardId-000000000000"
DENIED = Refuse("AccessDeniedException", message="not authorized to perform kinesis:SubscribeToShard")


class Sources:
    """Makes sources of the fake's stream. `seen`: the diagnostic events of all of them."""

    def __init__(
        self, fake: FakeKinesis, nursery: trio.Nursery, retry_interval: float = 60.0, given: str | None = None
    ) -> None:
        self.fake = fake
        self.seen: list[Event] = []
        self._nursery = nursery
        self._rng = random.Random(1)
        kinesis = fake.kinesis(STREAM)
        self.pool = ConnectionPool(kinesis.connect, address="fake", observer=self.seen.append)
        self.limiter = SubscribePacer(100.0)
        self.registration = Registration(kinesis.control_plane, "reader", self.seen.append, given)
        self.fan_out = FanOut(self.registration, retry_interval=retry_interval, observer=self.seen.append)
        self._missing = MissingShards(kinesis.control_plane)
        where = {"sign": kinesis.sign, "authority": kinesis.authority, "scheme": kinesis.scheme}
        self._subscriber = SubscribeCaller(self.pool, **where, consumer_arn=lambda: self.registration.arn)
        self.caller = PollCaller(self.pool, **where, stream=STREAM, stream_arn=None, silence=35.0)

    def subscribe(self, position: Position, shard_id: str = SHARD) -> ShardSubscription:
        """Return a subscription."""
        return ShardSubscription(
            self._nursery,
            shard_id,
            position,
            caller=self._subscriber,
            limiter=self.limiter,
            diagnose=lambda error: self.fan_out.diagnose(shard_id, error),
            rng=self._rng,
            observer=self.seen.append,
        )

    def poll(self, position: Position, shard_id: str = SHARD) -> ShardPolling:
        """Return a polling."""
        return ShardPolling(
            shard_id,
            position,
            caller=self.caller,
            explain_missing=self._missing.explain,
            rng=self._rng,
            interval=1.0,
            observer=self.seen.append,
        )

    def auto(self, position: Position, shard_id: str = SHARD) -> AutoSource:
        """Return a source that is either."""
        return AutoSource(
            position,
            subscribe=lambda at: self.subscribe(at, shard_id),
            poll=lambda at: self.poll(at, shard_id),
            fan_out=self.fan_out,
        )

    def make(self, kind: str, position: Position) -> ShardSource:
        """Return a source by the name of its kind; "denied" is auto without permission for fan-out."""
        if kind == "denied":
            self.deny()
            kind = "auto"
        source: ShardSource = getattr(self, kind)(position)
        return source

    def deny(self, start: float = 0.0, stop: float = inf) -> None:
        """Deny SubscribeToShard."""
        self.fake.faults.add(DENIED, When(operation="SubscribeToShard", times=ALWAYS, start=start, stop=stop))

    def put(self, *numbers: int) -> None:
        """Put records whose data are these numbers."""
        for number in numbers:
            self.fake.put(STREAM, "k", b"%d" % number)

    async def put_for(self, count: int, every: float) -> None:
        """Put `count` numbers from 0, one every `every` seconds."""
        for number in range(count):
            self.put(number)
            await trio.sleep(every)


@asynccontextmanager
async def open_sources(
    *, retry_interval: float = 60.0, given: bool = False, **settings: object
) -> AsyncIterator[Sources]:
    """Run a fake with one shard, and what makes sources of it. `retry_interval`: that of fan-out.

    `given`: whether the fan-out consumer is given by its ARN.
    """
    fake_settings = FakeSettings(**({"consumer_creating": 0.0} | settings))  # type: ignore[arg-type]
    async with FakeKinesis(settings=fake_settings) as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        arn = fake.register(STREAM, "reader").arn if given else None
        sources = Sources(fake, nursery, retry_interval, arn)
        await nursery.start(sources.pool.run)
        await nursery.start(sources.limiter.run)
        await nursery.start(sources.fan_out.keep_registered)
        yield sources
        nursery.cancel_scope.cancel()


async def read(source: ShardSource, count: float = inf) -> list[int]:
    """Read records until there are `count`, or to the end of the shard; return their numbers."""
    numbers: list[int] = []
    while len(numbers) < count:
        event = await source.receive()
        if isinstance(event, ShardEnd):
            break
        if event is not None:
            numbers += [int(record.data) for record in event.records]
    return numbers
