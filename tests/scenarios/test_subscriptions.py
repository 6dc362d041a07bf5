"""One shard's subscription at its ends: see docs/scenarios.md."""

import pytest
import trio

from efo.errors import TransportError
from efo.events import SubscribeAttempted
from efo.model import Position, Record
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.subscription import Cancel, Closed, Received, Subscribe, Subscription
from proofs.benchmarks.subscribed import STREAM, open_subscribed

SHARD = "shardId-000000000000"


def event(number):
    return SubscribeToShardEvent((Record(str(number), 0.0, b"", "k"),), 0, str(number))


@pytest.mark.scenario("G51")
@pytest.mark.parametrize("is_silence_first", [True, False])
def test_two_errors_of_one_attempt_make_one_new_attempt(is_silence_first):
    """Its silence is noticed when its connection breaks, in either order."""
    machine = Subscription(Position.trim_horizon(), lambda: 0.5)
    assert machine.tick(0.0) == [Subscribe(1, Position.trim_horizon(), renewal=False)]
    machine.handle(Received(1, event(10)), 0.0)
    machine.waiting(0.0)
    broken = Closed(1, TransportError("broke"))
    if is_silence_first:
        assert machine.tick(35.0) == [Cancel(1, "silence")]
        assert machine.handle(broken, 35.0) == []
    else:
        assert machine.handle(broken, 35.0) == []
    made = []
    for at in (35.0, 35.0, 36.0, 40.0, 60.0):
        made += machine.tick(at)
        machine.handle(broken, at)
    assert made == [Subscribe(2, Position.after("10"), renewal=False)]


@pytest.mark.scenario("G59")
async def test_a_subscription_that_is_closed_before_it_was_used_makes_no_call(autojump_clock):
    async with open_subscribed(1, 20.0) as one:
        subscription = one.make(0, SHARD)
        subscription.close("seek")
        subscription.close("seek")
        await trio.sleep(60)
        assert one.fake.subscriptions(STREAM, SHARD).live == 0
        assert not one.pool._connections
        assert subscription.position == Position.trim_horizon()


@pytest.mark.scenario("G59")
async def test_a_subscription_that_is_closed_twice_is_closed_once(autojump_clock):
    told = []
    async with open_subscribed(1, 20.0) as one:
        one.put(0)
        subscription = one.make(0, SHARD)
        subscription._observer = told.append
        await subscription.receive()
        position = subscription.position
        assert one.fake.subscriptions(STREAM, SHARD).live == 1
        for _ in range(2):
            subscription.close("seek")
            await trio.sleep(10)
        assert one.fake.subscriptions(STREAM, SHARD).live == 0
        assert subscription.position == position
        assert [type(e) for e in told].count(SubscribeAttempted) == 1
        assert [e.reason for e in told if hasattr(e, "reason")] == ["seek"]
        [connection] = one.pool._connections
        assert connection.open_streams == 0
