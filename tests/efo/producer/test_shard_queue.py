"""The rate of one shard: never throttled alone, whatever happens on the way; adaptive when others write too."""

from __future__ import annotations

import heapq
from math import inf
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from efo.producer.shard_queue import BYTES_PER_SECOND, MIN_SHARE, RECORDS_PER_SECOND, ShardRate
from efo.testing.errors import FakeError
from efo.testing.state.throttle import Throttle

MIB = 1024 * 1024


def test_a_second_has_a_thousand_records():
    rate = ShardRate(1.0)
    assert rate.room(0.0) == (RECORDS_PER_SECOND, BYTES_PER_SECOND)
    rate.sent(600, 1000)
    assert rate.room(0.0) == (400, BYTES_PER_SECOND - 1000)
    rate.settle(600, 1000, 0.5, throttled=False)
    assert rate.room(1.5)[0] == 400
    assert rate.grows_at() == pytest.approx(1.501)
    assert rate.room(1.501)[0] == RECORDS_PER_SECOND


def test_what_is_in_flight_counts_until_its_response():
    rate = ShardRate(1.0)
    rate.sent(1000, 10)
    assert rate.room(100.0)[0] == 0
    assert rate.grows_at() == inf


def test_a_large_record_is_sent_by_an_idle_shard_and_counts_for_as_long_as_it_takes():
    rate = ShardRate(1.0)
    assert rate.is_idle
    rate.sent(1, 10 * MIB)
    rate.settle(1, 10 * MIB, 0.0, throttled=False)
    assert rate.room(9.9)[1] < 0
    assert not rate.is_idle
    assert rate.room(10.1) == (1000, MIB)
    assert rate.is_idle


def test_throttling_lowers_the_share_once_in_a_window_and_time_raises_it():
    rate = ShardRate(1.0)
    for _ in range(5):
        rate.sent(10, 10)
        rate.settle(10, 10, 1.0, throttled=True)
    assert rate.share(1.0) == pytest.approx(0.7)
    assert rate.share(3.0) == pytest.approx(0.79)
    assert rate.room(3.0)[0] in (789, 790)
    assert rate.share(100.0) == 1.0


def test_the_share_stays_above_its_minimum():
    rate = ShardRate(0.5)
    for second in range(50):
        rate.sent(1, 1)
        rate.settle(1, 1, 1.1 * second, throttled=True)
    assert MIN_SHARE <= rate.share(54.0) < 0.04
    assert rate.room(60.0)[0] >= 10
    assert rate.share(200.0) == 0.5


def test_without_a_limit_there_is_always_room():
    rate = ShardRate(inf)
    rate.sent(10**6, 10**9)
    rate.settle(10**6, 10**9, 0.0, throttled=True)
    assert rate.room(0.0) == (inf, inf)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_producer_that_writes_alone_is_never_throttled_however_long_requests_take(seed):
    random, throttle, rate = Random(seed), Throttle(), ShardRate(1.0)
    slow = random.choice((0.01, 0.3, 2.0))
    big = random.choice((100, 5000, 300_000, 2 * MIB))
    now, sent, events = 0.0, 0, []  # (time, kind, number, records, size)
    for number in range(300):
        now += random.expovariate(random.choice((2, 20, 200)))
        while events and events[0][0] <= now:
            at, _, kind, count, size = heapq.heappop(events)
            if kind == "arrives":
                for _ in range(count):
                    throttle.write("orders", size, 1_700_000_000 + at)  # raises if it is throttled
            else:
                rate.settle(count, count * size, at, throttled=False)
        room, size = rate.room(now), random.randint(1, big)
        count = min(int(room[0]), int(room[1] // size) if not rate.is_idle else max(1, int(room[1] // size)))
        if count <= 0:
            continue
        count = random.randint(1, count)
        sent += count
        rate.sent(count, count * size)
        arrives = now + random.uniform(0, slow)
        heapq.heappush(events, (arrives, number, "arrives", count, size))
        heapq.heappush(events, (arrives + random.uniform(0, slow), number, "responds", count, size))
    assert sent


def test_the_fake_throttles_more_than_that():
    throttle = Throttle()
    for _ in range(RECORDS_PER_SECOND):
        throttle.write("orders", 1, 0.0)
    with pytest.raises(FakeError):
        throttle.write("orders", 1, 0.99)
