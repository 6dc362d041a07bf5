"""What a lease store must do. Every write is conditional, so that two workers can never both win."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from efo.model import Checkpoint, Lease


class LeaseStore(Protocol):
    """Keeps one row per shard of one application on one stream.

    Every method may raise LeaseStoreUnavailableError (try again) and LeaseStoreCorruptError (an operator must
    act). Methods that take a `Lease` take it as the caller last saw it, and return the row as it now is: the Lease to
    use from then on. Where the condition fails they raise LeaseLostError and change nothing. The semantics are those
    of KCL's lease table, so that a store over that table can be one of the implementations (reference: KCL's
    DynamoDBLeaseRefresher). What each write makes of a row, and on what condition, is in `efo.leases.transitions`.

    Two conditions recur. *Seen*: the row's `counter` is the lease's. *Held*: the same, and the row's `holder` is the
    lease's, which is not None. `holder` is `checkpoint_owner` or, without one, `owner`: so a hand-off that another
    worker asked for in the meantime takes nothing from the holder; it learns of it by the row that its next write
    returns, and goes on writing until it lets go.

    After a call that was cancelled or found the store unavailable its effect is unknown, and the keeper finds out
    by reading. A store whose client repeats calls by itself must recognise its own first try: it would look like
    LeaseLostError.
    """

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream.

        A store that was made without these names belongs to the first ones.
        """
        ...

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order."""
        ...

    async def get(self, key: str) -> Lease | None:
        """Return one lease as the last write left it, or None."""
        ...

    async def create(self, lease: Lease) -> bool:
        """Add a lease, with all its fields, if there is none of its key; return whether it was added."""
        ...

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Become the owner, at once and by force: `counter` + 1, no `checkpoint_owner`; if seen.

        For a lease that is free or expired, that is stolen, or that was handed to us. `owner_switches` grows when it is
        taken from another owner.
        """
        ...

    async def request_handoff(self, lease: Lease, to: str) -> Lease:
        """Ask the holder to hand the lease over: `owner` becomes `to`, `checkpoint_owner` the holder.

        If there is an owner, and owner and checkpoint_owner are as last seen. `counter` is neither changed nor a
        condition: the holder goes on renewing (KCL: initiateGracefulLeaseHandoff). A request that is pending can be
        asked for anew by another worker, and taken back by a request `to` the holder itself, which leaves no
        `checkpoint_owner`.
        """
        ...

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Tell the others that we are alive: `counter` + 1; if held. `throughput_kbps` is saved, None leaves it."""
        ...

    async def release(self, lease: Lease) -> Lease:
        """Let go: `counter` + 1; if held.

        Without a hand-off the lease then has no owner. With one, whether the caller has seen it or not, the owner who
        waits has it: `checkpoint_owner` is removed and `owner_switches` grows (KCL: assignLease by the old owner).
        """
        ...

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        """Save how far the shard is done: `counter` + 1, `owner_switches` 0, nothing pending; if held.

        Never moves backwards on its own: callers decide what to write.
        """
        ...

    async def prepare_checkpoint(self, lease: Lease, checkpoint: Checkpoint, state: bytes | None = None) -> Lease:
        """Save what the next checkpoint is about to be, with bytes of the reader's: `counter` + 1; if held."""
        ...

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the shard's children (rule R2). Conditional on the row's existence only.

        The lease returned is the caller's with these children, not the row: one that was lost stays lost.
        """
        ...

    async def reset(self, lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
        """Put the lease elsewhere, as an operator does: free, nothing pending, `counter` + 1; if seen.

        Its shard is then begun anew at the checkpoint, forwards or backwards. With the sentinel AT_TIMESTAMP or LATEST
        `starts_at` says where that is (`Lease.latest_at`), in seconds since the epoch by the service's clock.
        """
        ...

    async def delete(self, key: str) -> None:
        """Remove a lease, if it is there."""
        ...
