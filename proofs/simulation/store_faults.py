"""Faults between a worker and the lease store: calls fail, hang or are slow, or the response of a write is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, TypeVar

import trio

from efo.errors import LeaseError, LeaseLostError, LeaseStoreUnavailableError
from efo.leases.store import LeaseStore
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.writes import LeaseWrite, SettleWrite, TakeLease
from efo.model import Checkpoint, Lease
from proofs.simulation.story import ChildrenSaved, Created, Deleted, Held, Line, Saved, StoreFailed

if TYPE_CHECKING:
    from proofs.simulation.worker import WorkerProcess

T = TypeVar("T")


class StoreFault(StrEnum):
    """What happens to the calls of a worker to the lease store."""

    NONE = "none"
    DOWN = "down"
    HANG = "hang"
    SLOW = "slow"
    UNANSWERED = "unanswered"
    """Calls take effect, but their responses are lost."""
    FLAKY = "flaky"
    """Each call meets one of the others at random, or none."""


_FLAKY = (StoreFault.NONE, StoreFault.NONE, StoreFault.DOWN, StoreFault.SLOW, StoreFault.UNANSWERED)


class LeaseRows:
    """The leases that all workers share, in memory. It turns each write into story lines, by a copy of the rows."""

    def __init__(self) -> None:
        self._rows: dict[str, Lease] = {}
        self.store = MemoryLeaseStore()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the leases."""
        return nullcontext()

    def calm(self) -> None:
        """End all faults of the store itself."""

    def store_of(self, process: WorkerProcess, crash: Callable[[], object]) -> LeaseStore:  # noqa: ARG002 - see LeaseFile
        """Return the store for one process of a worker. `crash` crashes it."""
        return self.store

    def opened(self, store: LeaseStore) -> AbstractAsyncContextManager[object]:
        """Open the store of a process."""
        return nullcontext(store)

    def changes(self, worker: str, worker_id: str, row: Lease) -> list[Line]:
        """Return the story lines of a write by this worker. `row`: the row after the write."""
        before = self._rows.get(row.key)
        self._rows[row.key] = row
        lines: list[Line] = []
        if before is None:
            since = None if row.latest_at is None else int(row.latest_at * 1000)
            lines.append(Created(row.key, row.checkpoint, since))
        if row.is_finished if before is None else row.checkpoint != before.checkpoint:
            lines.append(Saved(worker, row.key, row.checkpoint))
        if row.holder != (None if before is None else before.holder):
            lines.append(Held(worker, worker_id, row.key, row.holder))
        return lines

    def deletion(self, worker: str, key: str) -> list[Line]:
        """Return the story lines of the deletion of a row by this worker."""
        return [] if self._rows.pop(key, None) is None else [Deleted(worker, key)]

    def forget_holder(self, key: str) -> None:
        """Forget the holder of a row, so that the next write reports its holder in any case."""
        self._rows[key] = replace(self._rows[key], owner=None, checkpoint_owner=None)

    def children_saved(self, key: str, children: tuple[str, ...]) -> list[Line]:
        """Return the story line for the saved children of a shard."""
        self._rows[key] = replace(self._rows[key], children=children)
        return [ChildrenSaved(key, children)]


