"""None"""

from __future__ import annotations

import threading

import pytest
import structlog
import trio
from msgspec.structs import replace
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from efo.events import (
    ConsumerOpened,
    ConsumerReady,
    EventReceived,
    LeasesCounted,
    LeaseStoreCalled,
    PollAttempted,
    ReadModeChanged,
    RecordsDropped,
    RecordsExpired,
    RecordsFiltered,
    ShardsListed,
    ShardStopped,
    SinkRecovered,
    SinkRetried,
    StartDelayed,
    SubscribeAttempted,
)
from efo.health import QUIET_AFTER, IsolatedShard, Overdue, ShardReading
from efo.model import Checkpoint
from efo.protocol.aggregation import AggregateMode
from efo.protocol.remedies import REMEDIES
from efo.telemetry.filtering import RECENT, Filtering
from efo.telemetry.outages import Outages
from efo_service.telemetry.sdk import telemetry
from efo_service.web.health import EXPIRED_SHOWN_FOR, Health, WorkerReadiness, log_readiness, measure_readiness
from tests.readings import NOW, FakeReadings

SHARD = ShardReading("s-0", Checkpoint("1"), "live", 0.0, NOW, 0.0, NOW, 0)


@pytest.fixture
def readings():
    return FakeReadings(SHARD)


@pytest.fixture
def health(readings):
    """A ready service."""
    health = Health(clock=readings.now)
    health(ConsumerOpened(readings))
    health(ConsumerReady("fan", "arn", registered=False))
    health(LeasesCounted({"held": 1}, 1))
    health(ShardsListed(1))
    return health


def test_the_service_is_ready_when_the_consumer_is_ready_and_the_leases_are_read():
    readings = FakeReadings(counts=None)
    health = Health(clock=readings.now)
    assert len(health.obstacles()) == 2
    health(ConsumerOpened(readings))
    health(ConsumerReady("fan", "arn", registered=False))
    health(LeaseStoreCalled("list", "", 0.1, "lease_store_unavailable"))
    assert health.obstacles() == ("the leases have not been read yet (lease_store_unavailable)",)
    readings.counted = FakeReadings().counted
    assert health.obstacles() == ("the shards have not been listed yet",)
    health(ShardsListed(1))
    assert health.obstacles() == health.problems() == ()  # nothing is to be read


def test_a_start_that_waits_says_for_which_call(health):
    health(StartDelayed("ListShards", "throttled", "ListShards: LimitExceededException: Rate exceeded", 1.5))
    [problem] = health.obstacles()
    assert problem == "the start waits for Kinesis: ListShards: LimitExceededException: Rate exceeded"
    health(StartDelayed("leases", "lease_store_unavailable", "it does not answer", 1.5))
    assert health.obstacles() == ("the start waits for the lease store: it does not answer",)
    health(ShardsListed(4))
    assert health.obstacles() == ()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, "s-0: frozen: the subscription is open, and no event has arrived for 10 s"),
        ({"state": "connecting"}, "s-0: not subscribed for 10 s"),
        ({"has_pending": True}, "s-0: not read for 10 s: the sink takes nothing"),
        ({"state": "unsubscribed", "subscribed_at": None}, "s-0: not read for 10 s"),
        ({"state": "no_lease"}, "s-0: no longer read: the lease could not be renewed"),
    ],
)
def test_a_service_that_does_not_read_a_shard_is_not_ready_and_tells_why(health, readings, changes, part):
    assert health.obstacles() == ()
    readings.known = (replace(SHARD, **changes),)
    readings.time += QUIET_AFTER
    (problem,) = health.obstacles()
    assert problem.startswith(part)
    assert ": " in problem[len(part) :] or "; " in problem[len(part) :]  # the remedy
    assert health.problems() == (problem,)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"is_paused": True}, "s-0: paused: resume it"),
        ({"unsaved_since": NOW - 60}, "s-0: records were delivered 60 s ago that no saved checkpoint includes"),
    ],
)
def test_what_an_operator_or_a_policy_decided_is_a_problem_of_a_ready_service(health, readings, changes, part):
    readings.known = (replace(SHARD, **changes),)
    (problem,) = health.problems()
    assert problem.startswith(part)
    assert health.obstacles() == ()


