"""The gate: tasks wait as pacing decides, and a task that is cancelled leaves nothing behind."""

import pytest
import trio
import trio.testing

from efo.kinesis.subscribe_limiter import SubscribeLimiter


@pytest.fixture
async def start(nursery):
    async def start(budget=1000.0):
        gate = SubscribeLimiter(budget)
        await nursery.start(gate.run)
        return gate

    return start


async def test_a_shard_that_was_never_read_is_admitted_at_once(start, autojump_clock):
    gate = await start()
    assert await gate.acquire("a", renewal=False) == 0.0


async def test_a_second_call_waits_a_second(start, autojump_clock):
    gate = await start()
    for expected in (0.0, 1.0, 1.0):
        assert await gate.acquire("a", renewal=False) == pytest.approx(expected)


async def test_after_a_success_five(start, autojump_clock):
    gate = await start()
    await gate.acquire("a", renewal=False)
    await trio.sleep(0.5)
    gate.succeeded("a")
    assert await gate.acquire("a", renewal=True) == pytest.approx(5.0)


async def test_a_success_that_is_told_while_somebody_waits(start, nursery, autojump_clock):
    gate = await start()
    await gate.acquire("a", renewal=False)
    waited = []

    async def again():
        waited.append(await gate.acquire("a", renewal=True))

    nursery.start_soon(again)
    await trio.sleep(0.5)
    gate.succeeded("a")
    await trio.sleep(10)
    assert waited == [pytest.approx(5.5)]


async def test_the_budget_spreads_a_herd(start, nursery, autojump_clock):
    gate = await start(4.0)
    admitted = []

    async def subscribe(n):
        await gate.acquire(f"shard {n}", renewal=False)
        admitted.append((n, trio.current_time()))

    async with trio.open_nursery() as herd:
        for n in range(12):
            herd.start_soon(subscribe, n)
            await trio.testing.wait_all_tasks_blocked()
    # In the order in which they came; who of four admitted at once runs first is the scheduler's affair.
    assert sorted(admitted) == [(n, pytest.approx(n // 4)) for n in range(12)]


async def test_firsts_go_before_renewals(start, autojump_clock):
    gate = await start(1.0)
    await gate.acquire("budget is spent", renewal=False)
    order = []

    async def subscribe(shard_id, *, renewal):
        await gate.acquire(shard_id, renewal=renewal)
        order.append(shard_id)

    async with trio.open_nursery() as both:
        both.start_soon(lambda: subscribe("renewal", renewal=True))
        await trio.testing.wait_all_tasks_blocked()
        both.start_soon(lambda: subscribe("first", renewal=False))
    assert order == ["first", "renewal"]


async def test_who_is_cancelled_takes_nobodys_turn(start, nursery, autojump_clock):
    gate = await start(1.0)
    await gate.acquire("budget is spent", renewal=False)
    with trio.move_on_after(0.5) as scope:
        await gate.acquire("impatient", renewal=False)
    assert scope.cancelled_caught
    assert await gate.acquire("patient", renewal=False) == pytest.approx(0.5)


async def test_a_shard_may_be_asked_for_again_before_its_cancelled_task_has_noticed(start, nursery, autojump_clock):
    gate = await start(1.0)
    await gate.acquire("budget is spent", renewal=False)
    old = trio.CancelScope()
    admitted = []

    async def cancelled():
        with old:
            await gate.acquire("a", renewal=False)

    async def again():
        await gate.acquire("a", renewal=False)
        admitted.append(trio.current_time())

    nursery.start_soon(cancelled)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(again)
    old.cancel()
    await trio.sleep(5)
    assert admitted == [pytest.approx(1.0)]


async def test_being_cancelled_and_admitted_at_once_is_no_trouble(start, nursery, autojump_clock):
    gate = await start()
    with trio.CancelScope() as scope:
        scope.cancel()
        await gate.acquire("a", renewal=False)
    await trio.testing.wait_all_tasks_blocked()
    # Whether the turn was taken before the cancellation came is the scheduler's affair; it is not lost for long.
    assert await gate.acquire("a", renewal=False) in (0.0, 1.0)
