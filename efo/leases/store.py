"""The interface of lease stores. Every write is conditional: of two competing workers at most one succeeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from efo.arn import parse_stream
from efo.errors import ConfigurationError
from efo.leases.writes import LeaseWrite, SettleWrite, write_each
from efo.model import Checkpoint, Lease


class LeaseStore(Protocol):
    """Keeps one lease row per shard of one application on one stream.

    Every method may raise LeaseStoreUnavailableError (try again) and LeaseStoreCorruptError (an operator must act).
    A method with a `Lease` parameter expects the lease as the caller last read it, and returns the row after the write:
    use this one from then on. If its condition fails, it raises LeaseLostError and changes nothing. The semantics are
    those of KCL's lease table (reference: KCL's DynamoDBLeaseRefresher), so that KCL's table can be one of the stores.
    `efo.leases.transitions` defines the conditions and the row after each write.

    Two conditions recur. *Same counter*: the `counter` of the row equals that of the lease. *Same holder*: in addition
    the `holder` of the row equals that of the lease, which is not None. `holder` is `checkpoint_owner` or, without one,
    `owner`. So a request for a graceful hand-off does not stop the holder: its next write returns the row with the
    request, and its writes succeed until it releases the lease. A write of the holder also writes `unread_since` and
    `stream_created_at` of the lease that it passes, which it may set; None leaves what the row has.

    If a call is cancelled or raises LeaseStoreUnavailableError, its effect is unknown, and the coordinator reads the
    row. A store whose client retries writes must recognise the effect of the first try, which looks like
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
        """Return one lease as of the last write, or None."""
        ...

    async def create(self, lease: Lease) -> bool:
        """Add a lease with all its fields, unless its key exists; return whether it was added."""
        ...

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Make `owner` the owner: `counter` + 1, no `checkpoint_owner`. Condition: same counter.

        For a lease that is unowned, expired, to be stolen, or handed over. `owner_switches` + 1 if the lease had
        another owner.
        """
        ...

    async def request_handoff(self, lease: Lease, to: str) -> Lease:
        """Request the lease from its holder: `owner` becomes `to`, `checkpoint_owner` becomes the holder.

        Condition: the row has an owner, and the same `owner` and `checkpoint_owner` as the lease. `counter` is neither
        changed nor checked: the holder keeps renewing (KCL: initiateGracefulLeaseHandoff). A request can replace the
        pending one of another worker. A request `to` the holder itself withdraws it and removes `checkpoint_owner`.
        """
        ...

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Renew: `counter` + 1. Condition: same holder. `throughput_kbps` is saved, None keeps the saved value."""
        ...

    async def release(self, lease: Lease) -> Lease:
        """Release: `counter` + 1. Condition: same holder.

        Without a hand-off the lease then has no owner. With one, even if the caller has not read the request, the
        waiting owner holds it: `checkpoint_owner` is removed, `owner_switches` + 1 (KCL: assignLease by the old owner).
        """
        ...

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
        """Save the progress: `counter` + 1, `owner_switches` 0, no pending checkpoint. Condition: same holder.

        The store does not compare checkpoints: the caller decides what to write. `throughput_kbps`: as for `renew`.
        """
        ...

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the shard's children (rule R2). Condition: the row exists.

        Returns the caller's lease with these children, not the row: a lost lease stays lost.
        """
        ...

    async def reset(self, lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
        """Set another checkpoint, for an operator: no owner, nothing pending, `counter` + 1. Condition: same counter.

        The shard is then read from this checkpoint, which may be earlier or later. `starts_at`: the time that a
        sentinel AT_TIMESTAMP or LATEST stands for (`Lease.latest_at`), seconds since the epoch by the service's clock.
        `unread_since` is removed: it belonged to the checkpoint before.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""
        ...

    async def write_many(self, writes: Sequence[LeaseWrite], settle: SettleWrite) -> None:
        """Perform writes of different leases at once: in one transaction, where the store has transactions.

        Each write has the effect and the condition of the method for it. `settle` is called once for each, with its
        index and its result, as soon as that is known: the row after the write, or the LeaseError that it met alone. So
        a lost lease does not fail the others. If the call is cancelled or raises LeaseError, the effect of each write
        that is not settled is unknown, but it is never partial.

        Raises ValueError for two writes of one lease. A store that cannot batch uses `efo.leases.writes.write_each`.
        """
        await write_each(self, writes, settle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was found in a lease store that can be read.

    `exists`: whether it has its table, file or key. If not, the first worker that opens it creates it.
    `leases`: how many this application has on this stream; None where counting them would read the whole table.
    `version`: of the format, None if the store has none.
    `denied`: the writes that are not permitted; None where only a write shows that.
    `created_at`: when the streams were created that its leases are of, as far as they say it: one, if all is well.
    """

    exists: bool
    leases: int | None = None
    version: int | None = None
    denied: tuple[str, ...] | None = ()
    created_at: tuple[float, ...] = ()


def streams_of(leases: Iterable[Lease]) -> tuple[float, ...]:
    """Return the times of creation that leases name, each once."""
    return tuple(sorted({lease.stream_created_at for lease in leases if lease.stream_created_at is not None}))


class Inspectable(Protocol):
    """A lease store that can be inspected without opening it."""

    async def inspect(self) -> Inspection:
        """Look at the store, which is not open. Raises what opening it raises, except that it is missing."""
        ...


class LeaseScope:
    """The application and stream of a lease store. Without names, it belongs to the first consumer that opens it.

    Shard ids of different streams are alike, so that a store of another stream would hold back or skip records.
    """

    def __init__(self, application: str | None = None, stream: str | None = None) -> None:
        self.application = application
        self.stream = None if stream is None else parse_stream(stream)[0]

    def ensure(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store belongs to another application or stream."""
        for what, ours, theirs in (("application", self.application, application), ("stream", self.stream, stream)):
            if ours is not None and ours != theirs:
                raise ConfigurationError(
                    f"the lease store belongs to the {what} {ours!r}, and the consumer to {theirs!r}: "
                    f"open a store for {theirs!r}"
                )
        self.application, self.stream = application, stream
