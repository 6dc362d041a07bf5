"""Since when records are unread, and what of them has expired (rule R5)."""

from __future__ import annotations

import pytest

from efo.model import Record
from efo.protocol.unread import MIN_RETENTION, Gap, Unread, expired, slack

NOW = 1_700_000_000.0
DAY = 86_400.0
HOUR = 3600.0


def record(number: int, arrived_at: float) -> Record:
    return Record(str(number), arrived_at, b"", "k")


# --- what has expired ------------------------------------------------------------------------------------------


def test_what_is_younger_than_the_retention_has_not_expired():
    assert expired(Gap(NOW - DAY + 1, None, NOW), DAY) is None
    assert expired(Gap(NOW - DAY, None, NOW), DAY) is None


def test_what_is_older_has():
    assert expired(Gap(NOW - DAY - 1, None, NOW), DAY) == (NOW - DAY - 1, NOW - DAY)
    assert expired(Gap(NOW - DAY - 1, NOW - DAY, NOW), DAY) == (NOW - DAY - 1, NOW - DAY)


def test_a_reader_may_lose_a_minute_of_a_day_without_a_report():
    assert slack(DAY) == 60
    assert slack(7 * DAY) == 420


def test_without_a_record_it_ends_at_the_trim_horizon():
    assert expired(Gap(NOW - 3 * DAY, None, NOW), DAY) == (NOW - 3 * DAY, NOW - DAY)


def test_a_first_record_after_the_horizon_does_not_shorten_it():
    # Records may have arrived at any time before the horizon; none of these is left.
    assert expired(Gap(NOW - 3 * DAY, NOW - HOUR, NOW), DAY) == (NOW - 3 * DAY, NOW - DAY)


def test_a_first_record_from_before_the_horizon_is_where_it_ends():
    # The service trims when it gets to it.
    assert expired(Gap(NOW - 3 * DAY, NOW - DAY - HOUR, NOW), DAY) == (NOW - 3 * DAY, NOW - DAY - HOUR)


def test_a_first_record_that_follows_at_once_leaves_no_gap():
    assert expired(Gap(NOW - 3 * DAY, NOW - 3 * DAY + 59, NOW), DAY) is None
    assert expired(Gap(NOW - 3 * DAY, NOW - 3 * DAY + 60, NOW), DAY) == (NOW - 3 * DAY, NOW - 3 * DAY + 60)


@pytest.mark.parametrize("hours", [24, 168, 8760])
def test_the_retention_of_the_stream_decides(hours):
    assert expired(Gap(NOW - 2 * DAY, None, NOW), hours * HOUR) == ((NOW - 2 * DAY, NOW - DAY) if hours == 24 else None)


# --- what is known while reading -------------------------------------------------------------------------------


def received(unread: Unread, *arrivals: float, behind: int = 0, seen: float = NOW) -> Gap | None:
    records = [record(number, at) for number, at in enumerate(arrivals, start=100)]
    return unread.received(records, behind, seen, MIN_RETENTION)


def test_an_old_checkpoint_whose_record_is_gone_is_a_gap():
    unread = Unread(NOW - 3 * DAY, "99")
    assert received(unread, NOW - HOUR, NOW - 1) == Gap(NOW - 3 * DAY, NOW - HOUR, NOW)


def test_an_old_checkpoint_whose_record_is_still_there_is_none():
    # Reading starts AT the checkpoint's record.
    assert received(Unread(NOW - 3 * DAY, "100"), NOW - 3 * DAY, NOW - 1) is None


def test_a_checkpoint_up_to_the_shortest_retention_of_aws_is_none():
    assert received(Unread(NOW - DAY, "99"), NOW - 1) is None
    assert received(Unread(NOW - DAY - 1, "99"), NOW - 1) is not None


def test_an_unknown_time_is_none():
    assert received(Unread(None, "99"), NOW - 1) is None


def test_an_idle_shard_at_its_tip_is_a_gap_once():
    # Its checkpoint is old, and nothing is there: what was put after the checkpoint has expired, if anything was.
    unread = Unread(NOW - 3 * DAY, "99")
    assert received(unread) == Gap(NOW - 3 * DAY, None, NOW)
    assert received(unread, seen=NOW + 5) is None


def test_an_idle_shard_that_is_read_stays_known_up_to_now():
    unread = Unread(NOW, None)
    for hours in range(1, 100):
        assert received(unread, seen=NOW + hours * HOUR) is None
    assert unread.since == NOW + 99 * HOUR


def test_empty_events_far_behind_the_tip_say_nothing_yet():
    # Polling passes ranges without records.
    unread = Unread(NOW - 3 * DAY, "99")
    assert received(unread, behind=DAY) == Gap(NOW - 3 * DAY, None, NOW)
    assert unread.since == NOW - 3 * DAY
    assert unread.was_open_at == NOW - 3 * DAY


def test_behind_the_tip_the_newest_record_is_what_is_read():
    unread = Unread(None)
    received(unread, NOW - HOUR, NOW - 60, behind=60_000)
    assert unread.since == NOW - 60
    assert unread.was_open_at == NOW - 60


def test_at_the_tip_everything_is_read():
    unread = Unread(None)
    received(unread, NOW - HOUR, NOW - 60)
    assert unread.since == NOW
    assert unread.was_open_at == NOW - 60  # the shard may have been closed since


def test_a_reader_that_falls_behind_by_more_than_the_retention_sees_a_gap():
    unread = Unread(NOW - 2 * HOUR)
    received(unread, NOW - HOUR, behind=HOUR)
    assert received(unread, NOW + 2 * DAY, behind=DAY, seen=NOW + 3 * DAY) == Gap(
        NOW - HOUR, NOW + 2 * DAY, NOW + 3 * DAY
    )


def test_a_checkpoints_record_is_looked_for_in_the_first_records_only():
    unread = Unread(NOW - 3 * DAY, "100")
    assert received(unread, NOW - 3 * DAY, behind=1) is None
    assert unread.received([record(100, NOW)], 0, NOW + 3 * DAY, MIN_RETENTION) is not None


def test_records_without_an_arrival_time_change_nothing():
    # Some servers do not send it.
    unread = Unread(NOW - 3 * DAY, "99")
    assert received(unread, 0.0, behind=1) == Gap(NOW - 3 * DAY, None, NOW)
    assert unread.since == NOW - 3 * DAY


def test_another_place_is_another_time():
    unread = Unread(NOW - 3 * DAY, "99")
    unread.restart(NOW - HOUR)
    assert received(unread, NOW - 1) is None
    unread.restart(None)
    assert unread.since is None
