"""The default observer: which events reach the logger `efo`, and at which level."""

from __future__ import annotations

import logging
from typing import get_args

import pytest

from efo import events
from efo.model import Checkpoint, Position
from efo.protocol.aggregation import AggregateMode
from efo.telemetry.log import LoggingObserver

SHARD = "shardId-000000000000"
LOGGED = [
    (events.ConsumerReady("billing", "arn", True), logging.INFO, "billing is ACTIVE (registered now)"),
    (events.ConsumerDeregistered("app-1"), logging.INFO, "the fan-out consumer app-1 is deregistered"),
    (
        events.ConsumerDeregistered("app-1", "AccessDeniedException", "denied"),
        logging.WARNING,
        "it stays and is billed: AccessDeniedException: denied; run efo consumers deregister app-1",
    ),
    (events.AdviceGiven("unacked", "two are not acked", "ack them"), logging.WARNING, "two are not acked; ack them"),
    (
        events.ConsumerFailed("ValueError", "", ("app.py:3 main", "billing.py:7 handle")),
        logging.ERROR,
        "ended by ValueError at billing.py:7 handle, called at app.py:3 main; it reads nothing",
    ),
    (events.SubscribeAttempted(SHARD, 0.0, 0.1, "transport", "no route"), logging.WARNING, "of Kinesis began at shard"),
    (events.SubscriptionEnded(SHARD, 3.0, "silence", "no data"), logging.WARNING, "outage of Kinesis began"),
    (
        events.LeaseStoreCalled("renew", "", 1.0, "lease_store_unavailable", 4),
        logging.WARNING,
        "of the lease store began",
    ),
    (events.PollAttempted(SHARD, "GetRecords", 0.1, "transport", "no route"), logging.WARNING, "of Kinesis began at s"),
    (events.ReadModeChanged("polling"), logging.INFO, "the shards are polled"),
    (
        events.ReadModeChanged("polling", "consumer_limit", "20 consumers", 300.0),
        logging.WARNING,
        "so the shards are polled; fan-out is tried again in 300 s: consumer_limit: 20 consumers",
    ),
    (events.ReadModeChanged("fanout"), logging.INFO, "fan-out is possible again"),
    (events.AcksOverdue(SHARD, 100, 900, 12.0), logging.WARNING, "100 batches (900 records)"),
    (events.HandlerFailed(SHARD, "7", 3, 2, 0.1, "OSError", "retry", 1.5), logging.WARNING, "retry in 1.5 s"),
    (
        events.HandlerFailed(SHARD, "7", 1, 1, 0.1, "OSError", "isolate", call="dead_letter"),
        logging.WARNING,
        "the dead-letter sink failed with OSError",
    ),
    (events.RecordSkipped(SHARD, "7", 2, "ValueError"), logging.WARNING, "record 7/2 was skipped: ValueError"),
    (events.RecordDeadLettered(SHARD, "7", 0, "ValueError"), logging.WARNING, "record 7/0 was dead-lettered"),
    (events.AggregateDamaged(SHARD, "7", "MD5"), logging.WARNING, "damaged KPL aggregate"),
    (
        events.RecordsFiltered(SHARD, "7", 2),
        logging.WARNING,
        "2 user records of the aggregate 7 are filtered out: the KPL puts them again after a reshard",
    ),
    (
        events.RecordsFiltered(SHARD, "7", 2, AggregateMode.DROP),
        logging.WARNING,
        "aggregates is drop: unless their producer puts them again, they are lost; deduplicate delivers them",
    ),
    (events.SinkRetried(SHARD, "sink_full", "no room", 1.0), logging.WARNING, "outage of the sink began at shard"),
    (
        events.RecordsDropped(SHARD, "too_old", 0.0, 60.0, 7),
        logging.WARNING,
        "7 records that arrived between 1970-01-01T00:00:00Z and 1970-01-01T00:01:00Z are dropped, older",
    ),
    (
        events.RecordsDropped(SHARD, "behind", 0.0, 3600.0, 7),
        logging.WARNING,
        "are skipped, 7 of them read: the shard was 3600 s behind, more than skip_when_behind_seconds",
    ),
    (
        events.RecordsExpired(SHARD, 0.0, 3600.0, 3600.0),
        logging.WARNING,
        "between 1970-01-01T00:00:00Z and 1970-01-01T01:00:00Z expired before they were read, if there were any: 3600",
    ),
    (events.ShardStarted(SHARD, Checkpoint.TRIM_HORIZON), logging.INFO, "started after TRIM_HORIZON"),
    (events.ShardFinished(SHARD, ()), logging.INFO, "finished; children: none"),
    (events.ShardGone(SHARD, Checkpoint("7")), logging.WARNING, "expired before they were read"),
    (
        events.StartDelayed("ListShards", "throttled", "ListShards: Rate exceeded", 1.5),
        logging.WARNING,
        "outage of Kinesis began: throttled: ListShards: Rate exceeded",
    ),
    (events.ShardSyncFailed("transport", "down"), logging.WARNING, "outage of Kinesis began: transport: down"),
    (events.ParentCycleFound(("s-1", "s-2")), logging.ERROR, "s-1, s-2: never read, since these leases are each"),
    (events.HashRangeHoleFound(0, 9), logging.WARNING, "no lease covers the hash keys 0 to 9"),
    (events.ShardStopped(SHARD), logging.INFO, "stopped"),
    (events.ShardStopped(SHARD, "kms", "off"), logging.ERROR, "stopped by kms: off"),
    (events.ShardIsolated(SHARD, 60.0, "kms"), logging.ERROR, "isolated for 60 s by kms"),
    (events.StreamIsolated("late", 60.0, "kms"), logging.ERROR, "late: isolated for 60 s by kms"),
    (
        events.StreamRestored("late", "stream_recreated", 90.0, 3),
        logging.WARNING,
        "late: read again, after 90 s and 3 attempts that failed by stream_recreated",
    ),
    (events.ShardPaused(SHARD), logging.INFO, "paused"),
    (events.ShardResumed(SHARD), logging.INFO, "resumed"),
    (events.ShardRepositioned(SHARD, Position.latest()), logging.INFO, "continues at LATEST"),
    (events.LeaseLost(SHARD, "taken"), logging.WARNING, "taken"),
    (events.LeaseLost(SHARD, "handed_over"), logging.INFO, "handed_over"),
    (
        events.PutRecordsCalled(1, 1, 0.1, 9, "transport", "down"),
        logging.WARNING,
        "outage of Kinesis began: transport: down",
    ),
    (events.RecordsNotDelivered(3, "kms", "off"), logging.ERROR, "3 records were not delivered: kms: off"),
    (events.ShardMapChanged(4, 2), logging.INFO, "records go to 4 open shards now; 2 are sent again"),
    (events.DistributionChanged("AUTO", ()), logging.INFO, "strategy is AUTO now: records go to any shard"),
    (
        events.DistributionChanged("AUTO", ("aggregate", "ordered")),
        logging.WARNING,
        "so aggregate=True and ordered=True cannot be kept until it is USER_PARTITION_KEY again",
    ),
    (
        events.DistributionChanged("USER_PARTITION_KEY", ()),
        logging.WARNING,
        "strategy is USER_PARTITION_KEY now: a record without a partition key is refused",
    ),
    (events.ConnectionClosed("host:443", "transport", "it broke"), logging.INFO, "was closed: it broke"),
]
NOT_LOGGED = [
    events.WorkerStarted("w-1"),
    events.ConsumerOpened(None),
    events.ShardsListed(4),
    events.StreamIdentified(1000.0, 24.0),
    events.SubscribeAttempted(SHARD, 0.0, 0.1, None),
    events.SubscribeAttempted(SHARD, 0.0, 0.1, "ResourceInUseException", "5 s"),
    events.PollAttempted(SHARD, "GetRecords", 0.1),
    events.PollAttempted(SHARD, "GetRecords", 0.1, "throttled", "5 calls"),
    events.PollAttempted(SHARD, "GetRecords", 0.1, "expired_iterator", "old"),
    events.LeaseStoreCalled("take", SHARD, 0.1, "lease_lost"),
    events.SubscriptionEnded(SHARD, 300.0, "expired"),
    events.EventReceived(SHARD, 1, 100, 0, None),
    events.DeliveryBlocked(SHARD, 0.1),
    events.BatchDelivered(SHARD, 1),
    events.RecordsProcessed(SHARD, 1, 0.1, 1.0, 1.0),
    events.ShardsCounted({}),
    events.LeaseStoreCalled("renew", SHARD, 0.1),
    events.LeasesCounted({}, 1),
    events.CheckpointSaved(SHARD, Checkpoint.TRIM_HORIZON),
    events.ConnectionOpened("host:443"),
    events.StreamReset("host:443", "CANCEL"),
    events.ProducerOpened(None),
    events.PutRecordsCalled(500, 0, 0.1, 50_000),
    events.PutRecordsCalled(500, 7, 0.1, 50_000, "throttled"),
    events.RecordsDelivered(SHARD, 500, 5, 0.1, 1),
    events.SinkRecovered(SHARD),
]


