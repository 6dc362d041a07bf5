"""Takes the snapshot of a worker: of what its consumer knows anyway, without a call of AWS or of the lease store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import trio

from efo.consumer.status import ConsumerStatus
from efo.events import BatchDelivered, CheckpointSaved, DeliveryBlocked, Event, RecordsProcessed
from efo.model import Lease, Shard
from efo_service.version import VERSION
from efo_service.web.live.recent import RecentEvents
from efo_service.web.live.shard_map import Live, Place, live, places
from efo_service.web.live.snapshot import Snapshot, StreamView, workers_of
from efo_service.web.live.traffic import Traffic
from efo_service.web.status import ReportsProblems

_WITHOUT_SENTENCE: Final = frozenset({BatchDelivered, CheckpointSaved, DeliveryBlocked, RecordsProcessed})
"""Events that come with each batch, and never become a sentence."""


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

    def __call__(self, event: Event) -> None:
        """Follow one event."""
        self._traffic(event)
        if type(event) not in _WITHOUT_SENTENCE:
            self.recent(event)

    def view(self) -> StreamView:
        """Return the view of now."""
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
