"""The OpenTelemetry observer: which instruments each diagnostic event feeds, and with which attributes."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from efo import events
from efo.health import LeaseCounts, ShardReading
from efo.model import Checkpoint
from efo.telemetry import instruments
from efo.telemetry.combined import MAX_HELD, combine_observers
from efo.telemetry.observer import OtelObserver
from efo.telemetry.shard_series import DURATIONS_PER_SECOND, KEEP_COUNTERS, PEAKS_PER_SECOND
from tests.readings import NOW, FakeReadings

COMMON = {
    "messaging.system": "aws.kinesis",
    "messaging.destination.name": "orders",
    "messaging.consumer.group.name": "app",
    "messaging.destination.subscription.name": "fan",
}
PARTITION = "messaging.destination.partition.id"

READING = ShardReading("s-0", Checkpoint("12"), "live", 400.0, 490.0, 400.0, NOW - 2, 1500, unsaved_since=NOW - 7)


def readings_of_one_shard() -> FakeReadings:
    return FakeReadings(READING, counts=LeaseCounts({"held": 3}, 2, {"consuming": 1, "ready": 2}))


EVERY_EVENT: tuple[events.Event, ...] = (
    events.WorkerStarted("w-1"),
    events.ConsumerOpened(readings_of_one_shard()),
    events.ConsumerReady("fan", "arn", registered=True),
    events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON),
    events.SubscribeAttempted("s-0", 0.2, 0.03, None),
    events.SubscribeAttempted("s-1", 0.0, 0.03, "ResourceInUseException"),
    events.PollAttempted("s-0", "GetRecords", 0.03),
    events.ReadModeChanged("polling"),
    events.EventReceived("s-0", 2, 700, 1500, None),
    events.EventReceived("s-0", 2, 300, 500, 4.9),
    events.DeliveryBlocked("s-0", 0.3),
    events.BatchDelivered("s-0", 4),
    events.RecordsProcessed("s-0", 4, 0.02, 1.0, 0.5),
    events.AcksOverdue("s-0", 100, 900, 12.5),
    events.AdviceGiven("unacked", "two are not acked", "ack them"),
    events.HandlerFailed("s-0", "1", 4, 1, 0.02, "ValueError", "retry", 0.1),
    events.HandlerFailed("s-0", "1", 1, 1, 0.02, "OSError", "isolate", call="dead_letter"),
    events.RecordSkipped("s-0", "1", 0, "ValueError"),
    events.RecordDeadLettered("s-0", "1", 0, "ValueError"),
    events.AggregateDamaged("s-0", "1", "no checksum"),
    events.ConsumerDeregistered("app-w1"),
    events.ConsumerDeregistered("app-w1", "AccessDeniedException", "no"),
    events.RecordsDropped("s-0", "behind", 1000.0, 4600.0, 2),
    events.RecordsExpired("s-0", 1000.0, 4600.0, 3600.0),
    events.RecordsFiltered("s-0", "1", 2),
    events.SinkRetried("s-0", "sink_full", "no room", 1.0),
    events.SinkRecovered("s-0"),
    events.SubscriptionEnded("s-0", 250.0, "renewed"),
    events.SubscriptionEnded("s-0", 3.0, "protocol"),
    events.ShardFinished("s-9", ()),
    events.ShardStopped("s-8"),
    events.ConsumerFailed("internal", "ValueError", ("handler.py:1 handle",)),
    events.ShardIsolated("s-8", 60.0, "kms"),
    events.StreamIsolated("late", 60.0, "not_found"),
    events.ShardGone("s-9", Checkpoint.TRIM_HORIZON),
    events.ShardsListed(4),
    events.StartDelayed("ListShards", "throttled", "ListShards: Rate exceeded", 1.5),
    events.StreamIdentified(1000.0, 24.0),
    events.StreamRestored("late", "stream_recreated", 90.0, 3),
    events.ShardSyncFailed("throttled", "LimitExceededException"),
    events.ParentCycleFound(("s-1", "s-2")),
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
    # Those of a producer feed nothing here.
    events.ProducerOpened(None),
    events.PutRecordsCalled(500, 0, 0.1, 50_000),
    events.RecordsDelivered("s-0", 500, 5, 0.1, 1),
    events.RecordsNotDelivered(3, "kms", "off"),
    events.ShardMapChanged(4, 2),
    events.DistributionChanged("AUTO", ("ordered",)),
)


class Telemetry:
    """An OtelObserver with a manual clock, and the metrics that it exports."""

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
        """Return the values, or sums and counts, of an instrument by the attributes that are not common to all."""
        metric = self.metrics().get(instrument.name)
        return {
            tuple(v for k, v in sorted(point.attributes.items()) if k not in COMMON): (
                point.value if hasattr(point, "value") else (round(point.sum, 6), point.count)
            )
            for point in (metric.data.data_points if metric else ())
        }


@pytest.fixture
def telemetry():
    telemetry = Telemetry()
    yield telemetry
    telemetry.provider.shutdown()


def test_the_sample_events_include_every_type_of_event():
    assert {type(event) for event in EVERY_EVENT} == set(get_args(events.Event))


def test_records_that_expired_unread_are_counted_by_their_time(telemetry):
    telemetry.observe(events.RecordsExpired("s-0", 1000.0, 4600.0, 3600.0))
    telemetry.observe(events.RecordsExpired("s-1", 1000.0, 1002.5, 2.5))
    assert telemetry.values(instruments.RECORD_EXPIRED_TIME) == {(): 3602.5}


def test_what_a_limit_of_age_drops_is_counted_by_its_reason(telemetry):
    telemetry.observe(events.RecordsDropped("s-0", "too_old", 1000.0, 1010.0, 7))
    telemetry.observe(events.RecordsDropped("s-1", "too_old", 1000.0, 1010.0, 3))
    telemetry.observe(events.RecordsDropped("s-1", "behind", 1000.0, 1600.0, 5))
    assert telemetry.values(instruments.RECORDS_DROPPED) == {("too_old",): 10, ("behind",): 5}
    assert telemetry.values(instruments.RECORD_SKIPPED_TIME) == {(): 600}


def test_every_instrument_is_fed_with_its_unit_description_and_buckets(telemetry):
    for event in EVERY_EVENT:
        telemetry.observe(event)
    exported = telemetry.metrics()
    assert set(exported) == {instrument.name for instrument in instruments.ALL}
    for instrument in instruments.ALL:
        metric = exported[instrument.name]
        assert (metric.unit, metric.description) == (instrument.unit, instrument.description)
        if instrument.buckets:
            assert {point.explicit_bounds for point in metric.data.data_points} == {instrument.buckets}


OF_THE_LEASE_TABLE = {instruments.SHARD_COUNT, instruments.LEASE_COUNT, instruments.WORKER_COUNT}


def test_only_observable_instruments_have_the_shard_as_an_attribute(telemetry):
    for event in EVERY_EVENT:
        telemetry.observe(event)
    with_shard = {
        name
        for name, metric in telemetry.metrics().items()
        if any(PARTITION in point.attributes for point in metric.data.data_points)
    }
    assert with_shard == {
        i.name for i in instruments.ALL if i.kind.startswith("observable") and i not in OF_THE_LEASE_TABLE
    }


def test_all_instruments_but_those_of_connections_have_the_common_attributes(telemetry):
    for event in EVERY_EVENT:
        telemetry.observe(event)
    for name, metric in telemetry.metrics().items():
        if name not in {instruments.CONNECTION_ACTIVE.name, instruments.HTTP2_RESETS.name}:
            assert all(COMMON.items() <= point.attributes.items() for point in metric.data.data_points), name


def test_the_fan_out_consumer_has_the_name_of_the_application_by_default():
    assert (
        OtelObserver(stream="s", application="billing")._common["messaging.destination.subscription.name"] == "billing"
    )


def test_subscriptions_feed_attempts_waits_durations_and_the_number_of_open_ones(telemetry):
    telemetry.observe(events.SubscribeAttempted("s-0", 0.2, 0.03, None))
    telemetry.observe(events.SubscribeAttempted("s-1", 0.4, 0.05, "throttled"))
    assert telemetry.values(instruments.SUBSCRIPTION_ATTEMPTS) == {(): 1, ("throttled",): 1}
    assert telemetry.values(instruments.SUBSCRIPTION_WAIT) == {(): (0.6, 2)}
    assert telemetry.values(instruments.SUBSCRIPTION_ACTIVE) == {(): 1}
    assert telemetry.values(instruments.OPERATION_DURATION) == {
        ("subscribe", "receive", "kinesis.test"): (0.03, 1),
        ("throttled", "subscribe", "receive", "kinesis.test"): (0.05, 1),
    }
    telemetry.observe(events.SubscriptionEnded("s-0", 250.0, "renewed"))
    assert telemetry.values(instruments.SUBSCRIPTION_ACTIVE) == {(): 0}
    assert telemetry.values(instruments.SUBSCRIPTION_DURATION) == {("renewed",): (250.0, 1)}


def test_polling_feeds_the_duration_of_its_calls(telemetry):
    telemetry.observe(events.PollAttempted("s-0", "GetRecords", 0.03))
    telemetry.observe(events.PollAttempted("s-1", "GetShardIterator", 0.05, "throttled"))
    assert telemetry.values(instruments.OPERATION_DURATION) == {
        ("poll", "receive", "kinesis.test"): (0.03, 1),
        ("throttled", "poll", "receive", "kinesis.test"): (0.05, 1),
    }
    assert telemetry.values(instruments.SUBSCRIPTION_ATTEMPTS) == {}


def test_received_events_feed_bytes_and_interval(telemetry):
    telemetry.observe(events.EventReceived("s-0", 2, 700, 1500, None))
    telemetry.observe(events.EventReceived("s-0", 2, 300, 500, 4.9))
    assert telemetry.values(instruments.SUBSCRIPTION_IO) == {("s-0",): 1000}
    assert telemetry.values(instruments.EVENT_INTERVAL) == {(): (4.9, 1)}


def test_a_busy_shard_has_one_interval_and_one_age_each_second_the_highest(telemetry):
    for interval, age in ((0.2, 0.4), (0.5, 0.9), (0.3, 0.6)):
        telemetry.now += 0.1
        telemetry.observe(events.EventReceived("s-0", 1, 700, 0, interval))
        telemetry.observe(events.RecordsProcessed("s-0", 1, 0.01, age, age))
        telemetry.observe(events.EventReceived("s-1", 1, 700, 0, interval))
    # The first of each shard at once; the others are held back.
    assert telemetry.values(instruments.EVENT_INTERVAL) == {(): (0.4, 2)}
    assert telemetry.values(instruments.RECORD_AGE) == {(): (0.4, 1)}
    telemetry.now += 5
    telemetry.observe(events.EventReceived("s-0", 0, 200, 0, 0.1))
    assert telemetry.values(instruments.EVENT_INTERVAL) == {(): (0.9, 3)}
    assert telemetry.values(instruments.RECORD_AGE) == {(): (1.3, 2)}  # an event without records passes it on
    telemetry.observe(events.ShardStopped("s-1"))
    assert telemetry.values(instruments.EVENT_INTERVAL) == {(): (1.4, 4)}
    assert telemetry.values(instruments.PROCESS_DURATION) == {("process",): (0.03, 3)}  # of each batch


def test_many_shards_together_have_a_limited_number_of_intervals_each_second_the_highest_of_each(telemetry):
    shards = [f"s-{number}" for number in range(3 * PEAKS_PER_SECOND)]
    for shard in shards:
        telemetry.observe(events.EventReceived(shard, 1, 700, 0, None))
    for seconds in range(6):
        telemetry.now += 1.0
        for shard in shards:
            telemetry.observe(events.EventReceived(shard, 1, 700, 0, 2.0 if seconds == 4 else 1.0))
    # The first of each shard at once, and then one of three seconds. The highest is held back.
    assert telemetry.values(instruments.EVENT_INTERVAL) == {(): (600.0, 600)}
    for shard in shards:
        telemetry.observe(events.ShardStopped(shard))
    assert telemetry.values(instruments.EVENT_INTERVAL) == {(): (600.0 + 600.0, 900)}


def test_in_a_burst_counters_and_gauges_are_exact_at_every_export(telemetry):
    observe, batches = combine_observers(telemetry.observe), MAX_HELD
    observe(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
    for _ in range(batches):
        observe(events.EventReceived("s-0", 4, 10, 0, 0.1))
        observe(events.BatchDelivered("s-0", 4))
        observe(events.RecordsProcessed("s-0", 3, 0.02, 1.0, 0.5))
    assert telemetry.values(instruments.CONSUMED) == {("s-0", "receive"): 3 * batches}
    observe(events.EventReceived("s-0", 0, 10, 0, 0.1))
    assert telemetry.values(instruments.SUBSCRIPTION_IO) == {("s-0",): 10 * batches + 10}
    observe(events.BatchDelivered("s-0", 4))
    assert telemetry.values(instruments.RECORD_INFLIGHT) == {("s-0",): batches + 4}


def test_the_first_durations_of_each_second_are_measured_and_then_each_longer_one(telemetry):
    def process(times: int, shard: str = "s-0", duration: float = 0.25) -> None:
        for _ in range(times):
            telemetry.observe(events.RecordsProcessed(shard, 1, duration, None, None))

    process(DURATIONS_PER_SECOND - 1)
    process(3, "s-1")  # of all shards together
    measured, total = DURATIONS_PER_SECOND, DURATIONS_PER_SECOND * 0.25
    assert telemetry.values(instruments.PROCESS_DURATION) == {("process",): (total, measured)}
    assert telemetry.values(instruments.CONSUMED)[("s-1", "receive")] == 3
    process(2, duration=0.5)  # the second one is no longer than the first
    process(1, duration=1.0)
    assert telemetry.values(instruments.PROCESS_DURATION) == {("process",): (total + 1.5, measured + 2)}
    telemetry.now += 1
    process(2)
    assert telemetry.values(instruments.PROCESS_DURATION) == {("process",): (total + 2.0, measured + 4)}


def test_records_count_as_consumed_when_they_are_processed_and_not_when_the_handler_fails(telemetry):
    telemetry.observe(events.HandlerFailed("s-0", "1", 4, 1, 0.5, "ValueError", "retry"))
    telemetry.observe(events.RecordsProcessed("s-0", 4, 0.5, 2.0, 1.0))
    assert telemetry.values(instruments.CONSUMED) == {("s-0", "receive"): 4}
    assert telemetry.values(instruments.PROCESS_DURATION) == {
        ("ValueError", "process"): (0.5, 1),
        ("process",): (0.5, 1),
    }
    assert telemetry.values(instruments.RECORD_AGE) == {(): (2.0, 1)}


def test_failed_calls_of_the_handler_feed_the_duration_and_those_of_the_sink_do_not(telemetry):
    telemetry.observe(events.HandlerFailed("s-0", "1", 3, 1, 0.5, "ValueError", "dead_letter"))
    telemetry.observe(events.HandlerFailed("s-0", "1", 1, 1, 0.5, "OSError", "isolate", call="dead_letter"))
    assert telemetry.values(instruments.PROCESS_DURATION) == {("ValueError", "process"): (0.5, 1)}


def test_delivered_records_are_in_flight_until_they_are_acked(telemetry):
    telemetry.observe(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
    assert telemetry.values(instruments.RECORD_INFLIGHT) == {("s-0",): 0}
    telemetry.observe(events.BatchDelivered("s-0", 4))
    telemetry.observe(events.BatchDelivered("s-0", 6))
    assert telemetry.values(instruments.RECORD_INFLIGHT) == {("s-0",): 10}
    telemetry.observe(events.RecordsProcessed("s-0", 4, 0.02, 1.0, 0.5))
    assert telemetry.values(instruments.RECORD_INFLIGHT) == {("s-0",): 6}


def test_a_seek_and_a_restart_of_a_shard_reset_the_records_in_flight(telemetry):
    telemetry.observe(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
    telemetry.observe(events.BatchDelivered("s-0", 4))
    telemetry.observe(events.ShardRepositioned("s-0", Checkpoint("1")))
    assert telemetry.values(instruments.RECORD_INFLIGHT) == {("s-0",): 0}
    telemetry.observe(events.BatchDelivered("s-0", 4))
    telemetry.observe(events.ShardStopped("s-0"))
    assert telemetry.values(instruments.RECORD_INFLIGHT) == {}
    telemetry.observe(events.ShardStarted("s-0", Checkpoint("1")))
    assert telemetry.values(instruments.RECORD_INFLIGHT) == {("s-0",): 0}


def test_the_time_of_back_pressure_is_summed(telemetry):
    telemetry.observe(events.DeliveryBlocked("s-0", 0.5))
    telemetry.observe(events.DeliveryBlocked("s-0", 1.5))
    assert telemetry.values(instruments.BACKPRESSURE_TIME) == {("s-0",): 2.0}


def test_an_event_that_still_waits_counts_as_back_pressure_and_the_counter_never_falls(telemetry):
    readings = readings_of_one_shard()
    telemetry.observe(events.ConsumerOpened(readings))
    telemetry.observe(events.DeliveryBlocked("s-0", 2.0))
    readings.known = (replace(readings.known[0], pending_since=readings.time - 7),)
    assert telemetry.values(instruments.BACKPRESSURE_TIME) == {("s-0",): 9.0}
    readings.known = (replace(readings.known[0], pending_since=None),)  # it was dropped: by a seek
    assert telemetry.values(instruments.BACKPRESSURE_TIME) == {("s-0",): 9.0}
    telemetry.observe(events.DeliveryBlocked("s-0", 8.0))
    assert telemetry.values(instruments.BACKPRESSURE_TIME) == {("s-0",): 10.0}


def test_the_gauges_of_a_shard_are_computed_from_what_the_consumer_knows_when_they_are_exported(telemetry):
    readings = readings_of_one_shard()
    telemetry.observe(events.ConsumerOpened(readings))
    assert telemetry.values(instruments.CONSUMER_LAG) == {("s-0",): 1.5}
    assert telemetry.values(instruments.EVENT_AGE) == {("s-0",): 2}
    assert telemetry.values(instruments.CHECKPOINT_AGE) == {("s-0",): 7}
    assert telemetry.values(instruments.SHARD_STATUS) == {("current", "none", "live", "s-0"): 1}
    readings.time += 8  # ten seconds without an event
    assert telemetry.values(instruments.CONSUMER_LAG) == {("s-0",): 11.5}
    assert telemetry.values(instruments.EVENT_AGE) == {("s-0",): 10}
    assert telemetry.values(instruments.SHARD_STATUS) == {("frozen", "none", "live", "s-0"): 1}
    readings.known = (replace(readings.known[0], read_mode="polling"),)
    assert telemetry.values(instruments.SHARD_STATUS) == {("frozen", "polling", "live", "s-0"): 1}
    readings.known = ()
    for gauge in (instruments.CONSUMER_LAG, instruments.EVENT_AGE, instruments.CHECKPOINT_AGE):
        assert telemetry.values(gauge) == {}
    assert telemetry.values(instruments.SHARD_STATUS) == {}


def test_a_shard_without_an_event_has_no_lag_and_no_age_of_it_yet(telemetry):
    reading = ShardReading("s-0", Checkpoint("12"), "connecting", NOW, NOW, NOW)
    telemetry.observe(events.ConsumerOpened(FakeReadings(reading)))
    assert telemetry.values(instruments.CONSUMER_LAG) == telemetry.values(instruments.EVENT_AGE) == {}


def test_the_operations_of_a_batch_count_for_each_lease(telemetry):
    telemetry.observe(events.LeaseStoreCalled("renew", "", 0.25, None, 40))
    (count,) = telemetry.values(instruments.LEASE_OPERATIONS).values()
    assert count == 40


@pytest.mark.parametrize("end", [events.ShardStopped("s-0"), events.ShardFinished("s-0", ("s-1", "s-2"))])
def test_the_gauges_of_a_stopped_shard_end_at_once_and_its_counters_later(telemetry, end):
    telemetry.observe(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
    telemetry.observe(events.EventReceived("s-0", 2, 700, 1500, None))
    telemetry.observe(end)
    assert telemetry.values(instruments.RECORD_INFLIGHT) == {}
    assert telemetry.values(instruments.SUBSCRIPTION_IO) == {("s-0",): 700}
    telemetry.now += KEEP_COUNTERS
    assert telemetry.values(instruments.SUBSCRIPTION_IO) == {}
    telemetry.observe(events.ShardStopped("s-1"))
    assert not telemetry.observe._shards


def test_the_counters_of_a_restarted_shard_continue(telemetry):
    telemetry.observe(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
    telemetry.observe(events.EventReceived("s-0", 2, 700, 1500, None))
    telemetry.observe(events.ShardStopped("s-0"))
    telemetry.observe(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
    telemetry.observe(events.EventReceived("s-0", 2, 300, 100, None))
    assert telemetry.values(instruments.SUBSCRIPTION_IO) == {("s-0",): 1000}


def test_states_without_shards_or_leases_are_reported_as_zero(telemetry):
    readings = FakeReadings(counts=LeaseCounts({"held": 3, "expired": 1}, 2, {"consuming": 4}))
    telemetry.observe(events.ConsumerOpened(readings))
    assert telemetry.values(instruments.SHARD_COUNT) == {
        ("waiting_parent",): 0,
        ("ready",): 0,
        ("consuming",): 4,
        ("finished",): 0,
    }
    assert telemetry.values(instruments.LEASE_COUNT) == {("held",): 3, ("unowned",): 0, ("expired",): 1}
    assert telemetry.values(instruments.WORKER_COUNT) == {(): 2}


def test_an_unknown_lease_table_has_no_gauges(telemetry):
    readings = readings_of_one_shard()
    telemetry.observe(events.ConsumerOpened(readings))
    assert all(telemetry.values(instrument) for instrument in OF_THE_LEASE_TABLE)
    readings.counted = None
    assert not any(telemetry.values(instrument) for instrument in OF_THE_LEASE_TABLE)


def test_calls_of_the_lease_store_feed_operations_and_durations(telemetry):
    telemetry.observe(events.LeaseStoreCalled("checkpoint", "s-0", 0.25))
    telemetry.observe(events.LeaseStoreCalled("renew", "s-0", 0.5, "lease_lost"))
    assert telemetry.values(instruments.LEASE_OPERATIONS) == {("checkpoint",): 1, ("renew", "lease_lost"): 1}
    assert telemetry.values(instruments.LEASE_OPERATION_DURATION)[("checkpoint",)] == (0.25, 1)
    assert telemetry.values(instruments.OPERATION_DURATION) == {("checkpoint", "settle"): (0.25, 1)}


def test_damaged_aggregates_and_protocol_errors_are_decode_errors(telemetry):
    telemetry.observe(events.AggregateDamaged("s-0", "1", "no checksum"))
    telemetry.observe(events.SubscriptionEnded("s-0", 1.0, "protocol"))
    assert telemetry.values(instruments.DECODE_ERRORS) == {("aggregation",): 1, ("protocol",): 1}


def test_refused_records_and_isolated_shards_are_counted_by_error(telemetry):
    for event in (
        events.RecordSkipped("s-0", "1", 0, "ValueError"),
        events.RecordDeadLettered("s-0", "2", 0, "record_refused"),
        events.RecordDeadLettered("s-1", "2", 0, "record_refused"),
        events.ShardIsolated("s-8", 60.0, "kms"),
    ):
        telemetry.observe(event)
    assert telemetry.values(instruments.RECORD_FAILURES) == {
        ("skip", "ValueError"): 1,
        ("dead_letter", "record_refused"): 2,
    }
    assert telemetry.values(instruments.SHARD_ISOLATIONS) == {("kms",): 1}


def test_open_connections_are_counted_by_address(telemetry):
    for event in (events.ConnectionOpened("a:1"), events.ConnectionOpened("b:1"), events.ConnectionClosed("a:1")):
        telemetry.observe(event)
    assert telemetry.values(instruments.CONNECTION_ACTIVE) == {("a:1",): 0, ("b:1",): 1}


def test_resets_are_counted_by_address_and_error_code(telemetry):
    for code in ("CANCEL", "CANCEL", "INTERNAL_ERROR"):
        telemetry.observe(events.StreamReset("a:1", code))
    assert telemetry.values(instruments.HTTP2_RESETS) == {("CANCEL", "a:1"): 2, ("INTERNAL_ERROR", "a:1"): 1}
