"""What follows from what is known of a shard's reading: its lag, its ages, and whether it is read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from efo.health import (
    QUIET_AFTER,
    Overdue,
    ShardReading,
    checkpoint_age,
    condition,
    event_age,
    lag,
    quiet_for,
    read_lag,
    unacked_age,
)
from efo.model import Checkpoint

IDLE = ShardReading("s-0", Checkpoint("1"), "live", 0.0, 0.0, 0.0, 100.0, 0)
"""A shard whose last event came at 100 s, at the tip."""
JUST_BEFORE = 100 + QUIET_AFTER - 0.001


def test_a_healthy_idle_shard_has_no_lag_between_its_events():
    assert [lag(IDLE, 100.0 + seconds) for seconds in (0, 2.5, 5, 9.99)] == [0, 0, 0, 0]


def test_without_events_the_lag_grows_with_the_time():
    assert [lag(IDLE, 100.0 + seconds) for seconds in (10, 11, 60, 3600)] == [10, 11, 60, 3600]


def test_the_lag_of_an_event_behind_the_tip_counts_too():
    behind = replace(IDLE, millis_behind_latest=90_500)
    assert (lag(behind, 101.0), lag(behind, 110.0)) == (90.5, 100.5)


@pytest.mark.parametrize("state", ["unsubscribed", "waiting", "connecting", "live", "renewing", "no_lease", "isolated"])
@pytest.mark.parametrize("is_paused", [True, False])
def test_a_shard_lags_whatever_the_reason_is_for_which_it_gets_no_event(state, is_paused):
    assert lag(replace(IDLE, state=state, is_paused=is_paused), 130.0) == 30


def test_before_the_first_event_the_lag_is_unknown_and_then_at_least_the_time_since_the_start():
    started = ShardReading("s-0", Checkpoint("1"), "connecting", 50.0, 50.0, 50.0)
    assert (lag(started, 59.9), lag(started, 60.0), event_age(started, 60.0)) == (None, 10, None)


def test_the_lag_of_a_shard_that_was_read_to_its_end_does_not_grow():
    assert lag(replace(IDLE, state="ended"), 1000.0) == 0


def test_what_is_read_and_not_acked_lags_although_events_arrive():
    waiting = replace(IDLE, unacked_since=60.0, unacked_behind=2.5)
    assert (lag(waiting, 101.0), read_lag(waiting, 101.0), unacked_age(waiting, 101.0)) == (43.5, 0, 41)
    assert unacked_age(IDLE, 101.0) == 0
    behind = replace(waiting, millis_behind_latest=90_500)
    assert lag(behind, 101.0) == 90.5


def test_a_commit_that_takes_five_seconds_is_the_condition_of_its_shard_whatever_arrives():
    slow = replace(IDLE, overdue=Overdue(97.0))
    assert [condition(slow, now) for now in (101.9, 102.0, 200.0)] == ["current", "uncommitted", "uncommitted"]
    assert condition(replace(slow, is_paused=True), 102.0) == "uncommitted"
    assert condition(replace(slow, state="no_lease"), 102.0) == "no_lease"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": "live"}, "frozen"),
        ({"state": "renewing"}, "frozen"),
        ({"state": "live", "has_pending": True}, "unread"),
        ({"state": "connecting", "has_pending": True}, "unread"),
        ({"state": "live", "wanted_since": None}, "unread"),
        ({"state": "unsubscribed", "subscribed_at": None}, "unread"),
        ({"state": "waiting"}, "disconnected"),
        ({"state": "connecting"}, "disconnected"),
        ({"state": "ended"}, "current"),
        ({"state": "failed"}, "current"),
    ],
)
def test_after_ten_seconds_without_an_event_the_state_tells_why(changes, expected):
    shard = replace(IDLE, **changes)
    assert (condition(shard, JUST_BEFORE), condition(shard, 100.0 + QUIET_AFTER)) == ("current", expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"is_paused": True}, "paused"),
        ({"state": "unsubscribed", "is_paused": True}, "paused"),
        ({"state": "no_lease"}, "no_lease"),
        ({"state": "isolated"}, "isolated"),
    ],
)
def test_what_is_known_at_once_is_reported_at_once(changes, expected):
    assert condition(replace(IDLE, **changes), 100.0) == expected


def test_a_shard_that_is_subscribed_again_after_a_pause_is_not_frozen_but_lags():
    resumed = replace(IDLE, state="connecting", subscribed_at=1000.0)
    assert (condition(resumed, 1005.0), quiet_for(resumed, 1005.0), lag(resumed, 1005.0)) == ("current", 5, 905)
    assert condition(resumed, 1010.0) == "disconnected"


def test_a_reader_that_was_busy_for_long_waits_ten_seconds_before_the_stream_counts_as_frozen():
    waiting = replace(IDLE, state="live", wanted_since=1000.0)
    assert (condition(waiting, 1009.9), quiet_for(waiting, 1009.0), lag(waiting, 1009.0)) == ("current", 9, 909)
    assert condition(waiting, 1010.0) == "frozen"


def test_the_age_of_the_checkpoint_is_that_of_what_it_does_not_include():
    assert checkpoint_age(IDLE, 200.0) == 0
    assert checkpoint_age(replace(IDLE, unsaved_since=170.0), 200.0) == 30


def test_a_clock_that_is_read_before_the_facts_gives_no_negative_age():
    shard = replace(IDLE, unsaved_since=100.0)
    assert (event_age(shard, 99.9), checkpoint_age(shard, 99.9), quiet_for(shard, 99.9), lag(shard, 99.9)) == (0,) * 4
