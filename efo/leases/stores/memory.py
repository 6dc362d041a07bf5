"""A lease store in memory: for one process, for tests and for simulations."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from efo.errors import LeaseError, LeaseLostError
from efo.leases.row_store import Change, RowStore
from efo.leases.store import LeaseScope
from efo.leases.transitions import taken
from efo.leases.writes import LeaseWrite, row_after
from efo.model import Lease


class MemoryLeaseStore(RowStore):
    """A LeaseStore whose leases exist as long as the object. Workers that share the object share the leases.

    Every method is one trio checkpoint followed by one atomic step: a cancelled call has no effect.
    """

    def __init__(self, application: str | None = None, stream: str | None = None) -> None:
        self._lease_scope = LeaseScope(application, stream)
        self._rows: dict[str, Lease] = {}

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream."""
        self._lease_scope.ensure(application, stream)

    def rows(self) -> tuple[Lease, ...]:
        """Return all leases now, without trio: for tests."""
        return tuple(self._rows.values())

    def steal(self, key: str, owner: str) -> None:
        """Take a lease by force, without trio: for tests. Raises KeyError for one that does not exist."""
        self._rows[key] = taken(self._rows[key], owner)

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order."""
        await trio.lowlevel.checkpoint()
        return tuple(self._rows.values())

    async def get(self, key: str) -> Lease | None:
        """Return one lease, or None."""
        await trio.lowlevel.checkpoint()
        return self._rows.get(key)

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists; return whether it was added."""
        await trio.lowlevel.checkpoint()
        if lease.key in self._rows:
            return False
        self._rows[lease.key] = lease
        return True

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""
        await trio.lowlevel.checkpoint()
        self._rows.pop(key, None)

    async def _write(self, key: str, change: Change) -> Lease:
        await trio.lowlevel.checkpoint()
        row = self._rows[key] = change(self._rows.get(key))
        return row

    async def _write_rows(self, writes: Sequence[LeaseWrite]) -> Sequence[Lease | LeaseError]:
        await trio.lowlevel.checkpoint()
        results: list[Lease | LeaseError] = []
        for write in writes:
            key = write.lease.key
            try:
                result = self._rows[key] = row_after(write, self._rows.get(key))
            except LeaseLostError as error:
                results.append(error)
            else:
                results.append(result)
        return results
