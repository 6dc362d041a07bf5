"""How a shard subscription fails and is closed: see docs/guarantees.md."""

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
@pytest.mark.parametrize("is_silence_first", [True, False], ids=["silence first", "error first"])
def test_two_errors_of_one_attempt_make_one_new_attempt(is_silence_first):
    """The silence timeout expires at the moment the connection breaks. Either comes first."""
    machine = Subscription(Position.trim_horizon(), lambda: 0.5)
    assert machine.tick(0.0) == [Subscribe(1, Position.trim_horizon(), renewal=False)]
    machine.handle(Received(1, event(10)), 0.0)
    machine.wait_started(0.0)
    broken = Closed(1, TransportError("broke"))
    if is_silence_first:
        assert machine.tick(35.0) == [Cancel(1, "silence")]
        assert machine.handle(broken, 35.0) == []
    else:
        assert machine.handle(broken, 35.0) == []
    subscribes = []
    for at in (35.0, 35.0, 36.0, 40.0, 60.0):
        subscribes += machine.tick(at)
        machine.handle(broken, at)
    assert subscribes == [Subscribe(2, Position.after("10"), renewal=False)]


@pytest.mark.scenario("G59")
async def test_closing_an_unused_subscription_makes_no_call(autojump_clock):
    async with open_subscribed(1, 20.0) as subscribed:
        subscription = subscribed.make(0, SHARD)
        subscription.close("seek")
        subscription.close("seek")
        await trio.sleep(60)
        assert subscribed.fake.subscriptions(STREAM, SHARD).live == 0
        assert not subscribed.pool._connections
        assert subscription.position == Position.trim_horizon()


@pytest.mark.scenario("G59")
async def test_closing_a_subscription_twice_ends_it_once(autojump_clock):
    events = []
    async with open_subscribed(1, 20.0) as subscribed:
        subscribed.put(0)
        subscription = subscribed.make(0, SHARD)
        subscription._observer = events.append
        await subscription.receive()
        position = subscription.position
        assert subscribed.fake.subscriptions(STREAM, SHARD).live == 1
        for _ in range(2):
            subscription.close("seek")
            await trio.sleep(10)
        assert subscribed.fake.subscriptions(STREAM, SHARD).live == 0
        assert subscription.position == position
        assert [type(e) for e in events].count(SubscribeAttempted) == 1
        assert [e.reason for e in events if hasattr(e, "reason")] == ["seek"]
        [connection] = subscribed.pool._connections
        assert connection.open_streams == 0
