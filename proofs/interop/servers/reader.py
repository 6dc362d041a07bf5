"""efo's consumer, unchanged and by its public names, and what it read and told."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import trio

import efo
from efo.events import Event, EventReceived, ShardFinished, SubscriptionEnded
from efo.exception_groups import collapse_groups
from efo.protocol.subscription import Timing
from efo.testing.server.background import background
from proofs.interop.servers.judgement import Item
from proofs.interop.servers.running import Endpoint
from proofs.interop.servers.stream import STREAM

EARLY: Final = Timing(renew_from=6.0, renew_to=8.0)
"""Renews subscriptions early, so that it is seen. (AWS: a second call within 5 s is refused.)"""
PATIENCE: Final = 90.0
"""Seconds to wait for what ought to come soon: a server may be slow, and so may this machine."""
STREAM_WINDOW: Final = 16 * 1024 * 1024
"""Bytes. Wider than usual: kinesis-mock never sends more on a connection than one window (docs/foreign.md)."""
LONG_LIFE: Final = 230.0
"""Seconds. A subscription that lived so long was renewed at the usual age, or ended at its natural end."""

EventT = TypeVar("EventT", bound=Event)


class Reader:
    """What one application read, in its order, and the events that it was told. `arrivals`: when, for each record."""

    def __init__(self, *leases: efo.Lease) -> None:
        self.items: list[Item] = []
        self.arrivals: list[float] = []
        self.events: list[Event] = []
        self.store = efo.MemoryLeaseStore()
        self._leases = leases
        self._news = trio.Event()

    async def prepare(self) -> None:
        """Create the leases that it is to begin with."""
        for lease in self._leases:
            await self.store.create(lease)

    def observe(self, event: Event) -> None:
        """Take an event."""
        self.events.append(event)
        self._tell()

    async def read(self, shard: efo.ShardStream) -> None:
        """ShardReader a shard."""
        async for batch in shard:
            for record in batch.records:
                place = shard.shard_id, record.sequence_number, record.sub_sequence_number
                self.items.append(Item(*place, record.partition_key, record.data))
                self.arrivals.append(record.approximate_arrival_timestamp)
            shard.ack(batch)
            self._tell()

    def told(self, kind: type[EventT], **members: object) -> list[EventT]:
        """Return the events of this kind that have these members."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in members.items())
        ]

    def count(self, kind: type[EventReceived | SubscriptionEnded], shards: Iterable[str]) -> Counter[str]:
        """Return how many events of this kind each of these shards had."""
        counts = Counter(event.shard_id for event in self.events if isinstance(event, kind))
        return Counter({shard: counts[shard] for shard in shards})

    @property
    def renewals(self) -> int:
        """How many subscriptions were replaced by another, early or at the natural end of their five minutes."""
        return sum(
            ended.reason == "renewed" or (ended.reason == "expired" and ended.age >= LONG_LIFE)
            for ended in self.told(SubscriptionEnded)
        )

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Wait until it is so; return whether it came to be in time."""
        with trio.move_on_after(seconds):
            while not condition():
                await self._news.wait()
        return condition()

    async def one_more_event(self) -> None:
        """Wait until each shard that it reads had one more event: what would come too often has come."""
        finished = {event.shard_id for event in self.told(ShardFinished)}
        before = self.count(EventReceived, {event.shard_id for event in self.told(EventReceived)} - finished)
        await self.until(
            lambda: all(count > before[shard] for shard, count in self.count(EventReceived, before).items())
        )

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()


@asynccontextmanager
async def reading(
    endpoint: Endpoint,
    application: str,
    reader: Reader,
    *,
    stream: str = STREAM,
    timing: Timing | None = None,
    **settings: Any,
) -> AsyncIterator[None]:
    """Let an application read the stream into its reader until the context is left. Raises EfoError."""
    chosen = efo.ConsumerSettings(
        application=application,
        worker_id="worker",
        stream_window=STREAM_WINDOW,
        shard_sync_interval=2.0,
        timing=timing or Timing(),
        **settings,
    )
    with collapse_groups():
        async with (
            efo.open_kinesis(stream, endpoint_url=endpoint.url, ca_file=str(endpoint.ca_file)) as kinesis,
            efo.open_consumer(kinesis, reader.store, chosen, reader.observe) as consumer,
            background() as nursery,
        ):
            nursery.start_soon(consumer.run, reader.read)
            yield
