"""One lease that this worker holds: its writes, one at a time, and how long the worker may rely on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from efo.errors import EfoError, LeaseLostError, LeaseStoreUnavailableError
from efo.events import LeaseLost, LeaseOperation, LeaseStoreCalled, Observer
from efo.leases import transitions
from efo.leases.store import LeaseStore
from efo.model import Checkpoint, Lease
from efo.protocol.throughput import Throughput

RENEWALS: Final = 3
"""Renewals per fail-over time, as in KCL: two of them may fail."""
TRUSTED_SHARE: Final = 0.95
"""How long after a write this worker relies on a lease, as a share of the fail-over time. In the rest of it the reader
stops, before another worker may take the lease."""


class HeldLease:
    """A lease that this worker holds; created by LeaseKeeper.

    `lost`: set when this worker does not hold the lease any more: stop reading. The end of the shard does not set it.
    `handoff_requested`: set when another worker has requested the lease: finish the current work, checkpoint and
    release.
    `bytes_received`: set by the reader of the shard: returns the bytes received so far. Renewals save the throughput;
    frequent checkpoints replace renewals, and do not save it.

    Writes run one at a time, so that none of them meets a counter that another write of this worker has changed.
    """

    def __init__(
        self,
        lease: Lease,
        store: LeaseStore,
        *,
        taken_at: float,
        failover_time: float,
        observer: Observer,
        on_end: Callable[[HeldLease], None],
        on_handoff_requested: Callable[[], None],
    ) -> None:
        self.lost = trio.Event()
        self.handoff_requested = trio.Event()
        self.bytes_received: Callable[[], int] | None = None
        self._throughput = Throughput()
        self._lease = lease
        self._store = store
        self._failover_time = failover_time
        self._trusted_until = self._renew_at = taken_at
        self._extend_trust(taken_at)
        self._observer = observer
        self._on_end = on_end
        self._on_handoff_requested = on_handoff_requested
        self._write_lock = trio.Lock()
        self._scope = trio.CancelScope()
        self._has_ended = False
        self._is_in_doubt = False  # whether a write may have taken place unseen: the counter may be one ahead

    @property
    def lease(self) -> Lease:
        """The lease as this worker last wrote it."""
        return self._lease

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Save the progress. With SHARD_END this worker stops holding the lease: there is nothing left to read.

        Raises LeaseLostError, and LeaseStoreUnavailableError: the checkpoint may or may not be saved, save it again.
        """
        await self._write("checkpoint", lambda lease: self._store.checkpoint(lease, checkpoint))
        if checkpoint == Checkpoint.SHARD_END:
            self._end()

    async def prepare_checkpoint(self, checkpoint: Checkpoint, state: bytes | None = None) -> None:
        """Save the next checkpoint as pending, with bytes of the reader. Raises as `checkpoint` does."""
        await self._write("prepare_checkpoint", lambda lease: self._store.prepare_checkpoint(lease, checkpoint, state))

    async def confirm(self) -> None:
        """Renew the lease now, to check that this worker holds it. Raises as `checkpoint` does."""
        await self._write("renew", self._renew)

    async def save_children(self, children: tuple[str, ...]) -> None:
        """Save the ids of the shard's children (rule R2). Raises as `checkpoint` does."""
        await self._write("save_children", lambda lease: self._store.save_children(lease, children))

    async def release(self) -> None:
        """Release the lease, for the worker that requested it or for any worker.

        Does nothing if the lease has ended already. Raises LeaseStoreUnavailableError: this worker then still holds the
        lease, until it expires.
        """
        try:
            await self._write("release", self._store.release)
        except LeaseLostError:
            return
        self.mark_lost("released" if self._lease.owner is None else "handed_over")

    def observe_row(self, row: Lease) -> None:
        """Set `handoff_requested` if the row, as just read, shows that another worker has requested the lease."""
        if not self._has_ended and row.checkpoint_owner == self._lease.holder and row.counter >= self._lease.counter:
            self._set_handoff_requested()

    async def keep_alive(self) -> None:
        """Renew the lease until it ends. Give it up if no renewal succeeds in time (rule R10)."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._renew_forever)
                # Not in the task of the renewals: one of them may hang.
                while trio.current_time() < self._trusted_until:  # noqa: ASYNC110 - writes extend it
                    await trio.sleep_until(self._trusted_until)
                self.mark_lost("store" if self._is_store_down else "expired")

    def mark_lost(self, reason: str) -> None:
        """Treat the lease as lost, without a write. `reason`: as in the event LeaseLost."""
        if not self._has_ended:
            self.lost.set()
            self._observer(LeaseLost(self._lease.key, reason))
            self._end()

    async def _renew_forever(self) -> None:
        while True:
            await trio.sleep_until(self._renew_at)
            if trio.current_time() < self._renew_at:
                continue  # another write has renewed the lease
            try:
                await self._write("renew", self._renew)
            except LeaseLostError:
                return
            except LeaseStoreUnavailableError:
                self._is_store_down = True
                self._renew_at = trio.current_time() + self._failover_time / (6 * RENEWALS)

    async def _renew(self, lease: Lease) -> Lease:
        kbps = (
            None
            if self.bytes_received is None
            else self._throughput.measure(self.bytes_received(), trio.current_time())
        )
        return await self._store.renew(lease, kbps)

    async def _write(self, operation: LeaseOperation, write: Callable[[Lease], Awaitable[Lease]]) -> None:
        async with self._write_lock:
            if self._has_ended:
                raise LeaseLostError(f"lease {self._lease.key} is not held by this worker any more")
            started = trio.current_time()
            try:
                with report_store_call(self._observer, operation, self._lease.key):
                    self._lease = await self._try_write(write)
            except LeaseLostError:
                self.mark_lost("taken")
                raise
            if self._lease.checkpoint_owner is not None:
                self._set_handoff_requested()
            if operation != "save_children":  # which does not change the counter
                self._extend_trust(started)

    def _extend_trust(self, started: float) -> None:
        """Rely on the lease from the start of the write. Other workers count from later, when they see the write."""
        self._trusted_until = started + TRUSTED_SHARE * self._failover_time
        self._renew_at = started + self._failover_time / RENEWALS
        self._is_store_down = False

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
            self._on_handoff_requested()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._scope.cancel()
            self._on_end(self)


@contextmanager
def report_store_call(observer: Observer, operation: LeaseOperation, shard_id: str) -> Iterator[None]:
    """Report an operation on the lease store, its duration and its error."""
    started = trio.current_time()
    error_type: str | None = None
    try:
        yield
    except EfoError as error:
        error_type = error.error_type
        raise
    except BaseException as error:
        error_type = "cancelled" if isinstance(error, trio.Cancelled) else type(error).__name__
        raise
    finally:
        observer(LeaseStoreCalled(operation, shard_id, trio.current_time() - started, error_type))
