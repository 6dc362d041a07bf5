"""The conditions of writes to a lease row, and the row after each write: defined once, for all lease stores.

`existing`, `same_counter`, `same_holder` and `same_owners` take the current row (None if missing) and the lease as the
caller last read it. They return the row, or raise LeaseLostError. The other functions return the row after a write.
"""

from __future__ import annotations

from dataclasses import replace

from efo.errors import LeaseLostError
from efo.model import Checkpoint, Lease

# --- conditions ----------------------------------------------------------------------------------------------


def existing(row: Lease | None, lease: Lease) -> Lease:
    """Return the row if it exists."""
    if row is None:
        raise lease_lost(lease)
    return row


def same_counter(row: Lease | None, lease: Lease) -> Lease:
    """Return the row if its counter is unchanged."""
    if row is None or row.counter != lease.counter:
        raise lease_lost(lease)
    return row


def same_holder(row: Lease | None, lease: Lease) -> Lease:
    """Return the row if its counter and its holder are unchanged. A hand-off may have been requested since.

    The row gets the times that the holder knows: they are written with whatever it writes.
    """
    if owned(lease).holder != (row := same_counter(row, lease)).holder:
        raise lease_lost(lease)
    since = row.unread_since if lease.unread_since is None else lease.unread_since
    created_at = row.stream_created_at if lease.stream_created_at is None else lease.stream_created_at
    if (since, created_at) == (row.unread_since, row.stream_created_at):
        return row
    return replace(row, unread_since=since, stream_created_at=created_at)


def same_owners(row: Lease | None, lease: Lease) -> Lease:
    """Return the row if its `owner` and `checkpoint_owner` are unchanged."""
    owned(lease)
    if row is None or (row.owner, row.checkpoint_owner) != (lease.owner, lease.checkpoint_owner):
        raise lease_lost(lease)
    return row


def owned(lease: Lease) -> Lease:
    """Return the lease if a worker holds it."""
    if lease.holder is None:
        raise LeaseLostError(f"lease {lease.key} has no owner: take it first")
    return lease


def lease_lost(lease: Lease) -> LeaseLostError:
    """Return the error for a write whose condition failed."""
    return LeaseLostError(
        f"lease {lease.key}: its row has changed since it was read (holder {lease.holder or 'none'}, counter "
        f"{lease.counter}): another worker took the lease, or the row was deleted"
    )


# --- rows after a write --------------------------------------------------------------------------------------


def taken(lease: Lease, owner: str) -> Lease:
    """Return the lease with a new owner. `owner_switches` + 1 if it had another owner."""
    switches = lease.owner_switches + (lease.owner not in (None, owner))
    return replace(lease, owner=owner, checkpoint_owner=None, counter=lease.counter + 1, owner_switches=switches)


def requested(lease: Lease, to: str) -> Lease:
    """Return the lease with a hand-off to `to`, or without a hand-off if `to` is the holder."""
    return replace(lease, owner=to, checkpoint_owner=None if to == lease.holder else lease.holder)


def renewed(lease: Lease, throughput_kbps: float | None = None) -> Lease:
    """Return the lease renewed, with the throughput if it was measured."""
    measured = lease.throughput_kbps if throughput_kbps is None else throughput_kbps
    return replace(lease, counter=lease.counter + 1, throughput_kbps=measured)


def released(lease: Lease) -> Lease:
    """Return the lease without its holder: for the waiting owner, or without an owner."""
    if lease.checkpoint_owner is None:
        return replace(lease, owner=None, counter=lease.counter + 1)
    return replace(lease, checkpoint_owner=None, counter=lease.counter + 1, owner_switches=lease.owner_switches + 1)


def checkpointed(lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
    """Return the lease with a checkpoint and without a pending one, with the throughput if it was measured."""
    return replace(
        lease,
        checkpoint=checkpoint,
        counter=lease.counter + 1,
        owner_switches=0,
        pending_checkpoint=None,
        pending_checkpoint_state=None,
        throughput_kbps=lease.throughput_kbps if throughput_kbps is None else throughput_kbps,
    )


def reset(lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
    """Return the lease at another checkpoint, without an owner and without a pending checkpoint."""
    unowned = replace(lease, owner=None, checkpoint_owner=None, latest_at=starts_at, unread_since=None)
    return checkpointed(unowned, checkpoint)
