"""A task that outlives the cancellation of its block: whenever the cancellation comes, the block ends."""

import pytest
import trio

from efo.shielded import running
from tests.efo.kinesis.test_cancellation import cancelled_at


async def serve(task_status):
    await trio.lowlevel.checkpoint()
    task_status.started()
    await trio.sleep_forever()


async def test_a_block_that_is_cancelled_at_each_await_ends(autojump_clock):
    begun = 0

    async def use():
        nonlocal begun
        async with running(serve):
            begun += 1
            for _ in range(3):
                await trio.sleep(1.0)

    n = 1
    with trio.fail_after(60.0):
        while await cancelled_at(n, use):
            n += 1
    assert 1 < begun < n  # it was cancelled before the block, and in it


async def test_a_block_that_is_cancelled_before_it_begins_ends(autojump_clock):
    with trio.fail_after(60.0), trio.CancelScope() as scope:
        scope.cancel()
        async with running(serve):
            raise AssertionError("it does not begin")
    assert scope.cancelled_caught


async def test_clean_up_that_is_shielded_finds_the_task_running(autojump_clock):
    asked, answered = trio.Event(), trio.Event()

    async def answer(task_status):
        task_status.started()
        await asked.wait()
        answered.set()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with running(answer):
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    asked.set()
                    await answered.wait()
    assert scope.cancelled_caught


async def test_a_task_that_fails_at_its_start_is_raised():
    async def fail(task_status):
        raise OSError("no")

    with pytest.raises(BaseExceptionGroup):
        async with running(fail):
            raise AssertionError("it does not begin")
