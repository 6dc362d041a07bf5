"""The alarm: it rings at its deadline or earlier, and costs nothing while the deadline moves later."""

import pytest
import trio

from efo.kinesis.alarm import Alarm


@pytest.fixture
def rung():
    return []


@pytest.fixture
async def alarm(nursery, rung):
    alarm = Alarm(lambda: rung.append(trio.current_time()))
    nursery.start_soon(alarm.run)
    return alarm


async def test_it_rings_once_at_the_deadline(alarm, rung, autojump_clock):
    alarm.set(10.0)
    await trio.sleep(100)
    assert rung == [10.0]


async def test_an_earlier_deadline_replaces_a_later_one(alarm, rung, autojump_clock):
    alarm.set(10.0)
    await trio.sleep(1)
    alarm.set(5.0)
    await trio.sleep(100)
    assert rung == [5.0]


async def test_a_later_deadline_is_not_set_so_that_it_rings_early(alarm, rung, autojump_clock):
    alarm.set(10.0)
    alarm.set(20.0)
    await trio.sleep(15)
    alarm.set(20.0)
    await trio.sleep(100)
    assert rung == [10.0, 20.0]


async def test_a_deadline_in_the_past_rings_at_once(alarm, rung, autojump_clock):
    await trio.sleep(3)
    alarm.set(1.0)
    await trio.sleep(100)
    assert rung == [3.0]


async def test_a_closed_alarm_does_not_ring(alarm, rung, autojump_clock):
    alarm.set(10.0)
    alarm.close()
    await trio.sleep(100)
    assert rung == []


async def test_an_alarm_that_is_closed_before_it_runs_ends_at_once(autojump_clock):
    alarm = Alarm(lambda: None)
    alarm.close()
    await alarm.run()
    assert trio.current_time() == 0.0
