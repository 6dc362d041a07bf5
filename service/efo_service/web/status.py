"""The content of /status: the identity of this worker, and the shards that it reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from efo.consumer.status import ConsumerStatus
from efo.health import LeaseCounts
from efo_service.version import VERSION
from efo_service.web.problems import LastError, continued


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


_LOG: Final = "log"
_SPARK: Final = "spark"
_REMEDIES: Final = {
    _LOG: "make the store of the log reachable from this process",
    _SPARK: "give Spark more cores, or [pipeline] master fewer: Python workers start too slowly",
}
_SHOWN: Final = ("batch_id", "rows_total", "rows_written_total", "lag", "watermark")


class PipelineStatus:
    """Takes the pipeline's progress reports, in one thread; another one asks. `clock`: seconds since the epoch."""

    def __init__(self, names: Mapping[str, str], clock: Callable[[], float] = time.time) -> None:
        self._names = {"version": VERSION, **names}
        self._clock = clock
        self._waiting = ""
        self._queries: dict[str, dict[str, Any]] = {}
        self._errors: dict[str, LastError] = {}

    def __call__(self, progress: Mapping[str, Any]) -> None:
        """Take a report (efo_service.spark.pipeline.progress)."""
        match progress:
            case {"waiting_for": topic, "log": log, "because": because}:
                self._waiting = f"waiting for the topic {topic} in {log}: {because or 'start efo run, which makes it'}"
                if because:
                    self._failed(_LOG, "log_unavailable", because)
                else:
                    self._works(_LOG)
            case {"started_again": query, "because": because}:
                self._failed(_SPARK, "worker_timeout", f"the query {query} was started again: {because}")
            case {"query": query, "batch_id": _}:
                shown = {name: progress.get(name) for name in _SHOWN}
                self._queries = {**self._queries, query: {**shown, "ended_at": round(self._clock(), 3)}}
                self._waiting = ""
                for part in tuple(self._errors):
                    self._works(part)

    def status(self) -> dict[str, Any]:
        """Return the content of /status, as JSON values."""
        errors = tuple(self._errors.values())
        ongoing = [f"{error.text}: {error.remedy}" for error in errors if not error.is_over]
        return {
            **self._names,
            "problems": [*([self._waiting] if self._waiting else []), *ongoing],
            "last_errors": [msgspec.to_builtins(error) for error in errors],
            "queries": self._queries,
        }

    def _failed(self, part: str, error_type: str, text: str) -> None:
        error = LastError("pipeline", error_type, text, round(self._clock(), 3), 1, _REMEDIES[part], is_over=False)
        self._errors = {**self._errors, part: continued(error, self._errors.get(part))}  # the other thread reads it

    def _works(self, part: str) -> None:
        if part in self._errors:
            self._errors = {**self._errors, part: msgspec.structs.replace(self._errors[part], is_over=True)}
