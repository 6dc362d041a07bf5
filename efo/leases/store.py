"""What a lease store must do. Every write is conditional, so that two workers can never both win."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from efo.model import Checkpoint, Lease


class LeaseStore(Protocol):
    """Keeps one row per shard of one application on one stream.

    Every method may raise LeaseStoreUnavailableError (try again) and LeaseStoreCorruptError (an operator must
    act). Methods that take a `Lease` take it as the caller last saw it: `counter` is the condition of the
    write, and the Lease returned is the one to use from then on. Where the condition fails they raise
    LeaseLostError. The semantics are those of KCL's lease table, so that a store over that table can be one
    of the implementations (reference: KCL's DynamoDBLeaseRefresher).

    After a call that was cancelled or found the store unavailable its effect is unknown, and the keeper finds out
    by reading. A store whose client repeats calls by itself must recognise its own first try: it would look like
    LeaseLostError.
    """

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order."""
        ...

    async def create(self, lease: Lease) -> bool:
        """Add a lease if there is none of its key; return whether it was added."""
        ...

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Become the owner of a lease that is free, expired or stolen: `counter` + 1, conditional on it.

        `owner_switches` grows when it is taken from another owner.
        """
        ...

    async def renew(self, lease: Lease) -> Lease:
        """Tell the others that we are alive: `counter` + 1, conditional on it and on the owner."""
        ...

    async def release(self, lease: Lease) -> Lease:
        """Give up ownership: `owner` becomes None, `counter` + 1, conditional on counter and owner."""
        ...

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        """Save how far the shard is done: `counter` + 1, `owner_switches` 0, conditional on counter and owner.

        Never moves backwards on its own: callers decide what to write.
        """
        ...

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the shard's children (rule R2). Conditional on the row's existence only.

        The lease returned has the caller's counter, not the row's: one that was lost stays lost.
        """
        ...

    async def delete(self, key: str) -> None:
        """Remove a lease, if it is there."""
        ...