@pytest.mark.parametrize(("event", "level", "text"), LOGGED, ids=lambda value: type(value).__name__)
def test_an_event_is_logged_at_its_level(caplog, event, level, text):
    with caplog.at_level(logging.DEBUG, logger="efo"):
        LoggingObserver()(event)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("efo", level)
    assert text in record.getMessage()


@pytest.mark.parametrize("event", NOT_LOGGED, ids=lambda value: type(value).__name__)
def test_frequent_events_are_not_logged(caplog, event):
    with caplog.at_level(logging.DEBUG, logger="efo"):
        LoggingObserver()(event)
    assert caplog.records == []


def test_the_examples_cover_every_event():
    assert {type(event) for event, *_ in LOGGED} | {type(event) for event in NOT_LOGGED} == set(get_args(events.Event))


def test_every_line_names_the_worker_once_it_is_known(caplog):
    observe = LoggingObserver()
    with caplog.at_level(logging.DEBUG, logger="efo"):
        observe(events.WorkerStarted("ann"))
        observe(events.ShardPaused(SHARD))
        observe(events.ShardSyncFailed("transport", "down"))
        observe(events.ShardsListed(4))
    assert [record.getMessage().startswith("worker ann: ") for record in caplog.records] == [True] * 3


def test_an_outage_is_two_lines_however_many_shards_fail(caplog):
    clock = iter(range(100_000))
    observe = LoggingObserver(clock=lambda: next(clock) // 200)
    with caplog.at_level(logging.INFO, logger="efo"):
        for _ in range(60):
            for shard in range(100):
                observe(events.SubscribeAttempted(f"s-{shard}", 0.0, 0.1, "transport", "no route"))
                observe(events.LeaseStoreCalled("renew", f"s-{shard}", 0.1, "lease_store_unavailable"))
        for shard in range(100):
            observe(events.LeaseLost(f"s-{shard}", "store"))
            observe(events.ShardStopped(f"s-{shard}"))
        observe(events.LeaseStoreCalled("renew", "", 0.1, None, 100))
    again = "it is tried again until it works"
    network = "look at the network between this worker and Kinesis"
    store = "make the lease store reachable from this worker; it then takes its leases again"
    assert [record.getMessage() for record in caplog.records] == [
        f"an outage of Kinesis began at s-0: transport: no route; {again}; {network}",
        f"an outage of the lease store began at s-0: lease_store_unavailable; {again}; {store}",
        "the outage of Kinesis by transport is no longer tried here, and has not ended, after 60.0 s and 6000 failures",
        "the outage of the lease store by lease_store_unavailable ended after 60.0 s and 6000 failures",
    ]


def test_an_outage_that_goes_on_for_another_reason_is_another_line(caplog):
    observe = LoggingObserver()
    with caplog.at_level(logging.INFO, logger="efo"):
        observe(events.ShardSyncFailed("dns", "no address"))
        observe(events.ShardSyncFailed("tls", "not trusted"))
    assert caplog.records[1].getMessage() == (
        "the outage of Kinesis by dns goes on, for another reason: tls: not trusted; look at ca_file, the clock of "
        "this host, and what intercepts TLS between this worker and Kinesis"
    )


def test_filtered_records_are_one_line_in_an_hour_of_each_shard(caplog):
    now = 0.0
    observe = LoggingObserver(clock=lambda: now)
    with caplog.at_level(logging.INFO, logger="efo"):
        for now in range(7200):  # noqa: B007 - the clock reads it
            observe(events.RecordsFiltered(SHARD, "7", 1))
            observe(events.RecordsFiltered("s-1", "7", 1))
    assert len(caplog.records) == 4


def test_dropped_records_are_one_line_in_an_hour_of_each_shard_and_each_hole_has_its_own(caplog):
    now = 0.0
    observe = LoggingObserver(clock=lambda: now)
    with caplog.at_level(logging.INFO, logger="efo"):
        for now in range(7200):  # noqa: B007 - the clock reads it
            observe(events.RecordsDropped(SHARD, "too_old", 0.0, 1.0, 1))
        for _ in range(3):
            observe(events.RecordsDropped(SHARD, "behind", 0.0, 1.0, 1))
    assert len(caplog.records) == 5


def test_events_go_to_the_logger_that_is_given(caplog):
    with caplog.at_level(logging.DEBUG, logger="mine"):
        LoggingObserver(logging.getLogger("mine"))(events.ShardPaused(SHARD))
    assert [record.name for record in caplog.records] == ["mine"]


def test_ignored_events_leave_no_trace(caplog):
    with caplog.at_level(logging.DEBUG):
        events.ignore_events(events.ShardPaused(SHARD))
    assert caplog.records == []
