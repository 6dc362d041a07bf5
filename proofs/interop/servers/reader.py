"""An efo consumer, used through the public API, and the records and events that it delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import trio

import efo
from efo.events import Event, EventReceived, ShardFinished, SubscriptionEnded
from efo.exception_groups import collapse_groups
from efo.protocol.subscription import SubscriptionTiming
from efo.testing.server.background import background
from proofs.interop.servers.comparison import Item
from proofs.interop.servers.launcher import Endpoint
from proofs.interop.servers.stream import STREAM

EARLY: Final = SubscriptionTiming(renew_from=6.0, renew_to=8.0)
"""Renews subscriptions early, to keep the checks short. (AWS rejects a second call within 5 s.)"""
TIMEOUT: Final = 90.0
"""Seconds to wait for an expected event. Long, because servers and machines may be slow."""
STREAM_WINDOW: Final = 16 * 1024 * 1024
"""Bytes. Larger than the default: kinesis-mock sends no more than one window per connection (docs/proofs.md)."""
LONG_LIFE: Final = 230.0
"""Seconds. A subscription of this age was renewed as usual, or expired."""

EventT = TypeVar("EventT", bound=Event)


class Reader:
    """The records that one application read, in order, and its events.

    `arrivals`: the approximate arrival timestamp of each record.
    """

    def __init__(self, *leases: efo.leases.Lease) -> None:
        self.items: list[Item] = []
        self.arrivals: list[float] = []
        self.events: list[Event] = []
        self.store = efo.leases.MemoryLeaseStore()
        self._leases = leases
        self._changed = trio.Event()

    async def prepare(self) -> None:
        """Create the initial leases."""
        for lease in self._leases:
            await self.store.create(lease)

    def observe(self, event: Event) -> None:
        """Record an event."""
        self.events.append(event)
        self._notify()

    async def read(self, shard: efo.ShardStream) -> None:
        """Read a shard to its end, and record what it delivers."""
        async for batch in shard:
            for record in batch.records:
                place = shard.shard_id, record.sequence_number, record.sub_sequence_number
                self.items.append(Item(*place, record.partition_key, record.data))
                self.arrivals.append(record.approximate_arrival_timestamp)
            shard.ack(batch)
            self._notify()

    def events_of(self, kind: type[EventT], **members: object) -> list[EventT]:
        """Return the events of this type with these members."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in members.items())
        ]

    def count(self, kind: type[EventReceived | SubscriptionEnded], shards: Iterable[str]) -> Counter[str]:
        """Return the number of events of this type, by shard."""
        counts = Counter(event.shard_id for event in self.events if isinstance(event, kind))
        return Counter({shard: counts[shard] for shard in shards})

    @property
    def renewals(self) -> int:
        """How many subscriptions were renewed, or expired after five minutes."""
        return sum(
            ended.reason == "renewed" or (ended.reason == "expired" and ended.age >= LONG_LIFE)
            for ended in self.events_of(SubscriptionEnded)
        )

    async def until(self, condition: Callable[[], bool], seconds: float = TIMEOUT) -> bool:
        """Wait for a condition; return whether it became true in time."""
        with trio.move_on_after(seconds):
            while not condition():
                await self._changed.wait()
        return condition()

    async def one_more_event(self) -> None:
        """Wait for one more event of each shard that is read: any duplicates have arrived by then."""
        finished = {event.shard_id for event in self.events_of(ShardFinished)}
        before = self.count(EventReceived, {event.shard_id for event in self.events_of(EventReceived)} - finished)
        await self.until(
            lambda: all(count > before[shard] for shard, count in self.count(EventReceived, before).items())
        )

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@asynccontextmanager
async def reading(
    endpoint: Endpoint,
    application: str,
    reader: Reader,
    *,
    stream: str = STREAM,
    timing: SubscriptionTiming | None = None,
    **settings: Any,
) -> AsyncIterator[None]:
    """Let an application read the stream into `reader` until the context is left. Raises EfoError."""
    chosen = efo.ConsumerSettings(
        stream_window=STREAM_WINDOW,
        shard_sync_seconds=2.0,
        timing=timing or SubscriptionTiming(),
        **settings,
    )
    with collapse_groups():
        async with (
            efo.open_kinesis(stream, endpoint_url=endpoint.url, ca_file=str(endpoint.ca_file)) as kinesis,
            efo.open_consumer(
                kinesis,
                application=application,
                leases=reader.store,
                worker_id="worker",
                settings=chosen,
                observer=reader.observe,
            ) as consumer,
            background() as nursery,
        ):
            nursery.start_soon(consumer.run, reader.read)
            yield
