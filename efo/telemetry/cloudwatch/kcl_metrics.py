"""From diagnostic events to the metrics of KCL. Pure: docs/monitoring.md has the table of names.

Between two publications each metric is one statistic set: count, sum, minimum, maximum. So what is sent does not depend
on the rate of the stream. Only what efo measures has a metric; a name of KCL is never filled with something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from efo.events import (
    CheckpointSaved,
    Event,
    EventReceived,
    HandlerFailed,
    LeaseLost,
    LeasesCounted,
    LeaseStoreCalled,
    RecordsProcessed,
    ShardFinished,
    ShardsListed,
    ShardStarted,
    ShardStopped,
    ShardSyncFailed,
    WorkerStarted,
)
from efo.telemetry.combined import nothing_held

CloudWatchLevel = Literal["summary", "detailed"]
"""How many metrics: KCL's MetricsLevel."""
Unit = Literal["Count", "Bytes", "Milliseconds"]
"""A unit of CloudWatch."""
Dimensions = tuple[tuple[str, str], ...]
"""Names and values of a metric's dimensions."""

_PLANNED_LOSSES: Final = {"released", "handed_over"}
_DETAILED: Final = frozenset({
    "UpdateLease.Success", "UpdateLease.Time", "RenewLease.Success", "RenewLease.Time", "TakeLease.Success",
    "TakeLease.Time", "ListLeases.Success", "ListLeases.Time", "CreateLease.Success", "CreateLease.Time", "TotalLeases",
})  # fmt: skip
"""What KCL publishes on the level DETAILED only."""


class Datum(msgspec.Struct, frozen=True):
    """The statistic set of a metric (AWS: MetricDatum). `timestamp`: seconds since the epoch."""

    name: str
    unit: Unit
    dimensions: Dimensions
    timestamp: float
    count: int
    total: float
    minimum: float
    maximum: float


class _Statistics:
    """A statistic set that grows."""

    __slots__ = ("count", "maximum", "minimum", "total")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.count = 0
        self.total = self.minimum = self.maximum = 0.0

    def add(self, value: float) -> None:
        if not self.count or value < self.minimum:
            self.minimum = value
        if not self.count or value > self.maximum:
            self.maximum = value
        self.count += 1
        self.total += value


class _Group:
    """The metrics of one operation with the same dimensions, by their names."""

    __slots__ = ("_is_detailed", "_metrics", "dimensions")

    def __init__(self, dimensions: Dimensions, *, is_detailed: bool) -> None:
        self.dimensions = dimensions
        self._is_detailed = is_detailed
        self._metrics: dict[str, tuple[Unit, _Statistics]] = {}

    def metric(self, name: str, unit: Unit = "Count") -> _Statistics:
        """Return the statistics of a metric. Those of a metric of a higher level are never published."""
        if (found := self._metrics.get(name)) is not None:
            return found[1]
        statistics = _Statistics()
        if self._is_detailed or name not in _DETAILED:
            self._metrics[name] = unit, statistics
        return statistics

    def call(self, name: str, seconds: float, *, succeeded: bool, times: int = 1) -> None:
        """Note calls of the lease store: NAME.Success and NAME.Time."""
        success, time = self.metric(f"{name}.Success"), self.metric(f"{name}.Time", "Milliseconds")
        for _ in range(times):
            success.add(float(succeeded))
        time.add(seconds * 1000)

    def take(self, timestamp: float) -> list[Datum]:
        """Return what was measured since the last call."""
        found = []
        for name, (unit, values) in self._metrics.items():
            if values.count:
                numbers = values.count, values.total, values.minimum, values.maximum
                found.append(Datum(name, unit, self.dimensions, timestamp, *numbers))
                values.reset()
        return found


class _ShardGroup(_Group):
    """ProcessTask of one shard. What each event and each batch feeds is looked up once."""

    __slots__ = ("behind", "records", "size", "success", "task_time", "time")

    def __init__(self, dimensions: Dimensions, *, is_detailed: bool) -> None:
        super().__init__(dimensions, is_detailed=is_detailed)
        self.records = self.metric("RecordsProcessed")
        self.size = self.metric("DataBytesProcessed", "Bytes")
        self.behind = self.metric("MillisBehindLatest", "Milliseconds")
        self.time = self.metric("RecordProcessor.processRecords.Time", "Milliseconds")
        self.success = self.metric("Success")
        self.task_time = self.metric("Time", "Milliseconds")


