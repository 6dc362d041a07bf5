from __future__ import annotations

import pytest

from efo.model import Record
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.until import SLACK, ShardLimit

SKEWED = 10_000_000.0
"""What the clock of the host says; records arrive at some hundred seconds."""


def event(*arrivals, behind=0, continuation="9"):
    records = tuple(Record(str(number), at, b"", "key") for number, at in enumerate(arrivals))
    return SubscribeToShardEvent(records, behind, continuation)


def arrivals(taken):
    return [record.approximate_arrival_timestamp for record in taken.records]


def limit(until="now", *, closed=False):
    return ShardLimit(until, lambda: closed)


@pytest.mark.parametrize("now", [0.0, SKEWED])
def test_now_is_reached_at_the_tip_whatever_the_clock_says(now):
    shard = limit()
    assert arrivals(shard.take(event(100.0, behind=5000), now)) == [100.0]
    assert not shard.is_reached
    assert arrivals(shard.take(event(104.0, 105.0), now)) == [104.0, 105.0]
    assert shard.is_reached


def test_now_is_reached_on_a_shard_that_has_no_records():
    shard = limit()
    shard.take(event(), SKEWED)
    assert shard.is_reached


def test_now_is_reached_on_a_shard_that_is_never_current():
    shard = limit()
    shard.take(event(100.0, behind=5000), SKEWED)  # its tip was at 105
    shard.take(event(105.0, behind=9000), SKEWED)
    assert not shard.is_reached
    taken = shard.take(event(105.999, 105.0 + SLACK, 107.0, behind=9000), SKEWED)
    assert shard.is_reached
    assert arrivals(taken) == [105.999]
    assert taken.continuation_sequence_number is None
    assert taken.millis_behind_latest > 0


def test_a_gap_without_records_is_not_the_end():
    shard = limit()
    shard.take(event(behind=5000), SKEWED)
    assert not shard.is_reached


def test_a_time_ends_before_the_first_record_that_arrived_then():
    shard = limit(103.0)
    taken = shard.take(event(101.0, 102.9, 103.0, 102.0, behind=0), 200.0)
    assert arrivals(taken) == [101.0, 102.9]
    assert shard.is_reached
    assert taken.millis_behind_latest > 0  # what was left out is unread


def test_a_time_that_is_over_ends_at_the_tip():
    shard = limit(103.0)
    shard.take(event(101.0), 104.5)
    assert shard.is_reached


def test_a_time_in_the_future_is_waited_for():
    shard = limit(103.0)
    shard.take(event(101.0), 103.0 + SLACK / 2)
    assert not shard.is_reached
    shard.take(event(), 103.0 + SLACK)
    assert shard.is_reached


def test_a_closed_shard_is_read_to_its_end():
    shard = limit(closed=True)
    shard.take(event(100.0), SKEWED)
    assert not shard.is_reached
    shard = limit()
    shard.take(event(100.0, continuation=None), SKEWED)  # its end is announced
    assert not shard.is_reached


def test_a_seek_begins_again():
    shard = limit()
    shard.take(event(), 0.0)
    shard.restart()
    assert not shard.is_reached
