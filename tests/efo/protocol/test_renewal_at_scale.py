"""A thousand shards stay subscribed with a budget of 20 subscribes per second (R6, R7): the pure parts, for an hour.

The service is a model. It accepts a call after 50 ms and ends it after 300 s or when the next call takes over. It sends
an event at once and then at a fixed interval. Time is simulated, so an hour takes a second or two.
"""

import heapq
import itertools
import random

import pytest

from efo.errors import ResourceInUseError
from efo.model import Position, Record
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.pacing import TAKE_OVER_AFTER, Pacer
from efo.protocol.subscription import Cancel, Closed, Deliver, GoAwayReceived, Received, Subscribe, Subscription

ROUND_TRIP = 0.05
LIFE = 300.0
EVENT_INTERVAL = 30.0  # the 5 s of AWS would yield six times the events and the same result
HOUR = 3600.0


class Shard:
    """The state machine of one shard, its state in the service, and the observed results."""

    def __init__(self, rng):
        self.machine = Subscription(Position.trim_horizon(), rng.random)
        self.accepted = {}
        self.active = None
        self.unsubscribed_since = None
        self.longest_gap = 0.0
        self.last_record = 0
        self.renewal_ages = []
        self.ticking_at = None


class World:
    """An event queue, a pacer and shards. `run` simulates until a given time."""

    def __init__(self, shards, budget, seed=0):
        rng = random.Random(seed)
        self.now = 0.0
        self.pacer = Pacer(budget)
        self.requested = {}
        self.shards = {f"shard {n}": Shard(rng) for n in range(shards)}
        self.queue = []
        self.order = itertools.count()
        self.poll_at = None
        self.grants = []
        for shard_id in self.shards:
            self.watch(shard_id)

    def at(self, time, call, *arguments):
        heapq.heappush(self.queue, (time, next(self.order), call, arguments))

    def run(self, until):
        while self.queue and self.queue[0][0] <= until:
            self.now, _, call, arguments = heapq.heappop(self.queue)
            call(*arguments)
        self.now = until

    # --- the owner of the machines ---------------------------------------------------------------------------

    def watch(self, shard_id):
        """Schedule a tick at the machine's deadline, as its owner does."""
        shard = self.shards[shard_id]
        shard.machine.wait_started(self.now)
        deadline = max(shard.machine.deadline, self.now)
        if deadline < (shard.ticking_at or float("inf")):
            shard.ticking_at = deadline
            self.at(deadline, self.tick, shard_id, deadline)

    def tick(self, shard_id, planned):
        shard = self.shards[shard_id]
        if shard.ticking_at == planned:
            shard.ticking_at = None
            self.perform(shard_id, shard.machine.tick(self.now))

    def perform(self, shard_id, actions):
        shard = self.shards[shard_id]
        for action in actions:
            match action:
                case Subscribe(attempt=attempt, renewal=renewal):
                    self.requested[shard_id] = attempt
                    if renewal:
                        shard.renewal_ages.append(self.now - shard.accepted[shard.active])
                    self.pacer.request(shard_id, self.now, renewal=renewal)
                    self.poll()
                case Cancel(attempt=attempt):
                    assert attempt != shard.active
                case Deliver(event=event):
                    for record in event.records:
                        assert int(record.sequence_number) == shard.last_record + 1
                        shard.last_record += 1
        self.watch(shard_id)

    def poll(self, planned=None):
        if planned is not None and planned != self.poll_at:
            return
        granted, again_at = self.pacer.poll(self.now)
        self.poll_at = again_at
        for shard_id in granted:
            self.grants.append(self.now)
            self.at(self.now + ROUND_TRIP, self.accept, shard_id, self.requested.pop(shard_id))
        if again_at is not None:
            self.at(again_at, self.poll, again_at)

    # --- the service -------------------------------------------------------------------------------------------

    def accept(self, shard_id, attempt):
        shard = self.shards[shard_id]
        if shard.active is not None and self.now - shard.accepted[shard.active] < TAKE_OVER_AFTER:
            raise AssertionError("ResourceInUse: the call is within 5 s of the last success")
        self.pacer.succeeded(shard_id, self.now)
        shard.accepted[attempt] = self.now
        if shard.unsubscribed_since is not None:
            shard.longest_gap = max(shard.longest_gap, self.now - shard.unsubscribed_since)
            shard.unsubscribed_since = None
        replaced, shard.active = shard.active, attempt
        if replaced is not None:
            error = ResourceInUseError("ResourceInUseException", "another call took over")
            self.perform(shard_id, shard.machine.handle(Closed(replaced, error), self.now))
        self.at(self.now + ROUND_TRIP, self.send_event, shard_id, attempt)
        self.at(self.now + LIFE, self.expire, shard_id, attempt)

    def send_event(self, shard_id, attempt):
        """Send an event with all records after the last delivered one. Every second event has a new record."""
        shard = self.shards[shard_id]
        if shard.active != attempt:
            return
        tip = int(self.now / (2 * EVENT_INTERVAL))
        records = tuple(Record(str(n), 0.0, b"", "k") for n in range(shard.last_record + 1, tip + 1))
        event = SubscribeToShardEvent(records, 0, str(tip))
        self.perform(shard_id, shard.machine.handle(Received(attempt, event, 0, shard.accepted[attempt]), self.now))
        self.at(self.now + EVENT_INTERVAL, self.send_event, shard_id, attempt)

    def expire(self, shard_id, attempt):
        shard = self.shards[shard_id]
        if shard.active == attempt:
            shard.active, shard.unsubscribed_since = None, self.now
            self.perform(shard_id, shard.machine.handle(Closed(attempt), self.now))

    # --- results -------------------------------------------------------------------------------------------------

    @property
    def longest_gap(self):
        since = [shard.unsubscribed_since for shard in self.shards.values()]
        return max(
            *(shard.longest_gap for shard in self.shards.values()),
            *(self.now - at for at in since if at is not None),
            0.0,
        )

    def busiest_second(self):
        ends = enumerate(self.grants)
        return max(count for count in (n + 1 - first_within(self.grants, at) for n, at in ends))


