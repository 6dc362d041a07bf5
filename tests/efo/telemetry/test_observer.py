from __future__ import annotations

from typing import get_args

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from efo import events
from efo.model import TRIM_HORIZON, Checkpoint
from efo.telemetry import instruments
from efo.telemetry.observer import KEEP_COUNTERS, OtelObserver

COMMON = {
    "messaging.system": "aws.kinesis",
    "messaging.destination.name": "orders",
    "messaging.consumer.group.name": "app",
    "messaging.destination.subscription.name": "fan",
}
PARTITION = "messaging.destination.partition.id"

EVERY_EVENT: tuple[events.Event, ...] = (
    events.ConsumerReady("fan", "arn", registered=True),
    events.ShardStarted("s-0", TRIM_HORIZON),
    events.SubscribeAttempted("s-0", 0.2, 0.03, None),
    events.SubscribeAttempted("s-1", 0.0, 0.03, "ResourceInUseException"),
    events.EventReceived("s-0", 2, 700, 1500, None),
    events.EventReceived("s-0", 2, 300, 500, 4.9),
    events.DeliveryBlocked("s-0", 0.3),
    events.BatchDelivered("s-0", 4),
    events.RecordsProcessed("s-0", 4, 0.02, 1.0, 0.5),
    events.AcksOverdue("s-0", 100, 900, 12.5),
    events.HandlerFailed("s-0", "1", 4, 1, 0.02, "ValueError", "retry", 0.1),
    events.HandlerFailed("s-0", "1", 1, 1, 0.02, "OSError", "isolate", call="dead_letter"),
    events.RecordSkipped("s-0", "1", 0, "ValueError"),
    events.RecordDeadLettered("s-0", "1", 0, "ValueError"),
    events.AggregateDamaged("s-0", "1", "no checksum"),
    events.RecordsFiltered("s-0", "1", 2),
    events.SubscriptionEnded("s-0", 250.0, "renewed"),
    events.SubscriptionEnded("s-0", 3.0, "protocol"),
    events.ShardFinished("s-9", ()),
    events.ShardStopped("s-8"),
    events.ShardIsolated("s-8", 60.0, "kms"),
    events.ShardGone("s-9", TRIM_HORIZON),
    events.ShardSyncFailed("throttled", "LimitExceededException"),
    events.HashRangeHoleFound(0, 99),
    events.ShardPaused("s-0"),
    events.ShardResumed("s-0"),
    events.ShardRepositioned("s-0", Checkpoint("12")),
    events.ShardsCounted({"consuming": 1, "ready": 2}),
    events.LeaseStoreCalled("renew", "s-0", 0.001),
    events.LeaseStoreCalled("checkpoint", "s-0", 0.001),
    events.LeaseLost("s-7", "taken"),
    events.LeasesCounted({"held": 3}, 2),
    events.CheckpointSaved("s-0", Checkpoint("12")),
    events.ConnectionOpened("host:443"),
    events.ConnectionClosed("host:443"),
    events.StreamReset("host:443", "CANCEL"),
)


