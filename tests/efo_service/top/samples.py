"""Samples as a test sets them."""

from __future__ import annotations

from efo_service.top.sample import Counters, Sample, ShardSample, StatusSample


def shard(shard_id: str, lag: float | None = 0.0, *, worker: str | None = None, condition="current") -> ShardSample:
    return ShardSample(shard_id, condition, "live", lag, 1.5, 0.0, worker)


def sample(at: float, *shards: ShardSample, records=None, size=None, workers=1, worker="w-1", problems=()) -> Sample:
    status = StatusSample("0.1.0", tuple(problems), "known", shards, workers, "billing", worker)
    return Sample(at, status, ready=not problems, counters=Counters(records or {}, size or {}))
