"""Takes the snapshot of a worker: of what its consumer knows anyway, without a call of AWS or of the lease store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import trio

from efo.consumer.status import ConsumerStatus
from efo.events import Event
from efo.model import Lease, Shard
from efo.telemetry.combined import FREQUENT, nothing_held
from efo_service.version import VERSION
from efo_service.web.live.recent import RecentEvents
from efo_service.web.live.shard_map import Live, Place, live, places
from efo_service.web.live.snapshot import Snapshot, StreamView, workers_of
from efo_service.web.live.traffic import Traffic
from efo_service.web.status import ReportsProblems


class ShowsShards(Protocol):
    """The part of a consumer that the page shows."""

    def status(self) -> ConsumerStatus:
        """Return a snapshot of the consumer's state."""
        ...

    def lineage(self) -> tuple[Sequence[Shard], Mapping[str, Lease]]:
        """Return the listed shards, and all leases by shard id."""
        ...


class StreamSource:
    """Views of one stream. `consumer` is None until it is open. As an observer, it follows traffic and events."""

    def __init__(self, identity: Mapping[str, str], health: ReportsProblems) -> None:
        self.consumer: ShowsShards | None = None
        self.recent = RecentEvents()
        self._identity = identity
        self._health = health
        self._traffic = Traffic()
        self._lineage: tuple[Sequence[Shard], frozenset[str]] = ((), frozenset())
        self._places: tuple[Place, ...] = ()
        self._drain: Callable[[], None] = nothing_held

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type is counted, or may become a sentence (see `combine_observers`)."""
        return event_type in FREQUENT or self.recent.observes(event_type)

    def __call__(self, event: Event) -> None:
        """Follow one event."""
        self._traffic(event)
        self.recent(event)

    def observe_many(self, events: Sequence[Event]) -> None:
        """Follow events that were held back (see `efo.telemetry.combined`)."""
        for event in events:
            self(event)

    def held_by(self, drain: Callable[[], None]) -> None:
        """Call `drain` before each view: it passes on the events that are held back."""
        self._drain = drain

    def view(self) -> StreamView:
        """Return the view of now."""
        self._drain()
        found: tuple[Place, ...] = ()
        shards: tuple[Live, ...] = ()
        worker_id, lease_table = self._identity.get("worker_id", ""), "unknown"
        if self.consumer is not None:
            status = self.consumer.status()
            worker_id = status.worker_id
            lease_table = "unknown" if status.leases is None else "known"
            listed, leases = self.consumer.lineage()
            found = self._placed(listed, leases)
            shards = live(found, leases, status, self._traffic.sample(trio.current_time()))
        return StreamView(
            stream=self._identity.get("stream", ""),
            application=self._identity.get("application", ""),
            topic=self._identity.get("topic", ""),
            worker_id=worker_id,
            version=VERSION,
            draining=self._health.draining,
            lease_table=lease_table,
            problems=self._health.problems(),
            workers=workers_of(shards, worker_id),
            events=self.recent.sentences(),
            places=found,
            live=shards,
        )

    def _placed(self, listed: Sequence[Shard], leases: Mapping[str, Lease]) -> tuple[Place, ...]:
        """Return the places, computed again only after a listing or if leases came or went."""
        lineage = (listed, frozenset(leases))
        if self._lineage[0] is not listed or self._lineage[1] != lineage[1]:
            self._lineage, self._places = lineage, places(listed, leases)
        return self._places


async def snapshot_of(sources: Sequence[StreamSource]) -> Snapshot:
    """Return the snapshot of all streams of a worker."""
    await trio.lowlevel.checkpoint()
    return Snapshot(tuple(source.view() for source in sources))
