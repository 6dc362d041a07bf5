"""The block in which an engine is open, on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from efo.adapters.engine import Engine
from efo.aio.outcome import finish


@asynccontextmanager
async def open_engine(engine: Engine[Any]) -> AsyncIterator[None]:
    """Start an engine and wait until it is open; close it at the end. An exception of the block cancels it."""
    engine.start()
    opened, closed = asyncio.wrap_future(engine.opened), asyncio.wrap_future(engine.closed)
    try:
        await asyncio.shield(opened)
        yield
    except BaseException:
        engine.cancel()
        await finish(closed)  # the block's own exception counts
        if opened.done():
            opened.exception()
        raise
    engine.close()
    try:
        await asyncio.shield(closed)
    except asyncio.CancelledError:
        engine.cancel()
        await finish(closed)
        raise
