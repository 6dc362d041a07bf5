"""The subscribe limiter: tasks wait as pacing decides, and a cancelled task does not use up a call."""

import pytest
import trio
import trio.testing

from efo.kinesis.pacing import SubscribePacer


@pytest.fixture
async def start(nursery):
    async def start(budget=1000.0):
        limiter = SubscribePacer(budget)
        await nursery.start(limiter.run)
        return limiter

    return start


async def test_the_first_call_of_a_shard_does_not_wait(start, autojump_clock):
    limiter = await start()
    assert await limiter.acquire("a", renewal=False) == 0.0


async def test_each_further_call_of_a_shard_waits_a_second(start, autojump_clock):
    limiter = await start()
    for expected in (0.0, 1.0, 1.0):
        assert await limiter.acquire("a", renewal=False) == pytest.approx(expected)


async def test_after_a_successful_call_the_next_one_waits_five_seconds(start, autojump_clock):
    limiter = await start()
    await limiter.acquire("a", renewal=False)
    await trio.sleep(0.5)
    limiter.succeeded("a")
    assert await limiter.acquire("a", renewal=True) == pytest.approx(5.0)


async def test_a_success_that_is_recorded_during_a_wait_extends_the_wait(start, nursery, autojump_clock):
    limiter = await start()
    await limiter.acquire("a", renewal=False)
    waited = []

    async def acquire_again():
        waited.append(await limiter.acquire("a", renewal=True))

    nursery.start_soon(acquire_again)
    await trio.sleep(0.5)
    limiter.succeeded("a")
    await trio.sleep(10)
    assert waited == [pytest.approx(5.5)]


async def test_many_shards_call_at_the_rate_of_the_budget(start, nursery, autojump_clock):
    limiter = await start(4.0)
    granted = []

    async def subscribe(n):
        await limiter.acquire(f"shard {n}", renewal=False)
        granted.append((n, trio.current_time()))

    async with trio.open_nursery() as shards:
        for n in range(12):
            shards.start_soon(subscribe, n)
            await trio.testing.wait_all_tasks_blocked()
    # In the order of their requests. The order within four simultaneous calls depends on the scheduling.
    assert sorted(granted) == [(n, pytest.approx(n // 4)) for n in range(12)]


async def test_first_subscriptions_go_before_renewals(start, autojump_clock):
    limiter = await start(1.0)
    await limiter.acquire("budget is spent", renewal=False)
    order = []

    async def subscribe(shard_id, *, renewal):
        await limiter.acquire(shard_id, renewal=renewal)
        order.append(shard_id)

    async with trio.open_nursery() as both:
        both.start_soon(lambda: subscribe("renewal", renewal=True))
        await trio.testing.wait_all_tasks_blocked()
        both.start_soon(lambda: subscribe("first", renewal=False))
    assert order == ["first", "renewal"]


async def test_a_cancelled_wait_does_not_delay_other_shards(start, nursery, autojump_clock):
    limiter = await start(1.0)
    await limiter.acquire("budget is spent", renewal=False)
    with trio.move_on_after(0.5) as scope:
        await limiter.acquire("cancelled", renewal=False)
    assert scope.cancelled_caught
    assert await limiter.acquire("other", renewal=False) == pytest.approx(0.5)


async def test_a_shard_may_wait_again_before_its_cancelled_task_has_ended(start, nursery, autojump_clock):
    limiter = await start(1.0)
    await limiter.acquire("budget is spent", renewal=False)
    old = trio.CancelScope()
    granted = []

    async def cancelled():
        with old:
            await limiter.acquire("a", renewal=False)

    async def acquire_again():
        await limiter.acquire("a", renewal=False)
        granted.append(trio.current_time())

    nursery.start_soon(cancelled)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(acquire_again)
    old.cancel()
    await trio.sleep(5)
    assert granted == [pytest.approx(1.0)]


async def test_a_cancellation_at_the_moment_of_the_grant_delays_the_shard_by_one_call_at_most(
    start, nursery, autojump_clock
):
    limiter = await start()
    with trio.CancelScope() as scope:
        scope.cancel()
        await limiter.acquire("a", renewal=False)
    await trio.testing.wait_all_tasks_blocked()
    # It depends on the scheduling whether the cancelled call counts.
    assert await limiter.acquire("a", renewal=False) in (0.0, 1.0)