@pytest.mark.parametrize(
    ("overdue", "part"),
    [
        (Overdue(NOW - 5), "s-0: not committed: the sink has not taken for 5 s what was read (no answer): "),
        (Overdue(NOW - 7, "sink_full", "/log is full"), "for 7 s what was read (/log is full): free space, or raise"),
    ],
)
def test_a_sink_that_does_not_commit_is_not_ready_although_events_arrive(health, readings, overdue, part):
    readings.known = (replace(SHARD, overdue=overdue, unacked_since=NOW - 4, last_event_at=NOW),)
    (problem,) = health.obstacles()
    assert part in problem


def test_a_commit_of_four_seconds_is_no_problem(health, readings):
    readings.known = (replace(SHARD, overdue=Overdue(NOW - 4, "kafka", "x"), last_event_at=NOW),)
    assert health.problems() == ()


def test_isolated_shards_are_reported_with_the_command_that_skips_and_all_of_them_are_not_ready(health, readings):
    readings.known = (replace(SHARD, state="isolated"), replace(SHARD, shard_id="s-1"))
    readings.failed = (IsolatedShard("s-0", "record_refused", 21.0, "not UTF-8", "77/3"),)
    (problem,) = health.problems()
    assert problem.startswith("s-0: isolated at record 77/3, and no other worker is known to read it")
    assert problem.endswith("tries again in 21 s; to skip the record: efo leases reset s-0 --to 77/3")
    assert health.obstacles() == ()
    readings.known = readings.known[:1]
    assert health.obstacles() == (problem,)
    readings.known = (SHARD,)  # read again, and nothing is acked yet
    assert len(health.obstacles()) == 1
    readings.known, readings.failed = (replace(SHARD, state="isolated"),), ()
    assert health.obstacles()[0].startswith("s-0: isolated, and no other worker is known to read it (isolate_shard)")


def test_a_sink_that_keeps_positions_skips_by_a_setting(readings):
    health = Health(clock=lambda: readings.time, keeps_positions=True)
    readings.known, readings.failed = (SHARD,), (IsolatedShard("s-0", "record_refused", 21.0, "", "77"),)
    health(ConsumerOpened(readings))
    assert any('[relay] dead_letters or on_refused_record = "skip"' in text for text in health.problems())


def test_the_last_errors_stay_known():
    outages = Outages(lambda: 100.0)
    health = Health(outages=outages, clock=lambda: 100.0)
    assert health.last_errors() == ()
    [*outages.observe(SinkRetried("s-0", "sink_full", "/log is full", 1.0))]
    [error] = health.last_errors()
    assert (error.system, error.error_type, error.text, error.count) == ("sink", "sink_full", "/log is full", 1)
    assert error.remedy.startswith("free space")
    assert not error.is_over
    [*outages.observe(SinkRecovered("s-0"))]
    assert [error.is_over for error in health.last_errors()] == [True]


def test_the_reason_of_the_last_failed_subscription_is_reported(health, readings):
    readings.known = (replace(SHARD, state="waiting"),)
    readings.time += 12
    health(SubscribeAttempted("s-0", 0.0, 0.1, "transport", "no route to host"))
    assert health.obstacles()[0].startswith("s-0: not subscribed for 12 s (no route to host): ")
    health(SubscribeAttempted("s-1", 0.0, 0.1, None))
    assert health.obstacles()[0].startswith("s-0: not subscribed for 12 s: ")


def test_polling_needs_no_fan_out_consumer():
    health = Health()
    health(ReadModeChanged("polling"))
    assert not any("fan-out consumer" in problem for problem in health.problems())


def test_polling_in_place_of_fan_out_is_a_problem_of_a_ready_service_until_it_ends(health):
    health(ReadModeChanged("polling", "consumer_limit", "the stream has 20 consumers", 300.0))
    (problem,) = health.problems()
    assert problem.startswith(
        "enhanced fan-out is not possible, so the shards are polled (the stream has 20 consumers)"
    )
    assert health.obstacles() == ()
    health(ReadModeChanged("fanout"))
    assert health.problems() == ()


@pytest.mark.parametrize(
    ("error_type", "remedy"),
    [
        ("consumer_limit", "deregister a fan-out consumer"),
        ("consumer_gone", "set [consumer] consumer_arn to the present consumer's"),
        ("AccessDeniedException", "permit kinesis:SubscribeToShard"),
        ("silence", "look at firewalls and NAT"),
        ("fan_out_refused", "look in the log for read_mode_changed"),
    ],
)
def test_the_remedy_is_that_of_the_reason_to_poll(health, error_type, remedy):
    health(ReadModeChanged("polling", error_type, "why", 300.0))
    (problem,) = health.problems()
    assert problem.startswith(f"enhanced fan-out is not possible, so the shards are polled (why): {remedy}")


