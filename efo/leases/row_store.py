"""The writes of a lease store that can read a row and write it in one atomic step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from efo.leases import transitions
from efo.model import Checkpoint, Lease

Change = Callable[[Lease | None], Lease]
"""Makes the new row of the one that is there, or of None; raises LeaseLostError where it must not be written."""


class RowStore(ABC):
    """The writes of `LeaseStore`, each as a `Change` of one row by `efo.leases.transitions`."""

    @abstractmethod
    async def _write(self, key: str, change: Change) -> Lease:
        """Read a row, change it and write it as one atomic step; return it. What `change` raises leaves it alone."""

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Become the owner, if the lease is as last seen."""
        return await self._write(lease.key, lambda row: transitions.taken(transitions.seen(row, lease), owner))

    async def request_handoff(self, lease: Lease, to: str) -> Lease:
        """Ask the holder to hand the lease over, if it has not moved."""
        return await self._write(lease.key, lambda row: transitions.requested(transitions.unmoved(row, lease), to))

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Tell the others that we are alive, if we hold the lease."""
        return await self._write(
            lease.key, lambda row: transitions.renewed(transitions.held(row, lease), throughput_kbps)
        )

    async def release(self, lease: Lease) -> Lease:
        """Let go of the lease, if we hold it."""
        return await self._write(lease.key, lambda row: transitions.released(transitions.held(row, lease)))

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        """Save how far the shard is done, if we hold the lease."""
        return await self._write(
            lease.key, lambda row: transitions.checkpointed(transitions.held(row, lease), checkpoint)
        )

    async def prepare_checkpoint(self, lease: Lease, checkpoint: Checkpoint, state: bytes | None = None) -> Lease:
        """Save what the next checkpoint is about to be, if we hold the lease."""
        return await self._write(
            lease.key, lambda row: transitions.prepared(transitions.held(row, lease), checkpoint, state)
        )

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the shard's children, if there is a row."""
        await self._write(lease.key, lambda row: replace(transitions.existing(row, lease), children=children))
        return replace(lease, children=children)

    async def reset(self, lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
        """Put the lease elsewhere, if it is as last seen."""
        return await self._write(
            lease.key, lambda row: transitions.reset(transitions.seen(row, lease), checkpoint, starts_at)
        )
