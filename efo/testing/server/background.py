"""A nursery for what serves while a body runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled when the body ends.

    An exception of the body comes out as it is, not wrapped in a group: the body is a user's test, and what
    happens behind it is none of its business unless it fails by itself.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as error:  # noqa: BLE001 - kept, and raised below
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