def test_the_reason_of_the_last_failed_poll_is_reported(health, readings):
    readings.known = (replace(SHARD, state="waiting"),)
    readings.time += 12
    health(PollAttempted("s-0", "GetRecords", 0.1, "transport", "no route to host"))
    assert "(no route to host)" in health.obstacles()[0]


@pytest.mark.parametrize(
    ("error_type", "remedy"),
    [("dns", "look at the DNS of this host"), ("kms", "enable the stream's KMS key"), ("x", "look at the network and")],
)
def test_the_remedy_of_a_shard_that_is_not_subscribed_is_that_of_its_error(health, readings, error_type, remedy):
    readings.known = (replace(SHARD, state="waiting"),)
    readings.time += 12
    health(SubscribeAttempted("s-0", 0.0, 0.1, error_type, "why"))
    assert f"not subscribed for 12 s (why): {remedy}" in health.obstacles()[0]


def test_an_outage_is_a_problem_with_its_remedy_from_its_beginning_to_its_end(readings):
    outages = Outages(readings.now)
    health = Health(clock=readings.now, outages=outages)
    opened, ready = ConsumerOpened(readings), ConsumerReady("fan", "arn", registered=False)
    for event in (opened, ready, LeasesCounted({}, 1), ShardsListed(1)):
        health(event)
    assert [*outages.observe(SubscribeAttempted("s-0", 0, 0.1, "ExpiredTokenException", "the token has expired"))]
    assert [*outages.observe(SinkRetried("s-0", "unheard_of", "", 1.0))]
    readings.time += 3
    kinesis, sink = health.problems()
    assert kinesis.startswith("Kinesis has failed for 3 s, 1 times (ExpiredTokenException: the token has expired): ")
    assert kinesis.endswith(REMEDIES["ExpiredTokenException"])
    assert sink == "the sink has failed for 3 s, 1 times (unheard_of): look in the log for sink_outage_began"
    assert health.obstacles() == ()  # whether shards are read is reported by their conditions
    for event in (SubscribeAttempted("s-0", 0, 0.1, None), EventReceived("s-0", 0, 1, 0, None), SinkRecovered("s-0")):
        [*outages.observe(event)]
    assert health.problems() == ()


def test_records_that_expired_are_reported_for_a_day_in_one_sentence_and_the_service_stays_ready(health, readings):
    for shard, since, until in (("s-1", 0.0, 60.0), ("s-0", 0.0, 3600.0), ("s-1", 60.0, 7200.0)):
        health(RecordsExpired(shard, since, until, until - since))
    (problem,) = health.problems()
    assert problem.startswith(
        "s-0, s-1: records that arrived between 1970-01-01T00:00:00Z and 1970-01-01T02:00:00Z expired before they were "
        "read, if there were any"
    )
    assert health.obstacles() == ()
    readings.time += EXPIRED_SHOWN_FOR + 1
    readings.known = (replace(SHARD, last_event_at=readings.time),)
    assert health.problems() == ()


def test_filtered_records_are_reported_while_it_goes_on(readings):
    filtering = Filtering(readings.now)
    health = Health(clock=readings.now, filtering=filtering)
    opened, ready = ConsumerOpened(readings), ConsumerReady("fan", "arn", registered=False)
    for event in (opened, ready, LeasesCounted({}, 1), ShardsListed(1)):
        health(event)
    assert health.problems() == ()
    filtering.observe(RecordsFiltered("s-0", "7", 3))
    filtering.observe(RecordsFiltered("s-0", "8", 4))
    (problem,) = health.problems()
    assert problem == (
        "s-0: 7 user records of aggregates were filtered out: the KPL puts them again after a reshard, so they are "
        "duplicates"
    )
    readings.time += RECENT + 1
    readings.known = (replace(SHARD, last_event_at=readings.time),)
    assert health.problems() == ()
    filtering.observe(RecordsFiltered("s-0", "9", 1, AggregateMode.FILTER))
    assert health.problems()
    filtering.observe(ShardStopped("s-0"))
    assert health.problems() == health.obstacles() == ()


