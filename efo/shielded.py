"""A task that a block needs until its end, also while the block's clean-up runs after a cancellation (rule R14)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def running(run: Callable[..., Awaitable[None]]) -> AsyncIterator[None]:
    """Run a task until the block is left. It has started (`task_status`) when the block begins.

    Clean-up in the block that is shielded can still use it when the block is cancelled. An exception of the block is
    raised in a group.
    """
    scope, started = trio.CancelScope(shield=True), trio.Event()

    async def within() -> None:
        # `start` is inside of the shield: one that is cancelled from outside would wait for ever for what is shielded.
        with scope:
            async with trio.open_nursery() as shielded:
                await shielded.start(run)
                started.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(within)
        try:
            await started.wait()
            yield
        finally:
            scope.cancel()
