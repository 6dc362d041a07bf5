"""The writes of a lease store that can read and write a row in one atomic step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from efo.errors import LeaseError
from efo.leases import transitions
from efo.leases.writes import (
    LeaseWrite,
    ReleaseLease,
    RenewLease,
    SettleWrite,
    TakeLease,
    check_distinct,
    row_after,
    write_each,
)
from efo.model import Checkpoint, Lease

Change = Callable[[Lease | None], Lease]
"""Returns the new row for the current one (None if missing). Raises LeaseLostError if the condition fails."""


class RowStore(ABC):
    """The writes of `LeaseStore`, each as a `Change` of one row as `efo.leases.transitions` defines it."""

    @abstractmethod
    async def _write(self, key: str, change: Change) -> Lease:
        """Read, change and write a row in one atomic step; return it. If `change` raises, write nothing."""

    async def _write_rows(self, writes: Sequence[LeaseWrite]) -> Sequence[Lease | LeaseError]:
        """Perform the writes of a batch, each as `efo.leases.writes.row_after` defines it; return their results.

        Without transactions: each by itself, several at the same time.
        """
        results: dict[int, Lease | LeaseError] = {}
        await write_each(self, writes, results.__setitem__)
        return [results[index] for index in range(len(writes))]

    async def write_many(self, writes: Sequence[LeaseWrite], settle: SettleWrite) -> None:
        """Perform writes of different leases, in one transaction where the store has transactions."""
        check_distinct(writes)
        for index, result in enumerate(await self._write_rows(writes)):
            settle(index, result)

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Make `owner` the owner, if the counter is unchanged."""
        return await self._write(lease.key, partial(row_after, TakeLease(lease, owner)))

    async def request_handoff(self, lease: Lease, to: str) -> Lease:
        """Request the lease from its holder, if the owners are unchanged."""
        return await self._write(lease.key, lambda row: transitions.requested(transitions.same_owners(row, lease), to))

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Renew the lease, if holder and counter are unchanged."""
        return await self._write(lease.key, partial(row_after, RenewLease(lease, throughput_kbps=throughput_kbps)))

    async def release(self, lease: Lease) -> Lease:
        """Release the lease, if holder and counter are unchanged."""
        return await self._write(lease.key, partial(row_after, ReleaseLease(lease)))

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
        """Save the progress, if holder and counter are unchanged."""
        return await self._write(lease.key, partial(row_after, RenewLease(lease, checkpoint, throughput_kbps)))

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the shard's children, if the row exists."""
        await self._write(lease.key, lambda row: replace(transitions.existing(row, lease), children=children))
        return replace(lease, children=children)

    async def reset(self, lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
        """Set another checkpoint and no owner, if the counter is unchanged."""
        return await self._write(
            lease.key, lambda row: transitions.reset(transitions.same_counter(row, lease), checkpoint, starts_at)
        )
