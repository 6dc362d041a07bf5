"""The writes of a worker that can share a batch, as values; and batches for stores that write each row by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from efo.errors import LeaseError
from efo.exception_groups import collapse_groups
from efo.leases import transitions
from efo.model import Checkpoint, Lease

MAX_CONCURRENT_WRITES: Final = 25
"""How many writes of a batch `write_each` performs at the same time."""


@dataclass(frozen=True, slots=True)
class TakeLease:
    """Make `owner` the owner of the lease: see `LeaseStore.take`."""

    lease: Lease
    owner: str


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Renew the lease, see `LeaseStore.renew`; with a checkpoint, save the progress too: `LeaseStore.checkpoint`."""

    lease: Lease
    checkpoint: Checkpoint | None = None
    throughput_kbps: float | None = None


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Release the lease: see `LeaseStore.release`."""

    lease: Lease


LeaseWrite = TakeLease | RenewLease | ReleaseLease
"""A write of one lease that can share a batch with writes of other leases."""

SettleWrite = Callable[[int, Lease | LeaseError], None]
"""Receives the result of a write of a batch, by its index: the row after the write, or the error that it met alone."""


def row_after(write: LeaseWrite, row: Lease | None) -> Lease:
    """Return the row after a write. `row`: the current one, None if missing. Raises LeaseLostError."""
    match write:
        case TakeLease(lease, owner):
            return transitions.taken(transitions.same_counter(row, lease), owner)
        case RenewLease(lease, checkpoint, kbps):
            held = transitions.same_holder(row, lease)
            if checkpoint is None:
                return transitions.renewed(held, kbps)
            return transitions.checkpointed(held, checkpoint, kbps)
        case ReleaseLease(lease):
            return transitions.released(transitions.same_holder(row, lease))


def check_distinct(writes: Sequence[LeaseWrite]) -> None:
    """Raise ValueError if a batch has two writes of one lease: the second would not know the row after the first."""
    keys = {write.lease.key for write in writes}
    if len(keys) < len(writes):
        raise ValueError("a batch has two writes of one lease: write the second one after the first")


class SingleWrites(Protocol):
    """A lease store's methods for single writes: see `LeaseStore`."""

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Perform a TakeLease."""
        ...

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Perform a RenewLease without a checkpoint."""
        ...

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
        """Perform a RenewLease with a checkpoint."""
        ...

    async def release(self, lease: Lease) -> Lease:
        """Perform a ReleaseLease."""
        ...


async def write_each(store: SingleWrites, writes: Sequence[LeaseWrite], settle: SettleWrite) -> None:
    """Perform the writes of a batch one by one, some at the same time: `write_many` of a store without transactions.

    A write that fails has no effect on the others, and each is settled as soon as its result is known.
    """
    check_distinct(writes)
    limiter = trio.CapacityLimiter(MAX_CONCURRENT_WRITES)

    async def write(index: int) -> None:
        async with limiter:
            try:
                lease = await write_one(store, writes[index])
            except LeaseError as error:
                settle(index, error)
            else:
                settle(index, lease)

    with collapse_groups():
        async with trio.open_nursery() as nursery:
            for index in range(len(writes)):
                nursery.start_soon(write, index)


async def write_one(store: SingleWrites, write: LeaseWrite) -> Lease:
    """Perform one write by the store's method for it. Raises LeaseError."""
    match write:
        case TakeLease(lease, owner):
            return await store.take(lease, owner)
        case RenewLease(lease, checkpoint, kbps):
            if checkpoint is None:
                return await store.renew(lease, kbps)
            return await store.checkpoint(lease, checkpoint, kbps)
        case ReleaseLease(lease):
            return await store.release(lease)
