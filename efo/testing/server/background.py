"""A nursery for background tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled when the body of the context ends.

    An exception of the body is raised as it is, not in an exception group: the body is usually a test, which does not
    expect a group.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as error:  # noqa: BLE001 - raised below
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
