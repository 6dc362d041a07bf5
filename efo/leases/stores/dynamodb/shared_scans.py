"""Scans of a lease table that the stores of several streams share: one scan reads the leases of all streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import trio

from efo.leases.stores.dynamodb.items import STREAM, Item

GATHERING: Final = 0.2
"""Seconds that a scan waits for other streams that need one. Then all of them scan at the same time from then on."""


class SharedScans:
    """`scan`: reads all items of the table. Every caller gets items that were read after its call (rule R10)."""

    def __init__(self, scan: Callable[[], Awaitable[Sequence[Item]]]) -> None:
        self._scan = scan
        self._turn = trio.Lock()
        self._started = 0  # how many scans have started
        self._items: Mapping[str, Sequence[Item]] = {}

    async def items(self, stream_id: str) -> Sequence[Item]:
        """Return the items of one stream, and those of none. Raises what `scan` raises; then the next caller scans."""
        wanted = self._started + 1
        await trio.sleep(GATHERING)
        async with self._turn:
            if self._started < wanted:
                self._started += 1
                try:
                    self._items = _by_stream(await self._scan())
                except BaseException:
                    self._started -= 1  # those that wait have read nothing
                    raise
            return [*self._items.get(stream_id, ()), *self._items.get("", ())]


def _by_stream(items: Sequence[Item]) -> Mapping[str, Sequence[Item]]:
    by_stream: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_stream[item.get(STREAM, {}).get("S", "")].append(item)
    return by_stream
