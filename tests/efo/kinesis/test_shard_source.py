"""What every source of a shard's events must do: subscription, polling, and either in turn."""

import pytest
import trio
import trio.testing

from efo.kinesis.shard_source import ShardEnd
from efo.model import Position
from tests.efo.kinesis.sources import SHARD, STREAM, open_sources, read
from tests.efo.kinesis.test_cancellation import cancelled_at

KINDS = ("subscribe", "poll", "auto", "denied")
START = Position.trim_horizon()


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


async def test_records_are_received_in_order_and_then_the_end_with_its_children(kind, autojump_clock):
    async with open_sources(event_records=3) as sources:
        sources.put(*range(10))
        source = sources.make(kind, START)
        assert await read(source, 10) == list(range(10))
        sources.put(10, 11)
        children = sources.fake.split(STREAM, SHARD)
        assert await read(source, 2) == [10, 11]
        while not isinstance(event := await source.receive(), ShardEnd):
            assert event.records == ()
        assert tuple(child.shard_id for child in event.children) == children


async def test_an_idle_shard_has_events_that_say_that_it_is_current(kind, autojump_clock):
    async with open_sources() as sources:
        sources.put(1)
        source = sources.make(kind, START)
        await read(source, 1)
        for _ in range(10):
            with trio.fail_after(10):  # QUIET_AFTER: later it would not be known to be current
                event = await source.receive()
            assert (event.records, event.millis_behind_latest) == ((), 0)
            assert event.continuation_sequence_number is not None
        assert source.state == "live"


async def test_an_interrupt_returns_none_and_loses_nothing(kind, autojump_clock):
    async with open_sources(event_records=1) as sources:
        source, numbers = sources.make(kind, START), []
        async with trio.open_nursery() as nursery:

            async def interrupt():
                while True:
                    await trio.sleep(0.07)
                    source.interrupt()

            nursery.start_soon(interrupt)
            interrupts = 0
            nursery.start_soon(sources.put_for, 20, 0.5)
            while len(numbers) < 20:
                while (event := await source.receive()) is None or not event.records:
                    interrupts += event is None
                numbers += [int(record.data) for record in event.records]
            nursery.cancel_scope.cancel()
        assert numbers == list(range(20))
        assert interrupts > 10


async def test_a_source_that_is_cancelled_at_each_await_loses_and_repeats_nothing(kind, autojump_clock):
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        async with open_sources(event_records=3) as sources:
            sources.put(*range(8))
            source, numbers = sources.make(kind, START), []

            async def receive(source=source, numbers=numbers):
                while len(numbers) < 8:
                    event = await source.receive()
                    numbers += [int(record.data) for record in event.records]

            was_cancelled = await cancelled_at(n, receive)
            await receive()
            assert numbers == list(range(8))
    assert n > 1


@pytest.mark.parametrize("second", KINDS)
async def test_another_source_continues_at_the_position_of_the_first(kind, second, autojump_clock):
    async with open_sources(event_records=3) as sources:
        sources.put(*range(10))
        first = sources.make(kind, START)
        numbers = await read(first, 4)
        first.close("shutdown")
        sources.fake.faults.clear()
        await trio.sleep(6)  # the service rejects a second subscription within 5 s
        then = sources.make(second, first.position)
        numbers += await read(then, 10 - len(numbers))
        assert numbers == list(range(10))
        sources.put(10)
        assert await read(then, 1) == [10]


async def test_a_source_that_has_not_received_a_record_keeps_its_position(kind, autojump_clock):
    async with open_sources() as sources:
        position = Position.at_timestamp(sources.fake.clock())
        source = sources.make(kind, position)
        assert source.position == position
        with trio.move_on_after(0.01):
            await source.receive()
        source.close("shutdown")
        sources.put(1)
        await trio.sleep(6)
        assert await read(sources.make("poll", source.position), 1) == [1]


async def test_a_closed_source_makes_no_more_calls(kind, autojump_clock):
    async with open_sources() as sources:
        source = sources.make(kind, START)
        await read(source, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, source, 1)
            await trio.sleep(3)
            nursery.cancel_scope.cancel()
        source.close("shutdown")
        await trio.testing.wait_all_tasks_blocked()
        seen = len(sources.seen)
        await trio.sleep(600)
        assert len(sources.seen) == seen