def first_within(times, now):
    """Return the index of the first time that is less than a second before `now`."""
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if times[middle] <= now - 1.0 + 1e-9 else (low, middle)
    return low


def test_a_thousand_shards_stay_subscribed_for_an_hour_without_a_gap():
    world = World(1000, 20.0)
    world.run(HOUR)
    assert world.longest_gap == 0.0
    assert world.busiest_second() <= 20
    assert all(shard.active is not None for shard in world.shards.values())
    assert all(shard.last_record >= HOUR / (2 * EVENT_INTERVAL) - 2 for shard in world.shards.values())
    ages = [age for shard in world.shards.values() for age in shard.renewal_ages]
    # Each shard is renewed about 13 times, well before the service ends its call. The start has spread out.
    assert len(ages) / 1000 == pytest.approx(HOUR / 262.5, abs=1.0)
    assert max(ages) <= 285.0
    by_second = [0] * int(HOUR + 1)
    for at in world.grants:
        by_second[int(at)] += 1
    assert max(by_second[1800:]) <= 20


def test_many_new_shards_do_not_let_live_subscriptions_expire():
    """Another worker dies, and this worker takes its shards while its own renewals are due."""
    world = World(300, 5.0)
    world.run(200.0)
    rng = random.Random(1)
    for n in range(600):
        world.shards[f"new {n}"] = Shard(rng)
        world.watch(f"new {n}")
    world.run(HOUR)
    assert world.longest_gap == 0.0
    assert all(shard.active is not None for shard in world.shards.values())


def test_a_goaway_for_a_hundred_subscriptions_renews_them_without_a_gap():
    world = World(1000, 20.0)
    world.run(600.0)
    leaving = [shard_id for shard_id, shard in world.shards.items() if shard.active][:100]
    before = {shard_id: world.shards[shard_id].active for shard_id in leaving}
    for shard_id in leaving:
        machine = world.shards[shard_id].machine
        world.perform(shard_id, machine.handle(GoAwayReceived(before[shard_id]), world.now))
    world.run(620.0)
    assert world.longest_gap == 0.0
    assert all(world.shards[shard_id].active != attempt for shard_id, attempt in before.items())
