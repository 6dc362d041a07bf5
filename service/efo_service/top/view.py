"""What is shown: from two successive samples to rows with rates, the worst first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from efo.health import ActiveReadMode, Condition, ShardState
from efo_service.top.sample import Sample, ShardKey, ShardSample

Sort = Literal["lag", "rate", "shard"]
"""lag: the highest lag first. rate: the most records per second first. shard: by name."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shard. A rate is per second, and None while it is not known; the other fields are those of /status.

    `stream`: its name in the configuration, if the service has several; otherwise JSON leaves it out.
    """

    shard_id: str
    worker_id: str | None
    condition: Condition
    subscription: ShardState
    lag_seconds: float | None
    records_per_second: float | None
    bytes_per_second: float | None
    last_event_age_seconds: float | None
    checkpoint_age_seconds: float | None
    stream: str | None = None
    read_mode: ActiveReadMode | None = None


class View(msgspec.Struct, frozen=True):
    """The service. `worker_id`: None if a supervisor reported it; then `workers` is the number of its processes.

    `conditions`: the number of shards in each condition. `shards`: the first ones of the order; `shards_not_shown`: how
    many follow.
    """

    application: str | None
    worker_id: str | None
    workers: int | None
    version: str
    ready: bool
    lease_table: str
    conditions: dict[str, int]
    problems: tuple[str, ...]
    shards: tuple[Row, ...]
    shards_not_shown: int = 0

    def limited(self, count: int) -> View:
        """Return the view with the first `count` shards."""
        left_out = max(0, len(self.shards) - count)
        return msgspec.structs.replace(
            self, shards=self.shards[:count], shards_not_shown=self.shards_not_shown + left_out
        )


def view(sample: Sample, previous: Sample | None = None, sort: Sort = "lag") -> View:
    """Return what `sample` shows. The rates are those since the sample `previous`."""
    status = sample.status
    rows = [_row(shard, sample, previous) for shard in status.shards]
    workers = status.workers
    return View(
        application=status.application,
        worker_id=status.worker_id,
        workers=len(workers) if isinstance(workers, tuple) else None,
        version=status.version,
        ready=sample.ready,
        lease_table=status.lease_table,
        conditions=dict(sorted(Counter(row.condition for row in rows).items())),
        problems=status.problems,
        shards=tuple(sorted(rows, key=_ORDERS[sort])),
    )


def rate(
    now: Mapping[ShardKey, float], before: Mapping[ShardKey, float], key: ShardKey, seconds: float
) -> float | None:
    """Return how much a counter grew per second; None if that is not known.

    It is not known if the counter is missing in one of the samples, or has fallen: the service was restarted, and
    counts from 0.
    """
    if seconds <= 0 or key not in now or key not in before or now[key] < before[key]:
        return None
    return (now[key] - before[key]) / seconds


def _row(shard: ShardSample, sample: Sample, previous: Sample | None) -> Row:
    before = previous or sample
    seconds = sample.at - before.at
    return Row(
        shard_id=shard.shard_id,
        worker_id=shard.worker_id or sample.status.worker_id,
        condition=shard.condition,
        subscription=shard.subscription,
        lag_seconds=shard.lag_seconds,
        records_per_second=rate(sample.counters.records, before.counters.records, shard.key, seconds),
        bytes_per_second=rate(sample.counters.bytes, before.counters.bytes, shard.key, seconds),
        last_event_age_seconds=shard.last_event_age_seconds,
        checkpoint_age_seconds=shard.checkpoint_age_seconds,
        stream=shard.stream,
        read_mode=shard.read_mode,
    )


def _name(row: Row) -> tuple[Any, ...]:
    return row.stream or "", row.shard_id, row.worker_id or ""


def _highest_first(value: float | None) -> float:
    return 1.0 if value is None else -value  # what is not known comes last


_ORDERS: Final[Mapping[Sort, Callable[[Row], tuple[Any, ...]]]] = {
    "lag": lambda row: (_highest_first(row.lag_seconds), row.condition == "current", *_name(row)),
    "rate": lambda row: (_highest_first(row.records_per_second), *_name(row)),
    "shard": _name,
}
