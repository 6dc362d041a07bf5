"""The feed of the page: one snapshot a second, taken while somebody looks, shared by all viewers.

A viewer asks for what is newer than what it has. One that is slow skips snapshots; nothing is kept for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final, NamedTuple

import msgspec
import trio

from efo_service.web.live.source import Snapshot, changes
from efo_service.web.security.access import network_of

MAX_VIEWERS: Final = 32
MAX_OF_ONE: Final = 16
"""Viewers of one address: another one always finds room. A proxy is one address."""
TakeSnapshot = Callable[[], Awaitable[Snapshot]]


class Update(NamedTuple):
    """What a viewer is sent. `is_whole`: a whole snapshot; otherwise what changed since the one before."""

    version: int
    is_whole: bool
    json: bytes


class Feed:
    """Shares snapshots. `take`: takes one; called once in `interval` seconds at most."""

    def __init__(self, take: TakeSnapshot, *, interval: float = 1.0, max_viewers: int = MAX_VIEWERS) -> None:
        self._take = take
        self._interval = interval
        self._max_viewers = max_viewers
        self._viewers: Counter[str] = Counter()
        self._lock = trio.Lock()
        self._version = 0
        self._taken_at = -inf
        self._snapshot: Snapshot | None = None
        self._whole: bytes | None = None  # encoded when a viewer needs it
        self._changes: bytes | None = None

    @property
    def viewers(self) -> int:
        """How many look now."""
        return self._viewers.total()

    @contextmanager
    def viewer(self, address: str | None = None) -> Iterator[bool]:
        """Count a viewer for the duration of the context. Yield whether there is room for it."""
        network = network_of(address)
        has_room = self.viewers < self._max_viewers and self._viewers[network] < MAX_OF_ONE
        self._viewers[network] += has_room
        try:
            yield has_room
        finally:
            self._viewers[network] -= has_room
            self._viewers += Counter()  # without those that are zero

    async def after(self, seen: int) -> Update:
        """Wait for a snapshot that is newer than `seen` (0: any), and not older than the interval."""
        async with self._lock:
            if self._version <= seen or trio.current_time() >= self._taken_at + self._interval:
                # The viewers share the lock: the first one waits and takes the snapshot for all of them.
                await trio.sleep_until(max(self._taken_at + self._interval, trio.current_time()))
                await self._refresh()
        if self._version == seen + 1 and self._changes is not None and seen > 0:
            return Update(self._version, is_whole=False, json=self._changes)
        if self._whole is None:
            self._whole = msgspec.json.encode(self._snapshot)
        return Update(self._version, is_whole=True, json=self._whole)

    async def _refresh(self) -> None:
        before, found = self._snapshot, await self._take()
        changed = None if before is None else changes(before, found)
        self._changes = None if changed is None else msgspec.json.encode(changed)
        self._snapshot, self._whole = found, None
        self._version += 1
        self._taken_at = trio.current_time()