class FaultyLeaseStore:
    """A LeaseStore for one process of a worker, in front of its `store`.

    `is_cut`: the process was killed, and none of its calls reaches the store. `crash`: kills it; called with the
    probability `end_crash_rate` after a write about the children of a shard.
    """

    def __init__(
        self,
        rows: LeaseRows,
        store: LeaseStore,
        worker: str,
        worker_id: str,
        add_line: Callable[[Line], None],
        rng: Random,
        *,
        crash: Callable[[], object],
        end_crash_rate: float,
    ) -> None:
        self.is_cut = False
        self._fault = StoreFault.NONE
        self._rows = rows
        self._store = store
        self._worker = worker
        self._worker_id = worker_id
        self._add_line = add_line
        self._rng = rng
        self._crash = crash
        self._end_crash_rate = end_crash_rate
        self._fault_changed = trio.Event()

    def set_fault(self, fault: StoreFault) -> None:
        """Set the fault for the next calls. Calls that hang continue, unless the new fault is HANG too."""
        self._fault = fault
        self._fault_changed.set()
        self._fault_changed = trio.Event()

    def ensure_scope(self, application: str, stream: str) -> None:
        """Ask the shared store, without a fault: it is no call to a server."""
        self._store.ensure_scope(application, stream)

    async def list(self) -> Sequence[Lease]:
        """Return all leases."""
        return await self._call(self._store.list)

    async def get(self, key: str) -> Lease | None:
        """Return one lease."""
        return await self._call(lambda: self._store.get(key))

    async def create(self, lease: Lease) -> bool:
        """Add a lease."""

        async def create() -> bool:
            created = await self._store.create(lease)
            if created:
                self._add_lines(self._rows.changes(self._worker, self._worker_id, lease))
                if lease.parents:
                    self._crash_sometimes()
            return created

        return await self._call(create)

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Become the owner."""

        async def take() -> Lease:
            taken = await self._store.take(lease, owner)
            self._rows.forget_holder(lease.key)  # a worker may take its own expired lease: report that too
            return taken

        return await self._write(take)

    async def request_handoff(self, lease: Lease, to: str) -> Lease:
        """Request a hand-off."""
        return await self._write(lambda: self._store.request_handoff(lease, to))

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Renew the lease."""
        return await self._write(lambda: self._store.renew(lease, throughput_kbps))

    async def release(self, lease: Lease) -> Lease:
        """Release the lease."""
        return await self._write(lambda: self._store.release(lease))

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint, throughput_kbps: float | None = None) -> Lease:
        """Save a checkpoint."""
        return await self._write(lambda: self._store.checkpoint(lease, checkpoint, throughput_kbps))

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the ids of the children."""

        async def save() -> Lease:
            saved = await self._store.save_children(lease, children)
            self._add_lines(self._rows.children_saved(lease.key, children))
            self._crash_sometimes()
            return saved

        return await self._call(save)

    async def reset(self, lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
        """Move the lease to another checkpoint."""
        return await self._write(lambda: self._store.reset(lease, checkpoint, starts_at))

    async def delete(self, key: str) -> None:
        """Delete a lease."""

        async def delete() -> None:
            await self._store.delete(key)
            self._add_lines(self._rows.deletion(self._worker, key))

        await self._call(delete)

    async def write_many(self, writes: Sequence[LeaseWrite], settle: SettleWrite) -> None:
        """Write a batch. A fault applies to all of it: it is one call to the store."""
        results: dict[int, Lease | LeaseError] = {}

        async def write() -> None:
            await self._store.write_many(writes, results.__setitem__)
            for index, row in results.items():
                if isinstance(row, Lease):
                    if isinstance(writes[index], TakeLease):
                        self._rows.forget_holder(row.key)
                    self._add_lines(self._rows.changes(self._worker, self._worker_id, row))

        await self._call(write)
        for index, result in results.items():
            settle(index, result)

    async def _write(self, operation: Callable[[], Awaitable[Lease]]) -> Lease:
        async def write() -> Lease:
            row = await operation()
            self._add_lines(self._rows.changes(self._worker, self._worker_id, row))
            return row

        return await self._call(write)

    def _add_lines(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._add_line(line)

    def _crash_sometimes(self) -> None:
        if self._end_crash_rate and self._rng.random() < self._end_crash_rate:
            self._crash()

    async def _call(self, operation: Callable[[], Awaitable[T]]) -> T:
        fault = self._fault
        if fault is StoreFault.FLAKY:
            fault = self._rng.choice(_FLAKY)
        if fault is not StoreFault.NONE:
            self._add_line(StoreFailed(self._worker))
        if fault is StoreFault.SLOW:
            await trio.sleep(self._rng.uniform(0.0, 1.5))
        while self._fault is StoreFault.HANG:
            await self._fault_changed.wait()
        if self.is_cut:
            raise LeaseLostError(f"{self._worker} is dead")
        if fault is StoreFault.DOWN:
            await trio.sleep(self._rng.uniform(0.0, 0.2))
            raise LeaseStoreUnavailableError(f"{self._worker} cannot reach the lease store")
        result = await operation()
        if fault is StoreFault.SLOW:
            await trio.sleep(self._rng.uniform(0.0, 1.5))
        elif fault is StoreFault.UNANSWERED:
            await trio.sleep(self._rng.uniform(0.0, 2.0))
            raise LeaseStoreUnavailableError(f"{self._worker} got no answer from the lease store")
        return result