class KclMetrics:
    """Aggregates events: call it with each, and `take` what is to be published.

    `level`: "summary" or "detailed". `worker_dimension`: whether metrics of a worker have the dimension
    WorkerIdentifier. KCL's default is no, so that those of all workers are one metric.
    """

    def __init__(self, level: CloudWatchLevel, *, worker_dimension: bool = False) -> None:
        self._is_detailed = level == "detailed"
        self._has_worker = worker_dimension
        self._worker: Dimensions = ()
        self._shards: dict[str, _ShardGroup] = {}
        self._held: set[str] = set()
        self._lost = 0
        self._started = False
        self._drain: Callable[[], None] = nothing_held
        self._make_groups()
        self._feeds: dict[type, Callable[[Any], None]] = {
            WorkerStarted: self._worker_started,
            EventReceived: self._received,
            RecordsProcessed: self._processed,
            HandlerFailed: self._handler_failed,
            CheckpointSaved: self._checkpoint_saved,
            LeaseStoreCalled: self._store_called,
            LeasesCounted: self._leases_counted,
            LeaseLost: self._lease_lost,
            ShardStarted: self._shard_started,
            ShardStopped: self._shard_left,
            ShardFinished: self._shard_left,
            ShardsListed: self._shards_listed,
            ShardSyncFailed: self._sync_failed,
        }

    def observes(self, event_type: type) -> bool:
        """Whether a metric is made from events of this type (see `combine_observers`)."""
        return event_type in self._feeds

    def __call__(self, event: Event) -> None:
        """Note an event."""
        if (feed := self._feeds.get(type(event))) is not None:
            feed(event)

    def observe_many(self, events: Sequence[Event]) -> None:
        """Note events that were held back (see `efo.telemetry.combined`)."""
        for event in events:
            self(event)

    def held_by(self, drain: Callable[[], None]) -> None:
        """Call `drain` before metrics are taken: it passes on the events that are held back."""
        self._drain = drain

    def take(self, timestamp: float) -> list[Datum]:
        """Return the metrics since the last call, with this time: seconds since the epoch."""
        self._drain()
        if self._started:
            self._renew.metric("CurrentLeases").add(len(self._held))
            self._renew.metric("LostLeases").add(self._lost)
            self._lost = 0
        groups = [*self._shards.values(), self._renew, self._take, self._sync, self._shutdown]
        found = [datum for group in groups for datum in group.take(timestamp)]
        for shard_id in self._shards.keys() - self._held:
            del self._shards[shard_id]
        return found

    def _make_groups(self) -> None:
        self._renew = self._group("RenewAllLeases", self._worker)
        self._take = self._group("TakeLeases", self._worker)
        self._sync = self._group("ShardSyncTask")
        self._shutdown = self._group("ShutdownTask")

    def _group(self, operation: str, others: Dimensions = ()) -> _Group:
        return _Group((("Operation", operation), *others), is_detailed=self._is_detailed)

    def _shard(self, shard_id: str) -> _ShardGroup:
        if (found := self._shards.get(shard_id)) is None:
            dimensions = (("Operation", "ProcessTask"), ("ShardId", shard_id))
            found = self._shards[shard_id] = _ShardGroup(dimensions, is_detailed=self._is_detailed)
        return found

    def _worker_started(self, event: WorkerStarted) -> None:
        if self._has_worker:
            self._worker = (("WorkerIdentifier", event.worker_id),)
            self._make_groups()
        self._started = True

    # --- ProcessTask -----------------------------------------------------------------------------------------

    def _received(self, event: EventReceived) -> None:
        self._shard(event.shard_id).behind.add(event.millis_behind_latest)

    def _processed(self, event: RecordsProcessed) -> None:
        shard, milliseconds = self._shard(event.shard_id), event.duration * 1000
        shard.records.add(event.records)
        shard.size.add(event.data_bytes)
        shard.time.add(milliseconds)
        shard.task_time.add(milliseconds)
        shard.success.add(1)

    def _handler_failed(self, event: HandlerFailed) -> None:
        if event.call == "handler":
            shard = self._shard(event.shard_id)
            shard.success.add(0)
            shard.time.add(event.duration * 1000)

    def _checkpoint_saved(self, event: CheckpointSaved) -> None:
        self._shard(event.shard_id).metric("UpdateLease.Success").add(1)

    # --- leases ----------------------------------------------------------------------------------------------

    def _store_called(self, event: LeaseStoreCalled) -> None:
        # A lost race is a response of a store that works, and success to KCL, too.
        succeeded, taken = event.error_type in {None, "lease_lost"}, event.error_type is None
        match event.operation:
            case "renew" | "checkpoint":
                self._renew.call("RenewLease", event.duration, succeeded=succeeded, times=event.leases)
                self._renew.metric("Success").add(float(succeeded))
                self._renew.metric("Time", "Milliseconds").add(event.duration * 1000)
                if event.operation == "checkpoint" and event.shard_id:
                    shard = self._shard(event.shard_id)
                    shard.metric("UpdateLease.Time", "Milliseconds").add(event.duration * 1000)
                    if not succeeded:
                        shard.metric("UpdateLease.Success").add(0)
            case "take" | "steal":
                self._take.call("TakeLease", event.duration, succeeded=succeeded)
                self._take.metric("TakenLeases" if taken else "UntakenLeases").add(1)
            case "list":
                self._take.call("ListLeases", event.duration, succeeded=succeeded)
            case "create":
                self._sync.call("CreateLease", event.duration, succeeded=succeeded, times=event.leases)

    def _leases_counted(self, event: LeasesCounted) -> None:
        counts = event.counts
        self._take.metric("NumWorkers").add(event.workers)
        self._take.metric("TotalLeases").add(sum(counts.values()))
        self._take.metric("ExpiredLeases").add(counts.get("expired", 0) + counts.get("unowned", 0))

    def _lease_lost(self, event: LeaseLost) -> None:
        if event.reason not in _PLANNED_LOSSES:
            self._lost += 1

    # --- shards ----------------------------------------------------------------------------------------------

    def _shard_started(self, event: ShardStarted) -> None:
        self._held.add(event.shard_id)

    def _shard_left(self, event: ShardStopped | ShardFinished) -> None:
        self._held.discard(event.shard_id)
        if isinstance(event, ShardFinished):
            self._shutdown.metric("Success").add(1)

    def _shards_listed(self, _event: ShardsListed) -> None:
        self._sync.metric("Success").add(1)

    def _sync_failed(self, _event: ShardSyncFailed) -> None:
        self._sync.metric("Success").add(0)
