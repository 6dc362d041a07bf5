from __future__ import annotations

import pytest
import trio
from trio.testing import check_half_closeable_stream, wait_all_tasks_blocked

from efo.testing.memory_stream import memory_connection


async def test_it_is_a_stream_as_trio_defines_it():
    async def make():
        return memory_connection(1 << 20)

    async def make_clogged():
        ours, theirs = memory_connection(1)
        await ours.send_all(b"x")
        await theirs.send_all(b"x")
        return ours, theirs

    await check_half_closeable_stream(make, make_clogged)


async def test_a_direction_holds_no_more_than_its_capacity(nursery):
    ours, theirs = memory_connection(1000)
    nursery.start_soon(ours.send_all, b"x" * 5000)
    await wait_all_tasks_blocked()
    assert len(await theirs.receive_some()) == 1000
    await wait_all_tasks_blocked()
    assert len(await theirs.receive_some(10)) == 10


async def test_a_cut_fails_both_ends_and_loses_what_was_on_its_way(nursery):
    ours, theirs = memory_connection(1000)
    await ours.send_all(b"lost")
    ours.cut()
    for end in (ours, theirs):
        with pytest.raises(trio.BrokenResourceError):
            await end.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await end.send_all(b"x")


async def test_a_cut_wakes_who_waits(nursery):
    ours, theirs = memory_connection(1000)
    woken = trio.Event()

    async def wait():
        with pytest.raises(trio.BrokenResourceError):
            await theirs.receive_some()
        woken.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    ours.cut()
    await woken.wait()
