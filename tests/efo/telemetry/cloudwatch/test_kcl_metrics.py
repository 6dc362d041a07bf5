"""Which metrics of KCL each diagnostic event feeds."""

from __future__ import annotations

from efo import events
from efo.model import Checkpoint
from efo.telemetry.cloudwatch.kcl_metrics import KclMetrics
from tests.efo.telemetry.test_observer import EVERY_EVENT
from tests.paths import ROOT

SHARD = (("Operation", "ProcessTask"), ("ShardId", "s-0"))
RENEW, TAKE, SYNC, SHUTDOWN = (
    (("Operation", name),) for name in ("RenewAllLeases", "TakeLeases", "ShardSyncTask", "ShutdownTask")
)


def published(metrics: KclMetrics, timestamp: float = 100.0) -> dict:
    """Return count, sum, minimum and maximum of each metric."""
    return {
        (metric.dimensions, metric.name): (metric.count, metric.total, metric.minimum, metric.maximum)
        for metric in metrics.take(timestamp)
    }


def after(*seen: events.Event, level: str = "detailed", **options) -> dict:
    metrics = KclMetrics(level, **options)
    for event in seen:
        metrics(event)
    return published(metrics)


def test_batches_and_events_feed_process_task_of_their_shard():
    found = after(
        events.EventReceived("s-0", 4, 900, 1500, None),
        events.EventReceived("s-0", 4, 900, 500, 1.0),
        events.RecordsProcessed("s-0", 4, 0.5, 1.0, 1.0, 800),
        events.RecordsProcessed("s-0", 2, 0.25, 1.0, 1.0, 300),
    )
    assert found == {
        (SHARD, "RecordsProcessed"): (2, 6, 2, 4),
        (SHARD, "DataBytesProcessed"): (2, 1100, 300, 800),
        (SHARD, "MillisBehindLatest"): (2, 2000, 500, 1500),
        (SHARD, "RecordProcessor.processRecords.Time"): (2, 750, 250, 500),
        (SHARD, "Time"): (2, 750, 250, 500),
        (SHARD, "Success"): (2, 2, 1, 1),
    }


def test_a_handler_that_fails_is_no_success_but_a_failed_dead_letter_is_not_of_the_task():
    failed = ("s-0", "1", 3, 1, 0.5, "ValueError", "retry")
    found = after(events.HandlerFailed(*failed), events.HandlerFailed(*failed, call="dead_letter"))
    assert found == {
        (SHARD, "Success"): (1, 0, 0, 0),
        (SHARD, "RecordProcessor.processRecords.Time"): (1, 500, 500, 500),
    }


def test_checkpoints_are_renewals_and_updates_of_their_leases():
    found = after(
        events.CheckpointSaved("s-0", Checkpoint("1")),
        events.LeaseStoreCalled("checkpoint", "s-0", 0.25),
        events.LeaseStoreCalled("checkpoint", "", 0.5, None, 3),
        events.LeaseStoreCalled("renew", "s-0", 1.0, "lease_store_unavailable"),
    )
    assert found == {
        (SHARD, "UpdateLease.Success"): (1, 1, 1, 1),
        (SHARD, "UpdateLease.Time"): (1, 250, 250, 250),
        (RENEW, "RenewLease.Success"): (5, 4, 0, 1),
        (RENEW, "RenewLease.Time"): (3, 1750, 250, 1000),
        (RENEW, "Success"): (3, 2, 0, 1),
        (RENEW, "Time"): (3, 1750, 250, 1000),
    }


def test_lease_scans_and_takes_feed_take_leases():
    found = after(
        events.LeaseStoreCalled("list", "", 0.125),
        events.LeaseStoreCalled("take", "s-0", 0.5),
        events.LeaseStoreCalled("steal", "s-1", 0.5, "lease_lost"),
        events.LeasesCounted({"held": 5, "unowned": 2, "expired": 1}, 3),
    )
    assert found == {
        (TAKE, "ListLeases.Success"): (1, 1, 1, 1),
        (TAKE, "ListLeases.Time"): (1, 125, 125, 125),
        (TAKE, "TakeLease.Success"): (2, 2, 1, 1),
        (TAKE, "TakeLease.Time"): (2, 1000, 500, 500),
        (TAKE, "TakenLeases"): (1, 1, 1, 1),
        (TAKE, "UntakenLeases"): (1, 1, 1, 1),
        (TAKE, "NumWorkers"): (1, 3, 3, 3),
        (TAKE, "TotalLeases"): (1, 8, 8, 8),
        (TAKE, "ExpiredLeases"): (1, 3, 3, 3),
    }


