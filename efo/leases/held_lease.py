"""One lease that this worker holds: its writes in a row, and how long it may be trusted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from efo.errors import EfoError, LeaseLostError, LeaseStoreUnavailableError
from efo.events import LeaseLost, LeaseOperation, LeaseStoreCalled, Observer
from efo.leases import transitions
from efo.leases.store import LeaseStore
from efo.model import SHARD_END, Checkpoint, Lease
from efo.protocol.throughput import Throughput

RENEWALS: Final = 3
"""Renewals in one fail-over time, as in KCL: two may fail."""
TRUSTED_SHARE: Final = 0.95
"""The share of the fail-over time for which we trust a lease. The rest is for its reader to stop, before another
worker may take it."""


class HeldLease:
    """A lease in our hands; made by LeaseKeeper.

    `lost` is set once the lease is no longer ours: stop reading. It is not set by the end of the shard, after which
    there is nothing to lose. `wanted` is set once another worker has asked for the lease: finish what is begun,
    checkpoint and release. Writes wait for each other, so none of them meets a counter that another one of ours has
    moved.

    `received`: for whoever reads the shard to set; returns how many bytes of it came so far. What the shard brings goes
    out with the renewals, which checkpoints spare if they come more often.
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
        on_wanted: Callable[[], None],
    ) -> None:
        self.lost = trio.Event()
        self.wanted = trio.Event()
        self.received: Callable[[], int] | None = None
        self._throughput = Throughput()
        self._lease = lease
        self._store = store
        self._failover_time = failover_time
        self._trusted_until = self._renew_at = taken_at
        self._confirm(taken_at)
        self._observer = observer
        self._on_end = on_end
        self._on_wanted = on_wanted
        self._one_at_a_time = trio.Lock()
        self._scope = trio.CancelScope()
        self._has_ended = False
        self._is_in_doubt = False  # whether a write was cut short, so that the row may be one ahead of us

    @property
    def lease(self) -> Lease:
        """The lease as we last wrote it."""
        return self._lease

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Save how far the shard is done. With SHARD_END the lease leaves our hands: there is no more to do.

        Raises LeaseLostError, and LeaseStoreUnavailableError: then it may or may not be saved; save again.
        """
        await self._write("checkpoint", lambda lease: self._store.checkpoint(lease, checkpoint))
        if checkpoint == SHARD_END:
            self._end()

    async def prepare_checkpoint(self, checkpoint: Checkpoint, state: bytes | None = None) -> None:
        """Save what the next checkpoint is about to be, with bytes of the reader's. Raises as `checkpoint` does."""
        await self._write("prepare_checkpoint", lambda lease: self._store.prepare_checkpoint(lease, checkpoint, state))

    async def confirm(self) -> None:
        """Make sure that the lease is ours at this moment. Raises as `checkpoint` does."""
        await self._write("renew", self._renew)

    async def save_children(self, children: tuple[str, ...]) -> None:
        """Save the ids of the shard's children (rule R2). Raises as `checkpoint` does."""
        await self._write("save_children", lambda lease: self._store.save_children(lease, children))

    async def release(self) -> None:
        """Let go, so that the worker that asked for the lease has it, or anybody can take it at once.

        Does nothing if it has ended already.

        Raises LeaseStoreUnavailableError; the lease is then still ours, until it expires.
        """
        try:
            await self._write("release", self._store.release)
        except LeaseLostError:
            return
        self.give_up("released" if self._lease.owner is None else "handed_over")

    def notice(self, row: Lease) -> None:
        """Take note of the row as somebody read it: it may show that another worker asks for the lease."""
        if not self._has_ended and row.checkpoint_owner == self._lease.holder and row.counter >= self._lease.counter:
            self._want()

    async def keep_alive(self) -> None:
        """Renew the lease until it ends; give it up when that does not succeed in time (rule R10)."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._renew_forever)
                # Apart from the renewals, so that one that hangs cannot hide that the time is up.
                while trio.current_time() < self._trusted_until:  # noqa: ASYNC110 - it moves on while we sleep
                    await trio.sleep_until(self._trusted_until)
                self.give_up("store" if self._is_store_down else "expired")

    def give_up(self, reason: str) -> None:
        """Regard the lease as lost, whatever its row says. `reason`: as in the event LeaseLost."""
        if not self._has_ended:
            self.lost.set()
            self._observer(LeaseLost(self._lease.key, reason))
            self._end()

    async def _renew_forever(self) -> None:
        while True:
            await trio.sleep_until(self._renew_at)
            if trio.current_time() < self._renew_at:
                continue  # another write was a sign of life too
            try:
                await self._write("renew", self._renew)
            except LeaseLostError:
                return
            except LeaseStoreUnavailableError:
                self._is_store_down = True
                self._renew_at = trio.current_time() + self._failover_time / (6 * RENEWALS)

    async def _renew(self, lease: Lease) -> Lease:
        kbps = None if self.received is None else self._throughput.measure(self.received(), trio.current_time())
        return await self._store.renew(lease, kbps)

    async def _write(self, operation: LeaseOperation, write: Callable[[Lease], Awaitable[Lease]]) -> None:
        async with self._one_at_a_time:
            if self._has_ended:
                raise LeaseLostError(f"lease {self._lease.key}: it is no longer in our hands")
            started = trio.current_time()
            try:
                with reported(self._observer, operation, self._lease.key):
                    self._lease = await self._attempt(write)
            except LeaseLostError:
                self.give_up("taken")
                raise
            if self._lease.checkpoint_owner is not None:
                self._want()
            if operation != "save_children":  # which tells nobody that we are alive
                self._confirm(started)

    def _confirm(self, started: float) -> None:
        """Trust the lease anew, from the start of the write: the others count from later, when they see it."""
        self._trusted_until = started + TRUSTED_SHARE * self._failover_time
        self._renew_at = started + self._failover_time / RENEWALS
        self._is_store_down = False

    async def _attempt(self, write: Callable[[Lease], Awaitable[Lease]]) -> Lease:
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
        if lease.counter != self._lease.counter:  # a write that moves no counter, as `save_children`, clears no doubt
            self._is_in_doubt = False
        return lease

    async def _resolve(self) -> Lease:
        """Return the row if the write that was cut short did take place: still ours and one ahead.

        Only asked in doubt. Otherwise such a row is the work of a second worker with our id.
        """
        row = await self._store.get(self._lease.key)
        if row is None or (row.holder, row.counter) != (self._lease.holder, self._lease.counter + 1):
            raise transitions.lost(self._lease)
        return row

    def _want(self) -> None:
        if not self.wanted.is_set():
            self.wanted.set()
            self._on_wanted()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._scope.cancel()
            self._on_end(self)


@contextmanager
def reported(observer: Observer, operation: LeaseOperation, shard_id: str) -> Iterator[None]:
    """Report an operation on the store, and how it went."""
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
