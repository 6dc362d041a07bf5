"""What each write makes of a lease's row, and on what condition: one truth for all stores, so that none can differ.

`seen`, `held`, `unmoved` and `existing` take the row as it is (None where there is none) and the lease as the caller
last saw it. They return the row, or raise LeaseLostError. The others return the row that a write leaves.
"""

from __future__ import annotations

from dataclasses import replace

from efo.errors import LeaseLostError
from efo.model import Checkpoint, Lease

# --- conditions ----------------------------------------------------------------------------------------------


def existing(row: Lease | None, lease: Lease) -> Lease:
    """Return the row if there is one."""
    if row is None:
        raise lost(lease)
    return row


def seen(row: Lease | None, lease: Lease) -> Lease:
    """Return the row if its counter is the one last seen."""
    if row is None or row.counter != lease.counter:
        raise lost(lease)
    return row


def held(row: Lease | None, lease: Lease) -> Lease:
    """Return the row if its counter and its holder are those last seen: a hand-off may have been asked for since."""
    if owned(lease).holder != (row := seen(row, lease)).holder:
        raise lost(lease)
    return row


def unmoved(row: Lease | None, lease: Lease) -> Lease:
    """Return the row if it has the owner and the checkpoint_owner last seen."""
    owned(lease)
    if row is None or (row.owner, row.checkpoint_owner) != (lease.owner, lease.checkpoint_owner):
        raise lost(lease)
    return row


def owned(lease: Lease) -> Lease:
    """Return the lease if somebody holds it."""
    if lease.holder is None:
        raise LeaseLostError(f"lease {lease.key}: it has no owner, so only `take` may write it")
    return lease


def lost(lease: Lease) -> LeaseLostError:
    """Return the error that says that a write's condition failed."""
    return LeaseLostError(
        f"lease {lease.key}: not as {lease.holder or 'nobody'} last saw it (counter {lease.counter}): "
        "another worker took it, or its row was deleted"
    )


# --- what is written ------------------------------------------------------------------------------------------


def taken(lease: Lease, owner: str) -> Lease:
    """Return the lease with a new owner. A change counts when it is taken from somebody else."""
    switches = lease.owner_switches + (lease.owner not in (None, owner))
    return replace(lease, owner=owner, checkpoint_owner=None, counter=lease.counter + 1, owner_switches=switches)


def requested(lease: Lease, to: str) -> Lease:
    """Return the lease with a hand-off under way, or with none when it is for the holder itself."""
    return replace(lease, owner=to, checkpoint_owner=None if to == lease.holder else lease.holder)


def renewed(lease: Lease, throughput_kbps: float | None = None) -> Lease:
    """Return the lease with a sign of life, and with what was measured, if it was."""
    measured = lease.throughput_kbps if throughput_kbps is None else throughput_kbps
    return replace(lease, counter=lease.counter + 1, throughput_kbps=measured)


def released(lease: Lease) -> Lease:
    """Return the lease without its holder: for the owner who waits, or for anybody."""
    if lease.checkpoint_owner is None:
        return replace(lease, owner=None, counter=lease.counter + 1)
    return replace(lease, checkpoint_owner=None, counter=lease.counter + 1, owner_switches=lease.owner_switches + 1)


def checkpointed(lease: Lease, checkpoint: Checkpoint) -> Lease:
    """Return the lease with its progress; what was pending is done with."""
    return replace(
        lease,
        checkpoint=checkpoint,
        counter=lease.counter + 1,
        owner_switches=0,
        pending_checkpoint=None,
        pending_checkpoint_state=None,
    )


def prepared(lease: Lease, checkpoint: Checkpoint, state: bytes | None = None) -> Lease:
    """Return the lease with a checkpoint that is pending."""
    return replace(lease, counter=lease.counter + 1, pending_checkpoint=checkpoint, pending_checkpoint_state=state)


def reset(lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
    """Return the lease as an operator puts it elsewhere: free, nothing pending, to be begun there."""
    free = replace(lease, owner=None, checkpoint_owner=None, latest_at=starts_at)
    return checkpointed(free, checkpoint)