def test_current_and_lost_leases_are_published_each_time_also_as_zero():
    metrics = KclMetrics("detailed")
    assert published(metrics) == {}
    metrics(events.WorkerStarted("w-1"))
    metrics(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
    metrics(events.ShardStarted("s-1", Checkpoint.TRIM_HORIZON))
    for reason in ("taken", "expired", "released", "handed_over"):
        metrics(events.LeaseLost("s-1", reason))
    metrics(events.ShardStopped("s-1"))
    assert published(metrics) == {(RENEW, "CurrentLeases"): (1, 1, 1, 1), (RENEW, "LostLeases"): (1, 2, 2, 2)}
    assert published(metrics) == {(RENEW, "CurrentLeases"): (1, 1, 1, 1), (RENEW, "LostLeases"): (1, 0, 0, 0)}


def test_shard_syncs_and_ends_of_shards():
    found = after(
        events.ShardsListed(4),
        events.ShardSyncFailed("throttled", ""),
        events.LeaseStoreCalled("create", "s-0", 0.5),
        events.ShardFinished("s-0", ()),
    )
    assert found == {
        (SYNC, "Success"): (2, 1, 0, 1),
        (SYNC, "CreateLease.Success"): (1, 1, 1, 1),
        (SYNC, "CreateLease.Time"): (1, 500, 500, 500),
        (SHUTDOWN, "Success"): (1, 1, 1, 1),
    }


def test_the_summary_has_no_metric_of_the_level_detailed():
    summary, detailed = (after(*EVERY_EVENT, level=level) for level in ("summary", "detailed"))
    assert {name for _, name in detailed} - {name for _, name in summary} == {
        "UpdateLease.Time",
        "UpdateLease.Success",
        "RenewLease.Success",
        "RenewLease.Time",
        "TakeLease.Success",
        "TakeLease.Time",
        "ListLeases.Success",
        "ListLeases.Time",
        "TotalLeases",
    } & {name for _, name in detailed}
    assert {"RecordsProcessed", "MillisBehindLatest"} <= {name for _, name in summary}


def test_the_worker_is_a_dimension_only_if_it_is_asked_for():
    seen = events.WorkerStarted("w-1"), events.LeasesCounted({"held": 1}, 1)
    assert (TAKE, "NumWorkers") in after(*seen)
    assert ((*TAKE, ("WorkerIdentifier", "w-1")), "NumWorkers") in after(*seen, worker_dimension=True)


def test_each_publication_has_what_came_since_the_last_one():
    metrics = KclMetrics("summary")
    metrics(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
    metrics(events.EventReceived("s-0", 1, 900, 7, None))
    assert [(datum.maximum, datum.timestamp) for datum in metrics.take(50.0)] == [(7, 50.0)]
    assert metrics.take(60.0) == []
    metrics(events.EventReceived("s-0", 1, 900, 3, None))
    assert [datum.maximum for datum in metrics.take(70.0)] == [3]


def test_shards_that_are_no_longer_read_are_forgotten():
    metrics = KclMetrics("summary")
    for number in range(100):
        metrics(events.ShardStarted(f"s-{number}", Checkpoint.TRIM_HORIZON))
        metrics(events.ShardStopped(f"s-{number}"))
        metrics(events.CheckpointSaved(f"s-{number}", Checkpoint("1")))  # that of a drain comes later
        metrics.take(0.0)
    assert metrics._shards == {}


def test_the_page_has_every_metric_and_its_level():
    table = (ROOT / "docs/monitoring.md").read_text().split("<!-- cloudwatch -->")[1].split("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")]
    on_page = {
        (operation.strip("`"), name.strip("` ")): level
        for operation, names, level, _ in rows
        for name in names.split(",")
    }
    every = (
        *EVERY_EVENT,
        events.WorkerStarted("w-1"),
        events.RecordsProcessed("s-0", 4, 0.5, 1.0, 1.0, 800),
        events.CheckpointSaved("s-0", Checkpoint("1")),
        events.LeasesCounted({"held": 5}, 3),
        events.ShardsListed(1),
        events.ShardFinished("s-0", ()),
        *(events.LeaseStoreCalled(name, "s-0", 0.1) for name in ("create", "take", "list", "renew", "checkpoint")),
        events.LeaseStoreCalled("take", "s-0", 0.1, "lease_lost"),
    )
    summary, detailed = (
        {(dimensions[0][1], name) for dimensions, name in after(*every, level=level)}
        for level in ("summary", "detailed")
    )
    assert on_page == {key: "summary" if key in summary else "detailed" for key in detailed}
