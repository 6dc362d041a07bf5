"""A resource that several checks use is opened once, outlives the check that opened it, and is closed at the end."""

from contextlib import asynccontextmanager

import pytest
import trio

from efo_service.operations.doctor.running import SharedResource


class Opening:
    """Opens a resource after a second. The first `failures` times, it fails or hangs instead."""

    def __init__(self, failures=()):
        self.events = []
        self._failures = list(failures)

    @asynccontextmanager
    async def __call__(self):
        await trio.sleep(self._failures.pop(0) if self._failures else 1)
        self.events.append("opened")
        try:
            yield "resource"
        finally:
            self.events.append("closed")


async def test_checks_share_one_resource_that_is_closed_with_the_nursery(autojump_clock):
    opening = Opening()
    async with trio.open_nursery() as holding:
        shared = SharedResource(holding, opening)
        found = []

        async def use():
            found.append(await shared.get())

        async with trio.open_nursery() as checks:
            for _ in range(3):
                checks.start_soon(use)
        assert found == ["resource"] * 3
        assert opening.events == ["opened"]
        holding.cancel_scope.cancel()
    assert opening.events == ["opened", "closed"]


async def test_after_an_opening_that_took_too_long_the_next_check_tries_again(autojump_clock):
    opening = Opening([float("inf")])
    async with trio.open_nursery() as holding:
        shared = SharedResource(holding, opening)
        with trio.move_on_after(5) as scope:
            await shared.get()
        assert scope.cancelled_caught
        assert await shared.get() == "resource"
        holding.cancel_scope.cancel()


async def test_an_opening_that_fails_raises_its_error_and_leaves_the_nursery_alone(autojump_clock):
    @asynccontextmanager
    async def fail():
        raise LookupError("no region")
        yield

    async with trio.open_nursery() as holding:
        with pytest.raises(LookupError, match="no region"):
            await SharedResource(holding, fail).get()
        holding.cancel_scope.cancel()
