"""The leases that this worker has asked other workers for, and waits for."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio

from efo.errors import LeaseLostError
from efo.events import Observer
from efo.leases.held_lease import reported
from efo.leases.store import LeaseStore
from efo.model import Lease


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done now.

    `handed`: leases that were handed to us, to be taken. `overdue`: those whose holder lets us wait too long, to be
    taken by force. `wanted`: those that were handed to us, and that another worker asked for before we saw it.
    """

    handed: tuple[Lease, ...] = ()
    overdue: tuple[Lease, ...] = ()
    wanted: tuple[Lease, ...] = ()


class Handoffs:
    """Asks for leases, and knows which of them are due. `timeout`: seconds to wait for a holder to let go."""

    def __init__(self, store: LeaseStore, worker_id: str, timeout: float, observer: Observer) -> None:
        self._store = store
        self._worker_id = worker_id
        self._timeout = timeout
        self._observer = observer
        self._until: dict[str, float] = {}

    async def ask(self, lease: Lease) -> None:
        """Ask for a lease. That it was let go of or asked for by another in the meantime is no error."""
        with suppress(LeaseLostError), reported(self._observer, "request_handoff", lease.key):
            await self._store.request_handoff(lease, self._worker_id)
            self._until[lease.key] = trio.current_time() + self._timeout

    def observe(self, rows: Sequence[Lease], held: Container[str]) -> Due:
        """Return what is due by the table. `held`: the keys of the leases in our hands.

        A request of ours that we know nothing of was made in an earlier life, or its answer was lost: we wait for that
        one too. One that the table does not show was replaced or overrun by another worker, or the table is a moment
        old: it is remembered until its time is over.
        """
        now = trio.current_time()
        open_ = {row.key: row for row in rows if row.key not in held and not row.is_finished}
        ours = [row for row in open_.values() if row.owner == self._worker_id]
        waiting = [row for row in ours if row.holder != self._worker_id]
        handed = [row for row in ours if row.holder == self._worker_id and row.key in self._until]
        wanted = [
            row
            for row in open_.values()
            if row.holder == self._worker_id and row.owner != self._worker_id and row.key in self._until
        ]
        due = {row.key: self._until.get(row.key, now + self._timeout) for row in waiting}
        self._until = {key: until for key, until in self._until.items() if key in open_ and until > now} | due
        return Due(tuple(handed), tuple(row for row in waiting if due[row.key] <= now), tuple(wanted))

    async def pass_on(self, lease: Lease) -> None:
        """Let go of a lease that was handed to us, for the worker that has asked for it since."""
        self.forget(lease.key)
        with suppress(LeaseLostError), reported(self._observer, "release", lease.key):
            await self._store.release(lease)

    def forget(self, key: str) -> None:
        """Wait for a lease no longer: it went another way."""
        self._until.pop(key, None)

    async def withdraw(self, held: Container[str]) -> None:
        """Take all requests back: the holders go on as if nothing had been, and what was let go of for us is free.

        Without this such leases would wait for us until they expire. Raises LeaseStoreUnavailableError.
        """
        for key in [key for key in self._until if key not in held]:
            with suppress(LeaseLostError), reported(self._observer, "withdraw", key):
                try:
                    await self._withdraw(key)
                except LeaseLostError:  # its holder let go between our look and our write, so that it is ours now
                    await self._withdraw(key)
            self.forget(key)

    async def _withdraw(self, key: str) -> None:
        row = await self._store.get(key)
        if row is None:
            return
        if row.holder == self._worker_id:  # it was let go of for us, and may be wanted by another since
            await self._store.release(row)
        elif row.owner == self._worker_id and row.checkpoint_owner is not None:
            await self._store.request_handoff(row, row.checkpoint_owner)
