"""The content of /status: the identity of this worker, and the shards that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from efo.consumer.status import ConsumerStatus
from efo_service.version import VERSION
from efo_service.web.health import Health


class ReportsStatus(Protocol):
    """The part of a consumer that /status uses."""

    def status(self) -> ConsumerStatus:
        """Return a snapshot of the consumer's state."""
        ...


class Status:
    """The source of /status. `identity`: the names of this worker. `consumer` is None until it is open."""

    def __init__(self, identity: Mapping[str, str], health: Health) -> None:
        self.consumer: ReportsStatus | None = None
        self._health = health
        self._identity = {"version": VERSION, **identity}

    def __call__(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        state = {"draining": self._health.draining, "problems": list(self._health.problems())}
        if self.consumer is None:
            return {**self._identity, **state, "shard_counts": {}, "shards": [], "isolated": []}
        snapshot = self.consumer.status()
        shards = [
            {
                "shard_id": shard.shard_id,
                "checkpoint": str(shard.checkpoint),
                "millis_behind_latest": shard.millis_behind_latest,
                "subscription": shard.state,
                "paused": shard.is_paused,
                "last_event_age_seconds": _rounded(shard.last_event_age),
            }
            for shard in snapshot.shards
        ]
        isolated = [
            {
                "shard_id": shard.shard_id,
                "error_type": shard.error_type,
                "seconds_left": _rounded(shard.seconds_left),
            }
            for shard in snapshot.isolated
        ]
        return {
            **self._identity,
            **state,
            "shard_counts": snapshot.counts,
            "shards": shards,
            "isolated": isolated,
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
