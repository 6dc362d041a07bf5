from __future__ import annotations

import pytest
import trio
from trio.testing import check_half_closeable_stream, wait_all_tasks_blocked

from efo.testing.memory_stream import memory_connection


async def test_it_passes_trios_checks_for_half_closeable_streams():
    async def make():
        return memory_connection(1 << 20)

    async def make_clogged():
        ours, theirs = memory_connection(1)
        await ours.send_all(b"x")
        await theirs.send_all(b"x")
        return ours, theirs

    await check_half_closeable_stream(make, make_clogged)


async def test_a_direction_buffers_at_most_its_capacity(nursery):
    ours, theirs = memory_connection(1000)
    nursery.start_soon(ours.send_all, b"x" * 5000)
    await wait_all_tasks_blocked()
    assert len(await theirs.receive_some()) == 1000
    await wait_all_tasks_blocked()
    assert len(await theirs.receive_some(10)) == 10


async def test_a_cut_fails_both_ends_and_discards_data_in_transit(nursery):
    ours, theirs = memory_connection(1000)
    await ours.send_all(b"lost")
    ours.cut()
    for end in (ours, theirs):
        with pytest.raises(trio.BrokenResourceError):
            await end.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await end.send_all(b"x")


async def test_a_cut_wakes_a_waiting_receiver(nursery):
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
