"""A lease store in memory: for one process, for tests and for simulations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import trio

from efo.leases import transitions
from efo.model import Checkpoint, Lease


class MemoryLeaseStore:
    """A LeaseStore that lives as long as its object. Workers that share the object share the leases.

    Every method is one scheduling point followed by one atomic step: a cancelled call has done nothing.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Lease] = {}

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order."""
        await trio.lowlevel.checkpoint()
        return tuple(self._rows.values())

    async def create(self, lease: Lease) -> bool:
        """Add a lease if there is none of its key; return whether it was added."""
        await trio.lowlevel.checkpoint()
        if lease.key in self._rows:
            return False
        self._rows[lease.key] = lease
        return True

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Become the owner, conditional on the counter."""
        await trio.lowlevel.checkpoint()
        row = self._rows.get(lease.key)
        if row is None or row.counter != lease.counter:
            raise transitions.lost(lease)
        return self._put(row, transitions.taken(lease, owner))

    async def renew(self, lease: Lease) -> Lease:
        """Tell the others that we are alive, conditional on counter and owner."""
        await trio.lowlevel.checkpoint()
        return self._put(self._held(lease), transitions.renewed(lease))

    async def release(self, lease: Lease) -> Lease:
        """Give up ownership, conditional on counter and owner."""
        await trio.lowlevel.checkpoint()
        return self._put(self._held(lease), transitions.released(lease))

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        """Save how far the shard is done, conditional on counter and owner."""
        await trio.lowlevel.checkpoint()
        return self._put(self._held(lease), transitions.checkpointed(lease, checkpoint))

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the shard's children, conditional on the row's existence."""
        await trio.lowlevel.checkpoint()
        if (row := self._rows.get(lease.key)) is None:
            raise transitions.lost(lease)
        self._rows[lease.key] = replace(row, children=children)
        return replace(lease, children=children)

    async def delete(self, key: str) -> None:
        """Remove a lease, if it is there."""
        await trio.lowlevel.checkpoint()
        self._rows.pop(key, None)

    def _held(self, lease: Lease) -> Lease:
        """Return the row if counter and owner are as the caller last saw them."""
        row = self._rows.get(lease.key)
        if row is None or (row.counter, row.owner) != (lease.counter, lease.owner):
            raise transitions.lost(lease)
        return row

    def _put(self, row: Lease, lease: Lease) -> Lease:
        """Write the lease, but keep the children: they are written by `save_children` alone."""
        self._rows[lease.key] = replace(lease, children=row.children)
        return lease
