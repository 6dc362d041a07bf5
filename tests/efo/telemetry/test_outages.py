"""When an outage begins and ends: of which failures, and after which successes."""

from __future__ import annotations

import pytest

from efo import events
from efo.telemetry.outages import NOT_TRIED_AFTER, ORDINARY_FOR, PUTS_QUIET, Outage, OutageBegan, OutageEnded, Outages


def subscribed(shard, error=None, detail=""):
    return events.SubscribeAttempted(shard, 0.0, 0.1, error, detail)


def received(shard):
    return events.EventReceived(shard, 0, 100, 0, None)


def called(operation, error=None, duration=0.1):
    return events.LeaseStoreCalled(operation, "s-0", duration, error)


class Told:
    """The outages that a history of events has."""

    def __init__(self):
        self.now = 0.0
        self.outages = Outages(lambda: self.now)

    def __call__(self, *history):
        return [change for event in history for change in self.outages.observe(event)]


@pytest.fixture
def told():
    return Told()


def test_an_outage_of_kinesis_ends_when_every_shard_that_failed_gets_events(told):
    assert told(subscribed("s-0", "transport", "cut")) == [OutageBegan("kinesis", "transport", "cut", "s-0")]
    told.now = 7.0
    assert told(events.SubscriptionEnded("s-1", 9.0, "silence"), subscribed("s-0", "transport")) == []
    told.now = 9.0
    # An accepted call is no success: a frozen stream accepts it too. Shards that did not fail prove nothing.
    assert told(subscribed("s-0"), subscribed("s-1"), received("s-2"), received("s-0")) == []
    assert told(received("s-1")) == [OutageEnded("kinesis", "transport", 9.0, 3)]
    assert told(received("s-1"), received("s-0")) == []


@pytest.mark.parametrize("end", [events.ShardStopped("s-0"), events.ShardFinished("s-0", ())])
def test_a_shard_that_is_not_read_any_more_does_not_prolong_an_outage(told, end):
    told(subscribed("s-0", "transport"))
    assert [type(change) for change in told(end)] == [OutageEnded]


@pytest.mark.parametrize("reason", ["expired", "renewed", "shard_end", "lease_lost", "shutdown", "idle", "seek"])
def test_a_planned_end_of_a_subscription_is_no_failure(told, reason):
    assert told(events.SubscriptionEnded("s-0", 3.0, reason)) == []


@pytest.mark.parametrize("error", ["ResourceInUseException", "throttled"])
def test_a_refusal_of_a_hand_off_or_of_pacing_is_a_failure_only_if_it_lasts(told, error):
    assert told(subscribed("s-0", error)) == []
    told.now = ORDINARY_FOR - 0.1
    assert told(subscribed("s-0", error), subscribed("s-0")) == []
    told.now = 30.0  # after a success, the time counts from the next refusal
    assert told(subscribed("s-0", error)) == []
    told.now = 30.0 + ORDINARY_FOR
    assert told(subscribed("s-0", error)) == [OutageBegan("kinesis", error, "", "s-0")]


def test_the_listing_of_shards_ends_with_a_listing(told):
    assert told(events.ShardSyncFailed("throttled", "LimitExceeded")) == [
        OutageBegan("kinesis", "throttled", "LimitExceeded")
    ]
    told.now = 60.0
    assert told(events.ShardSyncFailed("throttled", "LimitExceeded"), received("s-0")) == []
    told.now = 90.0
    assert told(events.ShardsListed(3)) == [OutageEnded("kinesis", "throttled", 90.0, 2)]


def test_a_lease_store_that_can_only_be_read_is_one_outage(told):
    assert told(called("renew", "lease_store_unavailable")) == [
        OutageBegan("lease_store", "lease_store_unavailable", "", "s-0")
    ]
    for told.now in range(1, 30):
        assert told(called("list"), called("renew", "lease_store_unavailable")) == []
    assert told(called("checkpoint")) == [OutageEnded("lease_store", "lease_store_unavailable", 29, 30)]


