"""Which request the buffer sends next, and when: what histories do not pin down."""

from __future__ import annotations

import math
from random import Random

import pytest

from efo.errors import SilenceError
from efo.model import MAX_HASH_KEY, HashKeyRange, Shard
from efo.producer.buffer import Buffer, PutRequest
from efo.producer.delivery import Delivery
from efo.producer.entry import AcceptedRecord, Unseen
from efo.producer.settings import ProducerSettings
from efo.producer.shard_map import ShardMap

ONE_SHARD = ShardMap([Shard("shardId-0", HashKeyRange("0", str(MAX_HASH_KEY)), "1")])

HALF = 2**127
TWO_SHARDS = ShardMap(
    [
        Shard("shardId-0", HashKeyRange("0", str(HALF - 1)), "1"),
        Shard("shardId-1", HashKeyRange(str(HALF), str(MAX_HASH_KEY)), "1"),
    ]
)


def buffer(**settings) -> Buffer:
    return Buffer(ProducerSettings(**settings), ONE_SHARD, Random(1))


def put(to: Buffer, at: float, size: int = 1) -> bool:
    return to.put(Delivery(at, Unseen()), "key", b"key", b"x" * size)


@pytest.mark.parametrize("aggregate", [False, True])
def test_what_lingers_is_due_at_the_time_that_was_returned_whatever_floats_round_to(aggregate):
    for tenths in range(200):
        held = buffer(aggregate=aggregate)
        at = tenths / 10
        put(held, at)
        wake = held.poll(at)
        assert isinstance(wake, float)
        assert isinstance(held.poll(wake), PutRequest)


def test_a_time_that_was_returned_for_an_expiry_expires_what_is_not_in_flight():
    for tenths in range(1, 200):
        held = buffer(delivery_timeout_seconds=tenths / 10 + 0.2, ordered=True)
        put(held, 0.0)
        assert isinstance(held.poll(0.1), PutRequest)
        put(held, tenths / 10)
        wake = held.poll(tenths / 10)  # a request is in flight, so nothing but the expiry can come
        assert isinstance(wake, float)
        assert len(held.expire(wake)) == 1
        assert held.records == 1


def test_what_is_older_than_the_first_in_its_queue_expires_on_time():
    """Of two requests, the older one fails first: what the other one had is queued before it."""
    held = buffer(max_request_records=1)
    put(held, 0.0)
    older = held.poll(0.0 + 1)
    put(held, 5.0)
    newer = held.poll(5.0 + 1)
    assert isinstance(older, PutRequest)
    assert isinstance(newer, PutRequest)
    held.settle(older, [SilenceError("")], 6.0)
    held.settle(newer, [SilenceError("")], 6.0)
    assert held.expires_from() == 120.0
    assert [entry.put_at for entry in held.expire(120.0)] == [0.0]
    assert held.expires_from() == 125.0
    assert [entry.put_at for entry in held.expire(125.0)] == [5.0]
    assert held.expires_from() == math.inf


def test_an_aggregate_that_grows_expires():
    held = buffer(aggregate=True)
    put(held, 0.0)
    put(held, 1.0)
    assert held.expires_from() == 120.0
    [entry] = held.expire(120.0)
    assert entry.records == 2
    assert held.records == 0


def test_a_full_request_asks_for_a_poll():
    held = buffer(max_request_records=3)
    assert [put(held, 0.0) for _ in range(4)] == [True, False, True, True]
    held.poll(0.0)
    assert not put(held, 0.0)


def test_so_does_one_that_is_full_by_its_bytes():
    held = buffer(max_request_bytes=100)
    assert [put(held, 0.0, 50), put(held, 0.0, 20), put(held, 0.0, 50)] == [True, False, True]


def test_a_record_for_another_shard_lingers_no_longer_because_one_is_blocked():
    held = Buffer(ProducerSettings(ordered=True), TWO_SHARDS, Random(1))
    held.put(Delivery(0.0, Unseen()), "a", b"a", b"x", "0")
    assert isinstance(held.poll(1.0), PutRequest)
    held.put(Delivery(1.0, Unseen()), "a", b"a", b"x", "0")
    assert held.poll(1.0) == 120 + 1.0  # until the response comes
    assert held.put(Delivery(2.0, Unseen()), "b", b"b", b"x", str(HALF))
    assert held.poll(2.0) == pytest.approx(2.1)


@pytest.mark.parametrize("give_up", [lambda held: held.expire(200.0), lambda held: held.fail_all([], 1.0)])
def test_an_aggregate_that_arrived_in_another_shard_may_be_stored_when_it_is_given_up(give_up):
    held = buffer(aggregate=True)
    put(held, 0.0)
    put(held, 0.0)
    request = held.poll(1.0)
    assert isinstance(request, PutRequest)
    held.settle(request, [AcceptedRecord("shardId-7", "1")], 1.0)
    [given_up] = give_up(held)
    assert given_up.maybe_stored
