"""Waiting on asyncio for what runs in the trio thread."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from efo.adapters.engine import Run

T = TypeVar("T")


async def outcome_of(run: Run[T]) -> T:
    """Return what a function in the trio thread returns, or raise. A cancellation cancels it, and waits for its end."""
    ended = asyncio.wrap_future(run.ended)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        run.cancel()
        await finish(ended)
        raise


async def finish(future: asyncio.Future[Any]) -> None:
    """Wait for a future to its end, whatever cancels this task meanwhile; raise nothing."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    future.exception()  # the cancellation counts
