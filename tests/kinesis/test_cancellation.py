"""Cancelled at any await whatever (R14): a call and a reader, at their first await, their second, and so on to the end.

After each time the connection is as good as new: no stream is left, no credit of its window is lost, no task remains.
"""

import trio
import trio.lowlevel

from benchmarks.subscribed import STREAM, open_subscribed
from efo.kinesis.http2 import CONNECTION_WINDOW
from efo.model import Position

SHARD = "shardId-000000000000"


class CancelAtAwait(trio.abc.Instrument):
    """Cancels a scope as soon as its task has yielded for the n-th time."""

    def __init__(self, task, scope, n):
        self._task = task
        self._scope = scope
        self._left = n

    def after_task_step(self, task):
        if task is self._task:
            self._left -= 1
            if not self._left:
                self._scope.cancel()


async def cancelled_at(n, operation):
    """Run the operation, cancelled at its n-th await; tell whether it came to that."""
    with trio.CancelScope() as scope:
        instrument = CancelAtAwait(trio.lowlevel.current_task(), scope, n)
        trio.lowlevel.add_instrument(instrument)
        try:
            await operation()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught


def check_unharmed(pool, tasks):
    [connection] = pool._connections
    assert connection.open_streams == 0
    assert connection.is_usable
    # Nothing is forgotten: what is not credited yet is counted, by h2 where it came late for a stream that was reset.
    late = connection._h2._inbound_flow_control_window_manager._bytes_processed
    assert connection._h2.inbound_flow_control_window + connection._received + late == CONNECTION_WINDOW
    # Those of the pool's nursery: the connection's, no more.
    assert trio.lowlevel.current_statistics().tasks_living <= tasks


async def test_a_call_at_each_of_its_awaits(autojump_clock):
    async with open_subscribed(1, 20.0) as one:
        for _ in range(100):
            one.put(0, b"x" * 2000)
        read = []

        async def call():
            read.clear()
            async with await one.caller.call(SHARD, Position.trim_horizon()) as events:
                while len(read) < 100:
                    event, _ = await events.receive()
                    read.extend(event.records)

        await call()
        await trio.sleep(6)
        tasks = trio.lowlevel.current_statistics().tasks_living
        n = 1
        while await cancelled_at(n, call):
            await trio.sleep(6)  # the service's interval between two calls
            check_unharmed(one.pool, tasks)
            n += 1
        assert n > 3
        assert len(read) == 100


async def test_a_call_that_makes_the_connection_at_each_of_its_awaits(autojump_clock):
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        async with open_subscribed(1, 20.0) as one:

            async def call(one=one):
                async with await one.caller.call(SHARD, Position.trim_horizon()) as events:
                    await events.receive()

            was_cancelled = await cancelled_at(n, call)
            await trio.sleep(6)
            await call()
            await trio.sleep(6)
            assert len(one.pool._connections) == 1
            check_unharmed(one.pool, trio.lowlevel.current_statistics().tasks_living)
    assert n > 3


async def test_a_reader_at_each_of_its_awaits_loses_nothing(autojump_clock):
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        async with open_subscribed(1, 20.0, event_records=3) as one:
            for _ in range(20):
                one.put(0)
            subscription = one.make(0, SHARD)
            read = []

            async def receive(subscription=subscription, read=read):
                while len(read) < 20:
                    event = await subscription.receive()
                    read += [record.sequence_number for record in event.records]

            was_cancelled = await cancelled_at(n, receive)
            await receive()
            assert read == [record.sequence_number for record in one.fake.records(STREAM)[SHARD]]
    assert n > 3
