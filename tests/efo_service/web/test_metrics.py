from __future__ import annotations

import pytest
import trio

from efo_service.web.metrics import SharedComputation


async def test_all_who_ask_at_the_same_time_share_what_began_after_they_asked(nursery, autojump_clock):
    began = []

    async def compute() -> float:
        began.append(trio.current_time())
        await trio.sleep(0.1)
        return began[-1]

    shared, seen = SharedComputation(compute), []

    async def ask(after: float) -> None:
        await trio.sleep(after)
        asked = trio.current_time()
        found = await shared.get()
        assert found >= asked
        seen.append(found)

    async with trio.open_nursery() as asking:
        for number in range(100):
            asking.start_soon(ask, number / 1000)
    assert len(seen) == 100
    assert len(began) == 2  # the first for whoever came first, the second for all others
    assert began[1] - began[0] == pytest.approx(0.5)  # a fifth of the time is spent on it


async def test_a_failure_is_that_callers_alone(autojump_clock):
    calls = []

    async def compute() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("the first time")
        return len(calls)

    shared = SharedComputation(compute)
    with pytest.raises(ValueError, match="the first time"):
        await shared.get()
    assert await shared.get() == 2
    assert await shared.get() == 3  # what was computed before is not given again
