"""What each operation makes of a lease: the values that every store writes, so that none can differ."""

from __future__ import annotations

from dataclasses import replace

from efo.errors import LeaseLostError
from efo.model import Checkpoint, Lease


def taken(lease: Lease, owner: str) -> Lease:
    """Return the lease with a new owner. A change counts when it is taken from somebody else."""
    switches = lease.owner_switches + (lease.owner not in (None, owner))
    return replace(lease, owner=owner, counter=lease.counter + 1, owner_switches=switches)


def renewed(lease: Lease) -> Lease:
    """Return the lease with a sign of life. Raises LeaseLostError if nobody owns it."""
    return replace(_owned(lease), counter=lease.counter + 1)


def released(lease: Lease) -> Lease:
    """Return the lease without its owner. Raises LeaseLostError if nobody owns it."""
    return replace(_owned(lease), owner=None, counter=lease.counter + 1)


def checkpointed(lease: Lease, checkpoint: Checkpoint) -> Lease:
    """Return the lease with its progress. Raises LeaseLostError if nobody owns it."""
    return replace(_owned(lease), checkpoint=checkpoint, counter=lease.counter + 1, owner_switches=0)


def lost(lease: Lease) -> LeaseLostError:
    """Return the error that says that a write's condition failed."""
    return LeaseLostError(
        f"lease {lease.key}: not as {lease.owner or 'nobody'} last saw it (counter {lease.counter}): "
        "another worker took it, or its row was deleted"
    )


def _owned(lease: Lease) -> Lease:
    if lease.owner is None:
        raise LeaseLostError(f"lease {lease.key}: it has no owner, so only `take` may write it")
    return lease