def test_writes_that_nobody_tries_any_more_do_not_prolong_an_outage(told):
    told(called("renew", "lease_store_unavailable"))
    told.now = NOT_TRIED_AFTER - 1
    assert told(called("list")) == []
    told.now = NOT_TRIED_AFTER + 1
    assert told(called("list")) == [OutageEnded("lease_store", "lease_store_unavailable", NOT_TRIED_AFTER + 1, 1)]


def test_a_lost_race_is_a_response_of_a_store_that_works(told):
    assert told(called("take", "lease_lost"), called("renew", "lease_lost")) == []
    told(called("renew", "lease_store_unavailable"))
    assert [type(change) for change in told(called("take", "lease_lost"))] == [OutageEnded]


def test_a_cancelled_call_is_a_failure_only_if_it_hung(told):
    assert told(called("list", "cancelled", duration=0.2)) == []
    assert [type(change) for change in told(called("list", "cancelled", duration=9.5))] == [OutageBegan]


def test_a_shard_sync_that_the_lease_store_fails_is_an_outage_of_the_lease_store(told):
    (began,) = told(events.ShardSyncFailed("lease_store_unavailable", "down"))
    assert began.system == "lease_store"
    assert [type(change) for change in told(called("list"))] == [OutageEnded]


def test_an_outage_explains_what_many_shards_report_because_of_it(told):
    consequences = [events.LeaseLost("s-0", "store"), events.LeaseLost("s-0", "expired"), events.ShardStopped("s-0")]
    others = [events.LeaseLost("s-0", "taken"), events.ShardStopped("s-0", "sink"), events.ConnectionClosed("host")]
    assert not any(map(told.outages.explains, consequences))
    told(called("renew", "lease_store_unavailable"))
    assert all(map(told.outages.explains, consequences))
    assert not any(map(told.outages.explains, others))
    told(subscribed("s-0", "transport"))
    assert told.outages.explains(events.ConnectionClosed("host"))


def test_a_second_outage_counts_from_its_own_beginning():
    outage = Outage("sink")
    assert [*outage.failed("s-0", 5.0, "sink_full")] == [OutageBegan("sink", "sink_full")]
    assert [*outage.succeeded("s-0", 8.0)] == [OutageEnded("sink", "sink_full", 3.0, 1)]
    assert [*outage.failed("s-0", 20.0, "kafka")] == [OutageBegan("sink", "kafka")]
    assert [*outage.succeeded("s-0", 21.0)] == [OutageEnded("sink", "kafka", 1.0, 1)]


def put(error=None):
    return events.PutRecordsCalled(1, 0, 0.1, 9, error)


def test_an_outage_of_puts_ends_when_they_have_worked_for_some_seconds(told):
    assert told(put("transport"), put("transport")) == [OutageBegan("kinesis", "transport")]
    told.now = 3.0
    assert told(put()) == []
    told.now = 3.0 + PUTS_QUIET
    assert told(put()) == [OutageEnded("kinesis", "transport", 3.0, 2)]
    assert told(put()) == []


def test_puts_that_fail_and_work_in_turn_are_one_outage(told):
    lines = []
    for second in range(100):
        told.now = float(second)
        lines += told(put("internal_failure"), put())
    told.now = 99 + PUTS_QUIET
    lines += told(put())
    assert lines == [
        OutageBegan("kinesis", "internal_failure"),
        OutageEnded("kinesis", "internal_failure", 99.0, 100),
    ]


def test_puts_that_are_throttled_are_a_failure_only_if_it_lasts(told):
    assert told(put("throttled"), put(), put("throttled")) == []
    told.now = ORDINARY_FOR - 1
    assert told(put("throttled")) == []
    told.now = ORDINARY_FOR
    assert told(put("throttled")) == [OutageBegan("kinesis", "throttled")]
