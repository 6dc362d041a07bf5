"""Finds another worker that has the same id: it renews leases under our name that we do not hold. Pure."""

from __future__ import annotations

from typing import Final

from efo.model import Lease

RENEWALS: Final = 2
"""So many renewals of one lease are those of another worker: one may be a write of ours whose response was lost."""


class Namesakes:
    """The leases that have this worker's id and that it does not hold, and how many renewals of each it has seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}  # by shard id: the counter, and the renewals

    def renews(self, row: Lease) -> bool:
        """Return whether another worker renews this lease. `row`: as read now, and changed since the last time."""
        counter, renewals = self._seen.get(row.key, (row.counter, 0))
        renewals += row.counter != counter
        self._seen[row.key] = row.counter, renewals
        return renewals >= RENEWALS

    def forget(self, key: str) -> None:
        """Forget a lease that this worker takes."""
        self._seen.pop(key, None)
