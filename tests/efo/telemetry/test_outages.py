"""When an outage begins and ends: of which failures, and after which successes."""

from __future__ import annotations

import pytest

from efo import events
from efo.telemetry.outages import (
    NOT_TRIED_AFTER,
    ORDINARY_FOR,
    PUTS_QUIET,
    SAME_CAUSE_AFTER,
    KnownOutage,
    Outage,
    OutageBegan,
    OutageChanged,
    OutageEnded,
    OutageGivenUp,
    Outages,
    Refused,
)


def subscribed(shard, error=None, detail="", *, is_final=False):
    return events.SubscribeAttempted(shard, 0.0, 0.1, error, detail, is_final)


def received(shard):
    return events.EventReceived(shard, 0, 100, 0, None)


def works(shard):
    return subscribed(shard), received(shard)


def called(operation, error=None, duration=0.1):
    return events.LeaseStoreCalled(operation, "s-0", duration, error)


class Reported:
    """The outages that a history of events has."""

    def __init__(self):
        self.now = 0.0
        self.outages = Outages(lambda: self.now)

    def __call__(self, *history):
        return [change for event in history for change in self.outages.observe(event)]


@pytest.fixture
def reported():
    return Reported()


def test_an_outage_of_kinesis_ends_when_every_shard_that_failed_gets_events(reported):
    assert reported(subscribed("s-0", "transport", "cut")) == [OutageBegan("kinesis", "transport", "cut", "s-0")]
    reported.now = 7.0
    assert reported(events.SubscriptionEnded("s-1", 9.0, "transport"), subscribed("s-0", "transport")) == []
    reported.now = 9.0
    # An accepted call is no success: a frozen stream accepts it too. Shards that did not fail prove nothing.
    assert reported(subscribed("s-0"), subscribed("s-1"), received("s-2"), received("s-0")) == []
    assert reported(received("s-1")) == [OutageEnded("kinesis", "transport", 9.0, 3)]
    assert reported(received("s-1"), received("s-0")) == []


def test_a_renewal_that_fails_while_the_older_subscription_is_read_is_one_outage(reported):
    reported(*works("s-0"))
    assert [type(change) for change in reported(subscribed("s-0", "transport"), received("s-0"))] == [OutageBegan]
    assert reported(subscribed("s-0", "transport"), received("s-0")) == []
    reported.now = 9.0
    assert reported(events.SubscriptionEnded("s-0", 300.0, "expired"), subscribed("s-0")) == []
    assert reported(received("s-0")) == [OutageEnded("kinesis", "transport", 9.0, 2)]


def test_a_shard_that_is_polled_works_though_a_trial_of_fan_out_failed(reported):
    reported(subscribed("s-0", "transport"), received("s-0"), events.PollAttempted("s-0", "GetRecords", 0.1))
    assert [type(change) for change in reported(received("s-0"))] == [OutageEnded]


ENDS = [events.ShardStopped("s-0"), events.ShardStopped("s-0", "kms"), events.ShardFinished("s-0", ())]


@pytest.mark.parametrize("end", ENDS)
def test_an_outage_of_what_is_no_longer_tried_is_given_up_and_has_not_ended(reported, end):
    reported(subscribed("s-0", "transport"))
    reported.now = 4.0
    assert reported(end) == [OutageGivenUp("kinesis", "transport", 4.0, 1)]
    assert reported(end, received("s-0")) == []


@pytest.mark.parametrize("end", ENDS)
def test_a_shard_that_is_not_read_any_more_does_not_prolong_an_outage_that_others_have_survived(reported, end):
    reported(subscribed("s-0", "transport"), subscribed("s-1", "transport"), *works("s-1"))
    assert [type(change) for change in reported(end)] == [OutageEnded]
    # But a failure after that success shows that it was none for long.
    reported(
        subscribed("s-0", "transport"), subscribed("s-1", "transport"), *works("s-1"), subscribed("s-0", "transport")
    )
    assert [type(change) for change in reported(end)] == [OutageGivenUp]


@pytest.mark.parametrize(
    "refusal",
    [
        subscribed("s-0", "kms", is_final=True),
        events.PollAttempted("s-0", "GetRecords", 0.1, "AccessDeniedException", "", is_final=True),
        events.SubscriptionEnded("s-0", 3.0, "service", "", "kms", is_final=True),
        events.PutRecordsCalled(5, 0, 0.1, 9, "AccessDeniedException"),
        events.LeaseStoreCalled("renew", "s-0", 0.1, "lease_store_corrupt"),
    ],
)
def test_a_refusal_that_is_final_is_no_outage(reported, refusal):
    assert reported(refusal) == []
    assert reported.outages.ongoing() == []


