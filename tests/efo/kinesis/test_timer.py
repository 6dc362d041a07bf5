"""The timer: it rings at its deadline or earlier, and costs nothing while the deadline moves later."""

import pytest
import trio

from efo.kinesis.timer import Timer


@pytest.fixture
def rung():
    return []


@pytest.fixture
async def timer(nursery, rung):
    timer = Timer(lambda: rung.append(trio.current_time()))
    nursery.start_soon(timer.run)
    return timer


async def test_it_rings_once_at_the_deadline(timer, rung, autojump_clock):
    timer.set(10.0)
    await trio.sleep(100)
    assert rung == [10.0]


async def test_an_earlier_deadline_replaces_a_later_one(timer, rung, autojump_clock):
    timer.set(10.0)
    await trio.sleep(1)
    timer.set(5.0)
    await trio.sleep(100)
    assert rung == [5.0]


async def test_a_later_deadline_is_not_set_so_that_it_rings_early(timer, rung, autojump_clock):
    timer.set(10.0)
    timer.set(20.0)
    await trio.sleep(15)
    timer.set(20.0)
    await trio.sleep(100)
    assert rung == [10.0, 20.0]


async def test_a_deadline_in_the_past_rings_at_once(timer, rung, autojump_clock):
    await trio.sleep(3)
    timer.set(1.0)
    await trio.sleep(100)
    assert rung == [3.0]


async def test_a_closed_timer_does_not_ring(timer, rung, autojump_clock):
    timer.set(10.0)
    timer.close()
    await trio.sleep(100)
    assert rung == []


async def test_an_timer_that_is_closed_before_it_runs_ends_at_once(autojump_clock):
    timer = Timer(lambda: None)
    timer.close()
    await timer.run()
    assert trio.current_time() == 0.0