def test_records_that_a_limit_of_age_drops_are_reported_while_it_goes_on(readings):
    filtering = Filtering(readings.now)
    health = Health(clock=readings.now, filtering=filtering)
    opened, ready = ConsumerOpened(readings), ConsumerReady("fan", "arn", registered=False)
    for event in (opened, ready, LeasesCounted({}, 1), ShardsListed(1)):
        health(event)
    for event in (RecordsDropped("s-0", "too_old", 0.0, 9.0, 7), RecordsDropped("s-0", "behind", 0.0, 9.0, 1)):
        filtering.observe(event)
        filtering.observe(event)
    old, behind = health.problems()
    assert old.startswith("s-0: 14 records older than [relay] max_record_age_seconds were dropped")
    assert behind.startswith("s-0: a backlog was skipped")
    assert health.obstacles() == ()
    readings.time += RECENT + 1
    readings.known = (replace(SHARD, last_event_at=readings.time),)
    assert health.problems() == ()


def test_shards_with_the_same_problem_share_a_sentence_with_the_first_names(health, readings):
    readings.time += QUIET_AFTER
    frozen = [replace(SHARD, shard_id=f"s-{number}") for number in range(900)]
    healthy = [replace(SHARD, shard_id=f"t-{number}", last_event_at=readings.time) for number in range(100)]
    readings.known = (*healthy, *reversed(frozen))
    (problem,) = health.problems()
    assert problem.startswith("900 of 1000 shards (s-0, s-1, s-10 and 897 more): frozen")


def test_the_service_is_not_ready_while_the_lease_table_is_unknown(health, readings):
    readings.known, readings.counted = (), None
    health(LeaseStoreCalled("renew", "s-0", 0.1, "lease_store_unavailable"))
    readings.time += 11
    (problem,) = health.obstacles()
    assert problem.startswith("the leases were last read 11 s ago (lease_store_unavailable), so which shards are to be")
    assert problem.endswith("unknown: make the lease store reachable from this worker")
    health(LeasesCounted({}, 0))
    readings.counted = FakeReadings().counted
    assert health.obstacles() == ()


def test_a_lost_lease_is_not_reported_as_an_error_of_the_store(health, readings):
    readings.known, readings.counted = (), None
    health(LeaseStoreCalled("renew", "s-0", 0.1, "lease_lost"))
    assert "lease_lost" not in health.obstacles()[0]


def test_a_draining_service_is_not_ready(health):
    health.start_draining()
    assert health.obstacles() == health.problems() == ("draining",)


def ready(sdk) -> list[tuple[str, float]]:
    families = text_string_to_metric_families(generate_latest(sdk.registry).decode())
    return [
        (sample.labels["messaging_destination_name"], sample.value)
        for family in families
        if family.name == "efo_worker_ready"
        for sample in family.samples
    ]


def measure(health, sdk) -> None:
    measure_readiness(lambda: [WorkerReadiness("orders", "billing", not health.obstacles())], sdk.meter_provider)


def test_the_metric_is_1_while_the_worker_is_ready():
    readings = FakeReadings(counts=None)
    health = Health(clock=readings.now)
    with telemetry("w-1") as sdk:
        measure(health, sdk)
        assert ready(sdk) == [("orders", 0)]
        health(ConsumerOpened(readings))
        health(ConsumerReady("fan", "arn", registered=False))
        readings.counted = FakeReadings().counted
        assert ready(sdk) == [("orders", 0)]
        health(ShardsListed(1))
        assert ready(sdk) == [("orders", 1)]
        health.start_draining()
        assert ready(sdk) == [("orders", 0)]


async def test_the_metric_is_read_in_another_thread_when_the_leases_are_unknown():
    health = Health(clock=trio.lowlevel.current_clock().current_time)
    health(LeasesCounted({"held": 1}, 1))  # since then, the lease table has not been read
    with telemetry("w-1") as sdk:
        measure(health, sdk)
        found = []
        thread = threading.Thread(target=lambda: found.extend(ready(sdk)))
        thread.start()
        thread.join()
    assert found == [("orders", 0)]


async def test_the_log_tells_when_the_worker_becomes_ready_and_when_it_is_not_with_the_reasons(autojump_clock):
    problems: list[str] = ["starting"]
    is_draining = False
    with structlog.testing.capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_readiness, lambda: problems, lambda: is_draining)
            await trio.sleep(10)
            assert lines == []  # it was never ready
            problems = []
            await trio.sleep(10)
            problems = ["s-0: not committed", *["more"] * 7]
            await trio.sleep(10)
            is_draining = True
    assert [line["event"] for line in lines] == ["ready", "not_ready"]
    assert (lines[1]["problems"][0], len(lines[1]["problems"]), lines[1]["count"]) == ("s-0: not committed", 5, 8)
