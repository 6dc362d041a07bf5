"""Requests of this worker for leases that other workers hold (graceful hand-off)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio

from efo.errors import LeaseLostError
from efo.events import Observer
from efo.leases.held_lease import report_store_call
from efo.leases.store import LeaseStore
from efo.model import Lease


@dataclass(frozen=True, slots=True)
class DueHandoffs:
    """The hand-offs that need an action now.

    `handed_over`: leases released for this worker: take them.
    `overdue`: leases that their holder did not release in time: take them by force.
    `requested`: leases released for this worker that another worker requested before this worker took them: release
    them.
    """

    handed_over: tuple[Lease, ...] = ()
    overdue: tuple[Lease, ...] = ()
    requested: tuple[Lease, ...] = ()


class Handoffs:
    """Requests leases and tracks the requests. `timeout`: seconds that a holder has to release a lease."""

    def __init__(self, store: LeaseStore, worker_id: str, timeout: float, observer: Observer) -> None:
        self._store = store
        self._worker_id = worker_id
        self._timeout = timeout
        self._observer = observer
        self._deadlines: dict[str, float] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether this worker waits for a lease."""
        return bool(self._deadlines)

    async def request(self, lease: Lease) -> None:
        """Request a lease. Does nothing if it was released, or requested by another worker, in the meantime."""
        deadline = trio.current_time() + self._timeout
        try:
            with suppress(LeaseLostError), report_store_call(self._observer, "request_handoff", lease.key):
                await self._store.request_handoff(lease, self._worker_id)
                self._deadlines[lease.key] = deadline
        except BaseException:  # it may have taken place, and must be withdrawn in the end
            self._deadlines.setdefault(lease.key, deadline)
            raise

    def observe(self, rows: Sequence[Lease], held: Container[str]) -> DueHandoffs:
        """Return the hand-offs that are due. `rows`: the lease table. `held`: the keys of this worker's held leases.

        The table may show a request of this worker that this object does not know: an earlier run made it, or its
        response was lost. Its timeout starts now. A request that the table does not show was replaced or overrun by
        another worker, or the table is stale: it is remembered until its timeout.
        """
        now = trio.current_time()
        not_held = {row.key: row for row in rows if row.key not in held and not row.is_finished}
        owned = [row for row in not_held.values() if row.owner == self._worker_id]
        waiting = [row for row in owned if row.holder != self._worker_id]
        handed_over = [row for row in owned if row.holder == self._worker_id and row.key in self._deadlines]
        requested = [
            row
            for row in not_held.values()
            if row.holder == self._worker_id and row.owner != self._worker_id and row.key in self._deadlines
        ]
        due = {row.key: self._deadlines.get(row.key, now + self._timeout) for row in waiting}
        self._deadlines = {
            key: deadline for key, deadline in self._deadlines.items() if key in not_held and deadline > now
        } | due
        return DueHandoffs(tuple(handed_over), tuple(row for row in waiting if due[row.key] <= now), tuple(requested))

    async def pass_on(self, lease: Lease) -> None:
        """Release a lease that was released for this worker, because another worker has requested it since."""
        self.forget(lease.key)
        with suppress(LeaseLostError), report_store_call(self._observer, "release", lease.key):
            await self._store.release(lease)

    def forget(self, key: str) -> None:
        """Stop waiting for a lease."""
        self._deadlines.pop(key, None)

    async def withdraw(self, held: Container[str]) -> None:
        """Withdraw all requests, and release the leases that were released for this worker.

        Otherwise these leases would wait for this worker until they expire. Raises LeaseStoreUnavailableError.
        """
        for key in [key for key in self._deadlines if key not in held]:
            with suppress(LeaseLostError), report_store_call(self._observer, "withdraw", key):
                try:
                    await self._withdraw(key)
                except LeaseLostError:  # the holder released the lease after the read: this worker holds it now
                    await self._withdraw(key)
            self.forget(key)

    async def _withdraw(self, key: str) -> None:
        row = await self._store.get(key)
        if row is None:
            return
        if row.holder == self._worker_id:  # released for this worker, and possibly requested by another one since
            await self._store.release(row)
        elif row.owner == self._worker_id and row.checkpoint_owner is not None:
            await self._store.request_handoff(row, row.checkpoint_owner)