def test_another_cause_is_reported_and_one_of_before_only_after_some_time(reported):
    reported(subscribed("s-0", "silence", "nothing"))
    reported.now = 5.0
    [changed] = reported(subscribed("s-1", "ExpiredTokenException", "expired"))
    assert changed == OutageChanged("kinesis", "ExpiredTokenException", "silence", "expired", "s-1")
    for reported.now in range(6, 60):  # two that alternate
        assert reported(subscribed("s-0", "silence"), subscribed("s-1", "ExpiredTokenException")) == []
    reported.now = SAME_CAUSE_AFTER
    assert [change.error_type for change in reported(subscribed("s-0", "silence"))] == ["silence"]
    reported(subscribed("s-1", "silence"), *works("s-0"))
    assert reported(*works("s-1")) == [OutageEnded("kinesis", "silence", SAME_CAUSE_AFTER, 112)]


def test_the_cause_of_an_ended_subscription_is_its_error(reported):
    [began] = reported(events.SubscriptionEnded("s-0", 3.0, "service", "failed", "InternalFailureException"))
    assert began == OutageBegan("kinesis", "InternalFailureException", "failed", "s-0")


def test_what_goes_on_is_reported_with_its_present_cause(reported):
    reported(subscribed("s-0", "silence", "nothing"), events.SinkRetried("s-0", "sink_full", "no room", 1.0))
    reported.now = 7.0
    reported(subscribed("s-0", "dns", "no address"), subscribed("s-0", "dns", "again"))
    assert reported.outages.ongoing() == [
        KnownOutage("kinesis", "dns", "again", 7.0, 3),
        KnownOutage("sink", "sink_full", "no room", 7.0, 1),
    ]
    reported(*works("s-0"), events.SinkRecovered("s-0"))
    assert reported.outages.ongoing() == []
    assert reported.outages.last() == [
        KnownOutage("kinesis", "dns", "again", 7.0, 3, is_over=True),
        KnownOutage("sink", "sink_full", "no room", 7.0, 1, is_over=True),
    ]


def test_an_outage_of_a_sink_ends_when_each_shard_works_or_is_given_up(reported):
    history = [events.SinkRetried(shard, "kafka", "down", 1.0) for shard in ("s-0", "s-1")]
    assert reported(*history) == [OutageBegan("sink", "kafka", "down", "s-0")]
    reported.now = 3.0
    assert reported(events.SinkRecovered("s-0")) == []
    assert reported(events.SinkRecovered("s-1")) == [OutageEnded("sink", "kafka", 3.0, 2)]
    reported(*history)
    assert reported(events.ShardStopped("s-0", "kafka")) == []
    assert reported(events.ShardStopped("s-1", "kafka")) == [OutageGivenUp("sink", "kafka", 0.0, 2)]


def test_what_is_refused_for_good_is_reported_at_first_and_then_together():
    outage = Outage("cloudwatch")
    assert [*outage.refused(7, 0.0, "ValidationError", "old")] == [Refused("cloudwatch", "ValidationError", "old", 7)]
    assert [*outage.refused(7, 30.0, "ValidationError", "old")] == []
    [later] = outage.refused(1, SAME_CAUSE_AFTER, "ValidationError", "older")
    assert (later.dropped, later.detail) == (8, "older")
    assert not outage.is_on


@pytest.mark.parametrize("reason", ["expired", "renewed", "shard_end", "lease_lost", "shutdown", "idle", "seek"])
def test_a_planned_end_of_a_subscription_is_no_failure(reported, reason):
    assert reported(events.SubscriptionEnded("s-0", 3.0, reason)) == []


@pytest.mark.parametrize("error", ["ResourceInUseException", "throttled"])
def test_a_refusal_of_a_hand_off_or_of_pacing_is_a_failure_only_if_it_lasts(reported, error):
    assert reported(subscribed("s-0", error)) == []
    reported.now = ORDINARY_FOR - 0.1
    assert reported(subscribed("s-0", error), subscribed("s-0")) == []
    reported.now = 30.0  # after a success, the time counts from the next refusal
    assert reported(subscribed("s-0", error)) == []
    reported.now = 30.0 + ORDINARY_FOR
    assert reported(subscribed("s-0", error)) == [OutageBegan("kinesis", error, "", "s-0")]


def test_the_listing_of_shards_ends_with_a_listing(reported):
    assert reported(events.ShardSyncFailed("throttled", "LimitExceeded")) == [
        OutageBegan("kinesis", "throttled", "LimitExceeded")
    ]
    reported.now = 60.0
    assert reported(events.ShardSyncFailed("throttled", "LimitExceeded"), received("s-0")) == []
    reported.now = 90.0
    assert reported(events.ShardsListed(3)) == [OutageEnded("kinesis", "throttled", 90.0, 2)]


