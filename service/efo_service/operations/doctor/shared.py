"""A resource that several checks use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class SharedResource(Generic[T]):
    """Opens a resource when a check first needs it, and keeps it open until the nursery is cancelled.

    A task of its own holds it, since the check that opens it ends before the others. If opening fails or takes too
    long for one check, the next one tries again.
    """

    def __init__(self, nursery: trio.Nursery, open_it: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._nursery = nursery
        self._open = open_it
        self._opening = trio.Lock()
        self._opened: list[T] = []

    async def get(self) -> T:
        """Return the resource. Raises what opening it raises."""
        async with self._opening:
            if not self._opened:
                self._opened.append(await self._nursery.start(self._hold))
            return self._opened[0]

    async def _hold(self, task_status: trio.TaskStatus[T]) -> None:
        async with self._open() as resource:
            task_status.started(resource)
            await trio.sleep_forever()
