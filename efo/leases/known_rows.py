"""What a lease scan remembers: which rows have changed, and which of ours another worker of the same id renews."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from efo.model import Lease

Version = TypeVar("Version")


class KnownRows(Generic[Version]):
    """The leases of a table. `Version`: what differs when a row has changed, for example the row as it is stored.

    A row that is unchanged keeps its Lease object. Threads may scan at the same time.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Version | None, Lease]] = {}

    def replace(self, versions: Mapping[str, Version], decode: Callable[[str, Version], Lease]) -> Sequence[Lease]:
        """Replace all rows by these, by key; return their leases. Calls `decode` for those that have changed."""
        before, known = self._known, dict[str, tuple[Version | None, Lease]]()
        for key, version in versions.items():
            row = before.get(key)
            known[key] = row if row is not None and row[0] == version else (version, decode(key, version))
        self._known = known
        return self.leases()

    def changed(self, versions: Mapping[str, Version]) -> list[str]:
        """Return the keys of the rows that are new or have changed."""
        known = self._known
        return [key for key, version in versions.items() if key not in known or known[key][0] != version]

    def leases(self) -> Sequence[Lease]:
        """Return all leases."""
        return [lease for _, lease in self._known.values()]

    def written(self, lease: Lease) -> None:
        """Record that this store has written a row. Its version is unknown."""
        self._known[lease.key] = (None, lease)

    def deleted(self, key: str) -> None:
        """Record that this store has deleted a row."""
        self._known.pop(key, None)


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