def test_a_lease_store_that_can_only_be_read_is_one_outage(reported):
    assert reported(called("renew", "lease_store_unavailable")) == [
        OutageBegan("lease_store", "lease_store_unavailable", "", "s-0")
    ]
    for reported.now in range(1, 30):
        assert reported(called("list"), called("renew", "lease_store_unavailable")) == []
    assert reported(called("checkpoint")) == [OutageEnded("lease_store", "lease_store_unavailable", 29, 30)]


def test_writes_that_nobody_tries_any_more_do_not_prolong_an_outage(reported):
    reported(called("renew", "lease_store_unavailable"))
    reported.now = NOT_TRIED_AFTER - 1
    assert reported(called("list")) == []
    reported.now = NOT_TRIED_AFTER + 1
    assert reported(called("list")) == [OutageEnded("lease_store", "lease_store_unavailable", NOT_TRIED_AFTER + 1, 1)]


def test_a_lost_race_is_a_response_of_a_store_that_works(reported):
    assert reported(called("take", "lease_lost"), called("renew", "lease_lost")) == []
    reported(called("renew", "lease_store_unavailable"))
    assert [type(change) for change in reported(called("take", "lease_lost"))] == [OutageEnded]


def test_a_cancelled_call_is_a_failure_only_if_it_hung(reported):
    assert reported(called("list", "cancelled", duration=0.2)) == []
    assert [type(change) for change in reported(called("list", "cancelled", duration=9.5))] == [OutageBegan]


def test_a_shard_sync_that_the_lease_store_fails_is_an_outage_of_the_lease_store(reported):
    (began,) = reported(events.StartDelayed("leases", "lease_store_unavailable", "down", 1.0))
    assert (began.system, began.detail) == ("lease_store", "down")
    reported(events.LeaseStoreCalled("list", "", 0.1, None))
    (began,) = reported(events.ShardSyncFailed("lease_store_unavailable", "down"))
    assert began.system == "lease_store"
    assert [type(change) for change in reported(called("list"))] == [OutageEnded]


def test_an_outage_explains_what_many_shards_report_because_of_it(reported):
    consequences = [events.LeaseLost("s-0", "store"), events.LeaseLost("s-0", "expired"), events.ShardStopped("s-0")]
    others = [events.LeaseLost("s-0", "taken"), events.ShardStopped("s-0", "sink"), events.ConnectionClosed("host")]
    assert not any(map(reported.outages.explains, consequences))
    reported(called("renew", "lease_store_unavailable"))
    assert all(map(reported.outages.explains, consequences))
    assert not any(map(reported.outages.explains, others))
    reported(subscribed("s-0", "transport"))
    assert reported.outages.explains(events.ConnectionClosed("host"))


def test_a_second_outage_counts_from_its_own_beginning():
    outage = Outage("sink")
    assert [*outage.failed("s-0", 5.0, "sink_full")] == [OutageBegan("sink", "sink_full")]
    assert [*outage.succeeded("s-0", 8.0)] == [OutageEnded("sink", "sink_full", 3.0, 1)]
    assert [*outage.failed("s-0", 20.0, "kafka")] == [OutageBegan("sink", "kafka")]
    assert [*outage.succeeded("s-0", 21.0)] == [OutageEnded("sink", "kafka", 1.0, 1)]


def put(error=None):
    return events.PutRecordsCalled(1, int(error is not None), 0.1, 9, error)


def test_an_outage_of_puts_ends_when_they_have_worked_for_some_seconds(reported):
    assert reported(put("transport"), put("transport")) == [OutageBegan("kinesis", "transport")]
    reported.now = 3.0
    assert reported(put()) == []
    reported.now = 3.0 + PUTS_QUIET
    assert reported(put()) == [OutageEnded("kinesis", "transport", 3.0, 2)]
    assert reported(put()) == []


def test_puts_that_fail_and_work_in_turn_are_one_outage(reported):
    lines = []
    for second in range(100):
        reported.now = float(second)
        lines += reported(put("internal_failure"), put())
    reported.now = 99 + PUTS_QUIET
    lines += reported(put())
    assert lines == [
        OutageBegan("kinesis", "internal_failure"),
        OutageEnded("kinesis", "internal_failure", 99.0, 100),
    ]


def test_puts_that_are_throttled_are_a_failure_only_if_it_lasts(reported):
    assert reported(put("throttled"), put(), put("throttled")) == []
    reported.now = ORDINARY_FOR - 1
    assert reported(put("throttled")) == []
    reported.now = ORDINARY_FOR
    assert reported(put("throttled")) == [OutageBegan("kinesis", "throttled")]
