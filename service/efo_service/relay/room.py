"""What the write buffers of all shards of a process hold together is bounded.

Each shard may hold two buffers, one that fills and one that is committed. While a sink is down, a thousand shards that
lag would fill all of them. So a shard that holds something waits before it reads more, once all together hold too much.
One that holds nothing goes on: no shard waits for the sink of another stream.
"""

from __future__ import annotations

from typing import Final

import trio

LIMIT: Final = 512 * 1024 * 1024
"""Bytes, as the sinks write them. At their limits, a shard brings 1 MiB a second, and a process some 300."""


class Room:
    """The room for write buffers. `limit`: bytes; each shard may exceed it by what it reads at once."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._held: dict[object, int] = {}
        self._total = 0
        self._freed = trio.lowlevel.ParkingLot()

    def hold(self, shard: object, size: int) -> None:
        """Note how many bytes a shard holds now; 0 when it ends."""
        before = self._held.pop(shard, 0)
        if size:
            self._held[shard] = size
        self._total += size - before
        if size < before:
            self._freed.unpark_all()

    @property
    def is_full(self) -> bool:
        """Whether all together hold as much as they may."""
        return self._total >= self._limit

    async def wait(self, shard: object) -> None:
        """Wait until there is room, or the shard holds nothing."""
        while self.is_full and shard in self._held:
            await self._freed.park()
