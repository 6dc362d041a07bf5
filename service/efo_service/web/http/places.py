"""Which connections there is room for. When there is none, one gives way, so that a probe always gets a place. Pure.

The client with the most connections gives way: so nobody needs a limit of its own, a proxy may have many viewers, and a
client that fills the port takes places only from itself. Of its connections, one that waits for a request goes first,
and of these the oldest: a probe that has just connected stays, even where it shares its address with an attacker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from efo_service.web.security.attempts import network_of

MAX_CONNECTIONS: Final = 256


class ConnectionSlot:
    """The place of one connection. `is_idle`: it waits for a request. `close`: ends it at once."""

    def __init__(self, address: str | None, close: Callable[[], None]) -> None:
        self.network = network_of(address)
        self.is_idle = True
        self.close = close


class Places:
    """The places of all connections."""

    def __init__(self, count: int = MAX_CONNECTIONS) -> None:
        self._count = count
        self._taken: dict[ConnectionSlot, None] = {}  # the oldest first

    def __len__(self) -> int:
        """Return how many are taken."""
        return len(self._taken)

    def take(self, place: ConnectionSlot) -> int:
        """Take a place. If none is free, another connection is closed. Return how many were closed."""
        closed = int(len(self._taken) >= self._count)
        if closed:
            least = self._least()
            self.leave(least)
            least.close()
        self._taken[place] = None
        return closed

    def leave(self, place: ConnectionSlot) -> None:
        """Make room, if this one has not been closed before."""
        self._taken.pop(place, None)

    def _least(self) -> ConnectionSlot:
        counts = Counter(place.network for place in self._taken)
        most = max(counts.values())
        candidates = [place for place in self._taken if counts[place.network] == most]
        return next((place for place in candidates if place.is_idle), candidates[0])
