"""One lease that this worker holds: its writes, one at a time, and how long the worker may rely on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Protocol
from zlib import crc32

import trio

from efo.errors import EfoError, LeaseError, LeaseLostError, LeaseStoreUnavailableError, error_type_of
from efo.events import CheckpointSaved, LeaseLost, LeaseOperation, LeaseStoreCalled, Observer
from efo.leases import transitions
from efo.leases.store import LeaseStore
from efo.leases.writer import LeaseWriter, PendingWrite, detail_of
from efo.leases.writes import ReleaseLease, RenewLease
from efo.model import Checkpoint, Lease
from efo.protocol.assignment.balance import Throughput

RENEWALS: Final = 3
"""Renewals per fail-over time, as in KCL: two of them may fail."""
TRUSTED_SHARE: Final = 0.95
"""How long after a write this worker relies on a lease, as a share of the fail-over time. In the rest of it the reader
stops, before another worker may take the lease."""
IDLE_CHECKPOINT_INTERVAL: Final = 300.0
"""Maximum seconds between two checkpoints of a shard without records, about half of them at least. A stream retains
records for 24 hours or more."""


class LeaseReader(Protocol):
    """The reader of a held lease's shard: a ShardStream.

    `acked`: the checkpoint that may be saved. `acks`: grows with each ack, and so does not if the checkpoint moved
    without records. `bytes_received`: the bytes received so far. `saved`: called with the `acks` of a checkpoint that
    was saved.
    """

    @property
    def acked(self) -> Checkpoint | None: ...  # noqa: D102 - see above
    @property
    def acks(self) -> int: ...  # noqa: D102
    @property
    def bytes_received(self) -> int: ...  # noqa: D102
    def saved(self, acks: int) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """`failover_seconds`: see LeaseCoordinator. `checkpoint_seconds`: how often the progress of a reader is saved."""

    failover_seconds: float
    checkpoint_seconds: float

    @property
    def renewal_interval(self) -> float:
        """Seconds between two renewals."""
        return self.failover_seconds / RENEWALS

    @property
    def retry_interval(self) -> float:
        """Seconds until a renewal that the store could not perform is repeated."""
        return self.failover_seconds / (6 * RENEWALS)


class HeldLease:
    """A lease that this worker holds; created by LeaseCoordinator, whose task renews it.

    `lost`: set when this worker does not hold the lease any more: stop reading. The end of the shard does not set it.
    `handoff_requested`: set when another worker has requested the lease: finish the current work, checkpoint and
    release. `watch` sets functions to call at these moments.
    `lost_because`: the reason of the event LeaseLost, None before it.
    `reader`: set by the reader of the shard. Renewals save its progress and its throughput. `unread_since`: set with
    it, returns the time that belongs to its `acked` (`Lease.unread_since`), None if unknown.
    `stream_created_at`: returns when the stream was created, None if unknown. Renewals save it in a row without it.
    `renew_at`, `trusted_until`: when to renew the lease (infinity while it is being renewed), and until when this
    worker relies on it. `unresolved`: an error of a renewal that needs a call of `resolve`.

    Writes run one at a time, so that none of them meets a counter that another write of this worker has changed.
    """

    def __init__(
        self,
        lease: Lease,
        store: LeaseStore,
        writer: LeaseWriter,
        *,
        taken_at: float,
        timing: LeaseTiming,
        observer: Observer,
        on_end: Callable[[HeldLease], None],
        on_handoff_requested: Callable[[], None],
        on_due: Callable[[HeldLease], None] = lambda _held: None,
        stream_created_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.lost = trio.Event()
        self.handoff_requested = trio.Event()
        self.lost_because: str | None = None
        self.reader: LeaseReader | None = None
        self.unread_since: Callable[[], float | None] = lambda: None
        self._throughput = Throughput()
        self._lease = lease
        self._store = store
        self._writer = writer
        self._timing = timing
        self._observer = observer
        self._on_end = on_end
        self._on_handoff_requested = on_handoff_requested
        self._on_due = on_due
        self._stream_created_at = stream_created_at
        self._on_lost: Callable[[], None] = lambda: None
        self._on_requested: Callable[[], None] = lambda: None
        self._free = trio.Semaphore(1)  # not a lock: a batch ends a renewal in another task than it began in
        self._has_ended = False
        self._is_in_doubt = False  # whether a write may have taken place unseen: the counter may be one ahead
        self.unresolved: LeaseError | None = None
        self._renewal: PendingWrite | None = None
        self._saved_at = taken_at
        self._saved_acks = 0
        self._idle_interval = IDLE_CHECKPOINT_INTERVAL * (0.5 + crc32(lease.key.encode()) / 2**33)
        self._extend_trust(taken_at)

    @property
    def lease(self) -> Lease:
        """The lease as this worker last wrote it."""
        return self._lease

    @property
    def has_ended(self) -> bool:
        """Whether this worker does not hold the lease any more: it is lost, or its shard is finished."""
        return self._has_ended

    def watch(self, *, on_lost: Callable[[], None], on_handoff_requested: Callable[[], None]) -> None:
        """Call these functions when `lost` and `handoff_requested` are set, or now if they are."""
        self._on_lost, self._on_requested = on_lost, on_handoff_requested
        if self.handoff_requested.is_set():
            on_handoff_requested()
        if self.lost.is_set():
            on_lost()

    def forget_reader(self) -> None:
        """Forget the reader, which has left: it knows this lease, and both are freed at once."""
        self.reader, self.unread_since = None, lambda: None
        self._on_lost = self._on_requested = lambda: None

    # --- writes of the reader --------------------------------------------------------------------------------

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Save the progress. With SHARD_END this worker stops holding the lease: there is nothing left to read.

        Raises LeaseLostError, and LeaseStoreUnavailableError: the checkpoint may or may not be saved, save it again.
        """
        if checkpoint != Checkpoint.SHARD_END:
            await self._write(lambda lease: self._writer.write(RenewLease(self._known(lease, checkpoint), checkpoint)))
            return
        # Not with a batch: the children wait for it.
        await self._write(lambda lease: self._call("checkpoint", self._store.checkpoint(lease, checkpoint)))
        self._end()

    async def save(self) -> None:
        """Save what the reader has acked, if it is not saved yet. Raises as `checkpoint` does."""
        checkpoint = None if self.reader is None else self.reader.acked
        # The lease may be finished although the store's response has not arrived. That must not be undone.
        if checkpoint is not None and checkpoint != self._lease.checkpoint and not self._lease.is_finished:
            await self.checkpoint(checkpoint)

    async def confirm(self) -> None:
        """Renew the lease now, to check that this worker holds it. Raises as `checkpoint` does."""
        await self._write(lambda lease: self._call("renew", self._store.renew(lease, self._kbps())))

    async def save_children(self, children: tuple[str, ...]) -> None:
        """Save the ids of the shard's children (rule R2). Raises as `checkpoint` does."""
        await self._write(lambda lease: self._call("save_children", self._store.save_children(lease, children)))

    async def release(self) -> None:
        """Release the lease, for the worker that requested it or for any worker.

        Does nothing if the lease has ended already. Raises LeaseStoreUnavailableError: this worker then still holds the
        lease, until it expires.
        """
        try:
            await self._write(lambda lease: self._writer.write(ReleaseLease(lease)))
        except LeaseLostError:
            return
        self.mark_lost("released" if self._lease.owner is None else "handed_over")

    # --- called by the coordinator --------------------------------------------------------------------------------

    def observe_row(self, row: Lease) -> None:
        """Set `handoff_requested` if the row, as just read, shows that another worker has requested the lease."""
        if not self._has_ended and row.checkpoint_owner == self._lease.holder and row.counter >= self._lease.counter:
            self._set_handoff_requested()

    def mark_lost(self, reason: str) -> None:
        """Treat the lease as lost, without a write. `reason`: as in the event LeaseLost."""
        if not self._has_ended:
            self.lost.set()
            self.lost_because = reason
            self._observer(LeaseLost(self._lease.key, reason))
            self._end()

    def expire(self) -> None:
        """Give the lease up: no renewal has succeeded in time (rule R10)."""
        self.mark_lost("store" if self._is_store_down else "expired")

    async def resolve(self, error: LeaseError) -> None:
        """Find out whether the lease is lost, after a renewal in doubt failed. Raises LeaseStoreCorruptError."""
        if not isinstance(error, LeaseLostError):
            raise error
        try:
            await self.confirm()
        except LeaseLostError:
            return
        except LeaseStoreUnavailableError:
            self._retry_later()

    def next_save_check(self, now: float) -> float:
        """Return when to look again for progress that is due: at the latest after one checkpoint interval."""
        due = self._saved_at + self._timing.checkpoint_seconds
        return due if due > now else now + self._timing.checkpoint_seconds

    def save_at(self) -> float:
        """Return when the progress of the reader is due to be saved; infinity if there is none."""
        reader = self.reader
        checkpoint = None if reader is None else reader.acked
        if reader is None or checkpoint is None or checkpoint == self._lease.checkpoint:
            return inf
        if self._has_ended or self._lease.is_finished:  # by a write whose response was lost: never undo that
            return inf
        is_urgent = reader.acks != self._saved_acks or self._lease.checkpoint.is_sentinel
        return self._saved_at + (self._timing.checkpoint_seconds if is_urgent else self._idle_interval)

    def renew_soon(self) -> None:
        """Renew the lease with the next batch. If the progress is due before the next renewal, save it."""
        try:
            self._free.acquire_nowait()
        except trio.WouldBlock:  # another write is running, and renews the lease
            self._retry_later()
            return
        started, reader = trio.current_time(), self.reader
        is_due = self.save_at() <= started + self._timing.renewal_interval
        checkpoint = reader.acked if reader is not None and is_due else None
        acks = 0 if reader is None else reader.acks
        self.renew_at = inf

        def settle(result: Lease | LeaseError) -> None:
            self._renewal = None
            self._free.release()
            if not self._has_ended:
                self._settle(result, started)
                if checkpoint is not None and isinstance(result, Lease):
                    self._saved(checkpoint, started, acks)

        renewal = RenewLease(self._known(self._lease, checkpoint), checkpoint, self._kbps())
        self._renewal = self._writer.put(renewal, settle)

    def _settle(self, result: Lease | LeaseError, started: float) -> None:
        if isinstance(result, Lease):
            self._lease, self._is_in_doubt = result, False
            self._written(started)
        elif result.retryable:
            self._is_in_doubt = self._is_store_down = True
            self._retry_later()
        elif isinstance(result, LeaseLostError) and not self._is_in_doubt:
            self.mark_lost("taken")
        else:
            self.unresolved = result
            self.renew_at = trio.current_time()
            self._on_due(self)

    def _retry_later(self) -> None:
        self.renew_at = trio.current_time() + self._timing.retry_interval
        self._on_due(self)

    # --- one write -------------------------------------------------------------------------------------------

    def _known(self, lease: Lease, checkpoint: Checkpoint | None = None) -> Lease:
        """Return the lease for a write that saves this checkpoint, with all that this worker knows of its shard."""
        if lease.stream_created_at is None:
            lease = replace(lease, stream_created_at=self._stream_created_at())
        reader = self.reader
        # The time belongs to the checkpoint that the row has after the write.
        if reader is None or reader.acked not in {checkpoint or lease.checkpoint, None}:
            return lease
        since = self.unread_since()
        return lease if since is None else replace(lease, unread_since=since)

    def _kbps(self) -> float | None:
        if self.reader is None:
            return None
        return self._throughput.measure(self.reader.bytes_received, trio.current_time())

    async def _call(self, operation: LeaseOperation, call: Awaitable[Lease]) -> Lease:
        with report_store_call(self._observer, operation, self._lease.key):
            return await call

    async def _write(self, write: Callable[[Lease], Awaitable[Lease]]) -> None:
        async with self._free:
            if self._has_ended:
                raise LeaseLostError(f"lease {self._lease.key} is not held by this worker any more")
            started, acks = trio.current_time(), 0 if self.reader is None else self.reader.acks
            previous = self._lease
            try:
                self._lease = await self._try_write(write)
            except LeaseLostError:
                self.mark_lost("taken")
                raise
            if self._lease.counter == previous.counter:  # `save_children` is no renewal
                return
            self._written(started)
            if self._lease.checkpoint != previous.checkpoint:
                self._saved(self._lease.checkpoint, started, acks)

    def _written(self, started: float) -> None:
        if self._lease.checkpoint_owner is not None:
            self._set_handoff_requested()
        self._extend_trust(started)

    def _saved(self, checkpoint: Checkpoint, started: float, acks: int) -> None:
        self._saved_at, self._saved_acks = started, acks
        if self.reader is not None:
            self.reader.saved(acks)
        self._observer(CheckpointSaved(self._lease.key, checkpoint))

    def _extend_trust(self, started: float) -> None:
        """Rely on the lease from the start of the write. Other workers count from later, when they see the write."""
        self.trusted_until = started + TRUSTED_SHARE * self._timing.failover_seconds
        self.renew_at = started + self._timing.renewal_interval
        self._is_store_down = False
        self._on_due(self)

    async def _try_write(self, write: Callable[[Lease], Awaitable[Lease]]) -> Lease:
        try:
            lease = await write(self._lease)
        except LeaseLostError:
            if not self._is_in_doubt:
                raise
            self._lease = await self._resolve()
            lease = await write(self._lease)
        except BaseException:
            self._is_in_doubt = True
            raise
        if lease.counter != self._lease.counter:  # `save_children` does not change it, and does not end the doubt
            self._is_in_doubt = False
        return lease

    async def _resolve(self) -> Lease:
        """Return the row if the write in doubt took place: the same holder, and the counter is one ahead.

        Called in doubt only. Otherwise such a row was written by a second worker with the same id.
        """
        row = await self._store.get(self._lease.key)
        if row is None or (row.holder, row.counter) != (self._lease.holder, self._lease.counter + 1):
            raise transitions.lease_lost(self._lease)
        return row

    def _set_handoff_requested(self) -> None:
        if not self.handoff_requested.is_set():
            self.handoff_requested.set()
            self._on_requested()
            self._on_handoff_requested()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            if self._renewal is not None:
                self._writer.withdraw(self._renewal, hangs=True)
            if self.lost.is_set():
                self._on_lost()
            self._on_end(self)


@contextmanager
def report_store_call(observer: Observer, operation: LeaseOperation, shard_id: str) -> Iterator[None]:
    """Report an operation on the lease store, its duration and its error."""
    started = trio.current_time()
    error_type: str | None = None
    detail = ""
    try:
        yield
    except EfoError as error:
        error_type, detail = error.error_type, detail_of(error)
        raise
    except BaseException as error:
        error_type = "cancelled" if isinstance(error, trio.Cancelled) else error_type_of(error)
        raise
    finally:
        observer(LeaseStoreCalled(operation, shard_id, trio.current_time() - started, error_type, detail=detail))
