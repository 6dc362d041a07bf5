"""The content of /status: the identity of this worker, and the shards that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from efo.consumer.status import ConsumerStatus
from efo.health import LeaseCounts
from efo_service.version import VERSION
from efo_service.web.problems import LastError


class ReportsStatus(Protocol):
    """The part of a consumer that /status uses."""

    def status(self) -> ConsumerStatus:
        """Return a snapshot of the consumer's state."""
        ...


class ReportsProblems(Protocol):
    """The part of efo_service.web.health.Health that /status uses."""

    draining: bool

    def problems(self) -> tuple[str, ...]:
        """Return everything that is wrong."""
        ...

    def last_errors(self) -> Sequence[LastError]:
        """Return the last error of each system that had one."""
        ...


class Status:
    """The source of /status. `identity`: the names of this worker. `consumer` is None until it is open."""

    def __init__(self, identity: Mapping[str, str], health: ReportsProblems) -> None:
        self.consumer: ReportsStatus | None = None
        self._health = health
        self._identity = {"version": VERSION, **identity}

    def __call__(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        state = {
            "draining": self._health.draining,
            "problems": list(self._health.problems()),
            "last_errors": msgspec.to_builtins(self._health.last_errors()),
        }
        if self.consumer is None:
            how = {"read_mode": None, "fan_out_error": None}
            return {**self._identity, **state, "advice": [], **how, **_lease_table(None), "shards": [], "isolated": []}
        snapshot = self.consumer.status()
        shards = [
            {
                "shard_id": shard.shard_id,
                "checkpoint": str(shard.checkpoint),
                "condition": shard.condition,
                "lag_seconds": _rounded(shard.lag),
                "read_lag_seconds": _rounded(shard.read_lag),
                "millis_behind_latest": shard.millis_behind_latest,
                "subscription": shard.state,
                "read_mode": shard.read_mode,
                "paused": shard.is_paused,
                "last_event_age_seconds": _rounded(shard.last_event_age),
                "checkpoint_age_seconds": _rounded(shard.checkpoint_age),
                "checkpoint_saved_age_seconds": _rounded(shard.saved_age),
            }
            for shard in snapshot.shards
        ]
        isolated = [
            {
                "shard_id": shard.shard_id,
                "error_type": shard.error_type,
                "reason": shard.detail,
                "record": shard.record,
                "seconds_left": _rounded(shard.seconds_left),
            }
            for shard in snapshot.isolated
        ]
        return {
            **self._identity,
            **state,
            "advice": [f"{advice.what}: {advice.remedy}" for advice in snapshot.advice],
            "read_mode": snapshot.read_mode,
            "fan_out_error": snapshot.fan_out_error,
            **_lease_table(snapshot.leases),
            "shards": shards,
            "isolated": isolated,
        }


def _lease_table(counts: LeaseCounts | None) -> dict[str, Any]:
    """Return what the lease table shows. While it is unknown, so are the numbers: the last ones may be wrong."""
    if counts is None:
        return {"lease_table": "unknown", "shard_counts": None, "lease_counts": None, "workers": None}
    return {
        "lease_table": "known",
        "shard_counts": counts.shards,
        "lease_counts": counts.leases,
        "workers": counts.workers,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
