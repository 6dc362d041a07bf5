"""The rows of a lease table as last read: a lease scan decodes only those that have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from efo.model import Lease

Row = TypeVar("Row")


class KnownRows(Generic[Row]):
    """The leases of a table, by key. `decode` returns the lease of a stored row. An unchanged row keeps its Lease."""

    def __init__(self, decode: Callable[[Row], Lease]) -> None:
        self._decode = decode
        self._known: dict[str, tuple[Row | None, Lease]] = {}

    def read(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Replace all rows by these: by key, as just read. Raises what `decode` raises."""
        known: dict[str, tuple[Row | None, Lease]] = {}
        for key, row in rows:
            before = self._known.get(key)
            known[key] = before if before is not None and before[0] == row else (row, self._decode(row))
        self._known = known

    def leases(self) -> Sequence[Lease]:
        """Return all leases."""
        return [lease for _, lease in self._known.values()]

    def written(self, lease: Lease) -> None:
        """Record that this store has written a row."""
        self._known[lease.key] = (None, lease)

    def deleted(self, key: str) -> None:
        """Record that this store has deleted a row."""
        self._known.pop(key, None)