class Meters:
    """An OtelObserver with a clock set by hand, and what it exports."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)
        self.observe = OtelObserver(
            stream="orders",
            application="app",
            consumer="fan",
            server_address="kinesis.test",
            meter_provider=self.provider,
            clock=lambda: self.now,
        )

    def metrics(self):
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def values(self, instrument):
        """Return value (or sum and count) by the attributes that are not common to all."""
        metric = self.metrics().get(instrument.name)
        return {
            tuple(v for k, v in sorted(point.attributes.items()) if k not in COMMON): (
                point.value if hasattr(point, "value") else (round(point.sum, 6), point.count)
            )
            for point in (metric.data.data_points if metric else ())
        }


@pytest.fixture
def meters():
    meters = Meters()
    yield meters
    meters.provider.shutdown()


def test_the_examples_cover_every_event():
    assert {type(event) for event in EVERY_EVENT} == set(get_args(events.Event))


def test_every_instrument_is_fed_and_described_as_the_table_says(meters):
    for event in EVERY_EVENT:
        meters.observe(event)
    exported = meters.metrics()
    assert set(exported) == {instrument.name for instrument in instruments.ALL}
    for instrument in instruments.ALL:
        metric = exported[instrument.name]
        assert (metric.unit, metric.description) == (instrument.unit, instrument.description)
        if instrument.buckets:
            assert {point.explicit_bounds for point in metric.data.data_points} == {instrument.buckets}


def test_histograms_never_carry_the_shard(meters):
    for event in EVERY_EVENT:
        meters.observe(event)
    carriers = {
        name
        for name, metric in meters.metrics().items()
        if any(PARTITION in point.attributes for point in metric.data.data_points)
    }
    assert carriers == {i.name for i in instruments.ALL if i.kind.startswith("observable")}


def test_all_carry_the_common_attributes(meters):
    for event in EVERY_EVENT:
        meters.observe(event)
    for name, metric in meters.metrics().items():
        if name not in {instruments.CONNECTION_ACTIVE.name, instruments.HTTP2_RESETS.name}:
            assert all(COMMON.items() <= point.attributes.items() for point in metric.data.data_points), name


def test_subscribing(meters):
    meters.observe(events.SubscribeAttempted("s-0", 0.2, 0.03, None))
    meters.observe(events.SubscribeAttempted("s-1", 0.4, 0.05, "throttled"))
    assert meters.values(instruments.SUBSCRIPTION_ATTEMPTS) == {(): 1, ("throttled",): 1}
    assert meters.values(instruments.SUBSCRIPTION_WAIT) == {(): (0.6, 2)}
    assert meters.values(instruments.SUBSCRIPTION_ACTIVE) == {(): 1}
    assert meters.values(instruments.OPERATION_DURATION) == {
        ("subscribe", "receive", "kinesis.test"): (0.03, 1),
        ("throttled", "subscribe", "receive", "kinesis.test"): (0.05, 1),
    }
    meters.observe(events.SubscriptionEnded("s-0", 250.0, "renewed"))
    assert meters.values(instruments.SUBSCRIPTION_ACTIVE) == {(): 0}
    assert meters.values(instruments.SUBSCRIPTION_DURATION) == {("renewed",): (250.0, 1)}


def test_events_of_a_shard(meters):
    meters.observe(events.EventReceived("s-0", 2, 700, 1500, None))
    meters.observe(events.EventReceived("s-0", 2, 300, 500, 4.9))
    assert meters.values(instruments.CONSUMER_LAG) == {("s-0",): 0.5}
    assert meters.values(instruments.SUBSCRIPTION_IO) == {("s-0",): 1000}
    assert meters.values(instruments.EVENT_INTERVAL) == {(): (4.9, 1)}


def test_a_batch_is_consumed_when_it_is_processed_and_not_when_its_handler_fails(meters):
    meters.observe(events.HandlerFailed("s-0", "1", 4, 1, 0.5, "ValueError", "retry"))
    meters.observe(events.RecordsProcessed("s-0", 4, 0.5, 2.0, 1.0))
    assert meters.values(instruments.CONSUMED) == {("s-0", "receive"): 4}
    assert meters.values(instruments.PROCESS_DURATION) == {("ValueError", "process"): (0.5, 1), ("process",): (0.5, 1)}
    assert meters.values(instruments.RECORD_AGE) == {(): (2.0, 1)}


def test_a_handlers_failure_is_a_duration_and_a_dead_letter_sinks_is_not(meters):
    meters.observe(events.HandlerFailed("s-0", "1", 3, 1, 0.5, "ValueError", "dead_letter"))
    meters.observe(events.HandlerFailed("s-0", "1", 1, 1, 0.5, "OSError", "isolate", call="dead_letter"))
    assert meters.values(instruments.PROCESS_DURATION) == {("ValueError", "process"): (0.5, 1)}


def test_what_is_in_flight_is_given_and_not_acked(meters):
    meters.observe(events.ShardStarted("s-0", TRIM_HORIZON))
    assert meters.values(instruments.RECORD_INFLIGHT) == {("s-0",): 0}
    meters.observe(events.BatchDelivered("s-0", 4))
    meters.observe(events.BatchDelivered("s-0", 6))
    assert meters.values(instruments.RECORD_INFLIGHT) == {("s-0",): 10}
    meters.observe(events.RecordsProcessed("s-0", 4, 0.02, 1.0, 0.5))
    assert meters.values(instruments.RECORD_INFLIGHT) == {("s-0",): 6}


def test_a_seek_and_a_new_start_leave_nothing_in_flight(meters):
    meters.observe(events.ShardStarted("s-0", TRIM_HORIZON))
    meters.observe(events.BatchDelivered("s-0", 4))
    meters.observe(events.ShardRepositioned("s-0", Checkpoint("1")))
    assert meters.values(instruments.RECORD_INFLIGHT) == {("s-0",): 0}
    meters.observe(events.BatchDelivered("s-0", 4))
    meters.observe(events.ShardStopped("s-0"))
    assert meters.values(instruments.RECORD_INFLIGHT) == {}
    meters.observe(events.ShardStarted("s-0", Checkpoint("1")))
    assert meters.values(instruments.RECORD_INFLIGHT) == {("s-0",): 0}


def test_back_pressure_adds_up(meters):
    meters.observe(events.DeliveryBlocked("s-0", 0.5))
    meters.observe(events.DeliveryBlocked("s-0", 1.5))
    assert meters.values(instruments.BACKPRESSURE_TIME) == {("s-0",): 2.0}


def test_checkpoint_age_counts_from_the_start_and_from_each_checkpoint(meters):
    meters.observe(events.ShardStarted("s-0", TRIM_HORIZON))
    meters.now += 7
    assert meters.values(instruments.CHECKPOINT_AGE) == {("s-0",): 7}
    meters.observe(events.CheckpointSaved("s-0", Checkpoint("1")))
    meters.now += 2
    assert meters.values(instruments.CHECKPOINT_AGE) == {("s-0",): 2}


@pytest.mark.parametrize("left", [events.ShardStopped("s-0"), events.ShardFinished("s-0", ("s-1", "s-2"))])
def test_a_shard_that_is_left_takes_its_gauges_at_once_and_its_counters_later(meters, left):
    meters.observe(events.ShardStarted("s-0", TRIM_HORIZON))
    meters.observe(events.EventReceived("s-0", 2, 700, 1500, None))
    meters.observe(left)
    assert meters.values(instruments.CONSUMER_LAG) == meters.values(instruments.CHECKPOINT_AGE) == {}
    assert meters.values(instruments.SUBSCRIPTION_IO) == {("s-0",): 700}
    meters.now += KEEP_COUNTERS
    assert meters.values(instruments.SUBSCRIPTION_IO) == {}
    meters.observe(events.ShardStopped("s-1"))
    assert not meters.observe._shards


def test_a_shard_that_comes_back_counts_on(meters):
    meters.observe(events.ShardStarted("s-0", TRIM_HORIZON))
    meters.observe(events.EventReceived("s-0", 2, 700, 1500, None))
    meters.observe(events.ShardStopped("s-0"))
    meters.observe(events.ShardStarted("s-0", TRIM_HORIZON))
    assert meters.values(instruments.CONSUMER_LAG) == {}
    meters.observe(events.EventReceived("s-0", 2, 300, 100, None))
    assert meters.values(instruments.SUBSCRIPTION_IO) == {("s-0",): 1000}
    assert meters.values(instruments.CONSUMER_LAG) == {("s-0",): 0.1}


def test_counts_tell_zero_too(meters):
    meters.observe(events.ShardsCounted({"consuming": 3, "ready": 1}))
    meters.observe(events.ShardsCounted({"consuming": 4}))
    assert meters.values(instruments.SHARD_COUNT) == {
        ("waiting_parent",): 0,
        ("ready",): 0,
        ("consuming",): 4,
        ("finished",): 0,
    }
    meters.observe(events.LeasesCounted({"held": 3, "expired": 1}, 2))
    assert meters.values(instruments.LEASE_COUNT) == {("held",): 3, ("unowned",): 0, ("expired",): 1}
    assert meters.values(instruments.WORKER_COUNT) == {(): 2}


def test_lease_operations(meters):
    meters.observe(events.LeaseStoreCalled("checkpoint", "s-0", 0.25))
    meters.observe(events.LeaseStoreCalled("renew", "s-0", 0.5, "lease_lost"))
    assert meters.values(instruments.LEASE_OPERATIONS) == {("checkpoint",): 1, ("renew", "lease_lost"): 1}
    assert meters.values(instruments.LEASE_OPERATION_DURATION)[("checkpoint",)] == (0.25, 1)
    assert meters.values(instruments.OPERATION_DURATION) == {("checkpoint", "settle"): (0.25, 1)}


def test_what_cannot_be_decoded(meters):
    meters.observe(events.AggregateDamaged("s-0", "1", "no checksum"))
    meters.observe(events.SubscriptionEnded("s-0", 1.0, "protocol"))
    assert meters.values(instruments.DECODE_ERRORS) == {("aggregation",): 1, ("protocol",): 1}


def test_connections(meters):
    for event in (events.ConnectionOpened("a:1"), events.ConnectionOpened("b:1"), events.ConnectionClosed("a:1")):
        meters.observe(event)
    assert meters.values(instruments.CONNECTION_ACTIVE) == {("a:1",): 0, ("b:1",): 1}


def test_resets_by_address_and_code(meters):
    for code in ("CANCEL", "CANCEL", "INTERNAL_ERROR"):
        meters.observe(events.StreamReset("a:1", code))
    assert meters.values(instruments.HTTP2_RESETS) == {("CANCEL", "a:1"): 2, ("INTERNAL_ERROR", "a:1"): 1}
