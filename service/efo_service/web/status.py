"""What /status tells: who this worker is, and what it is reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from efo.consumer.status import ConsumerStatus
from efo_service.version import VERSION
from efo_service.web.health import Health


class ReportsStatus(Protocol):
    """A consumer, as far as this room needs it."""

    def status(self) -> ConsumerStatus:
        """Return a snapshot."""
        ...


class Status:
    """The source of /status. `identity`: what names this worker. `consumer` is None until it is open."""

    def __init__(self, identity: Mapping[str, str], health: Health) -> None:
        self.consumer: ReportsStatus | None = None
        self._health = health
        self._identity = {"version": VERSION, **identity}

    def __call__(self) -> dict[str, Any]:
        """Return the status as values that JSON knows."""
        state = {"draining": self._health.draining, "problems": list(self._health.problems())}
        if self.consumer is None:
            return {**self._identity, **state, "shard_counts": {}, "shards": []}
        snapshot = self.consumer.status()
        shards = [
            {
                "shard_id": shard.shard_id,
                "checkpoint": str(shard.checkpoint),
                "millis_behind_latest": shard.millis_behind_latest,
            }
            for shard in snapshot.shards
        ]
        return {**self._identity, **state, "shard_counts": snapshot.counts, "shards": shards}
