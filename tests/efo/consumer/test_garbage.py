"""A consumer leaves no cyclic garbage: its buffers would stay until a garbage collection, which may be hours away."""

from __future__ import annotations

import gc

import pytest
import trio

from efo.testing.faults.script import PASSING, When
from tests.efo.consumer.handlers.test_handler import STREAM, NumberHandler, make_handler, open_environment

EXCEPT = {"Http2", "_UnboundedStreams"}
"""h2's connection has a table of its own methods, so it refers to itself. It has no buffers by then."""


def collect_garbage() -> set[str]:
    """Collect, and return the types of efo's objects that were garbage."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return {type(held).__qualname__ for held in gc.garbage if type(held).__module__.startswith("efo.")} - EXCEPT
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize("faults", [(), PASSING], ids=["no faults", "faults"])
async def test_a_consumer_leaves_no_cyclic_garbage(faults, autojump_clock):
    """Subscriptions end every five minutes, leases are renewed, shards end, and with faults connections break."""
    async with open_environment(shards=4) as env:
        for fault in faults:
            env.fake.faults.add(fault, When(rate=1 / 600))
        async with env.consuming(make_handler(env, handler=NumberHandler())):
            await trio.sleep(20)
            gc.collect()
            gc.freeze()  # what other tests have left is not looked at
            gc.disable()
            try:
                for number in range(1000):
                    env.put(number)
                    if number % 300 == 0:
                        env.fake.split(STREAM, env.fake.open_shards(STREAM)[0])
                    await trio.sleep(1)
                assert not collect_garbage()
            finally:
                gc.enable()
                gc.unfreeze()
        assert bool(env.fake.faults.fired) == bool(faults)
