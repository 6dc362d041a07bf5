"""A worker's way to the lease store: it may be down, hang, be slow, or lose the answer of a write that took place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from random import Random
from typing import TypeVar

import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.leases.store import LeaseStore
from efo.model import Checkpoint, Lease
from proofs.simulation.story import ChildrenSaved, Created, Deleted, Held, Line, Saved, StoreFailed

T = TypeVar("T")


class Trouble(StrEnum):
    """What is wrong with a way."""

    NONE = "none"
    DOWN = "down"
    HANG = "hang"
    SLOW = "slow"
    UNANSWERED = "unanswered"
    FLAKY = "flaky"
    """Each call meets one of the others, or none."""


_FLAKY = (Trouble.NONE, Trouble.NONE, Trouble.DOWN, Trouble.SLOW, Trouble.UNANSWERED)


class Rows:
    """The store that all share, and its rows as the last write left them: what a write changed is told by them."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self._rows: dict[str, Lease] = {}

    def changes(self, worker: str, worker_id: str, row: Lease) -> list[Line]:
        """Return what this worker's write has changed."""
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

    def gone(self, worker: str, key: str) -> list[Line]:
        """Take note that this worker has deleted a row."""
        return [] if self._rows.pop(key, None) is None else [Deleted(worker, key)]

    def forget_holder(self, key: str) -> None:
        """Let the next change tell the holder, whoever it was."""
        self._rows[key] = replace(self._rows[key], owner=None, checkpoint_owner=None)

    def children(self, key: str, children: tuple[str, ...]) -> ChildrenSaved:
        """Take note that a shard's children were saved."""
        self._rows[key] = replace(self._rows[key], children=children)
        return ChildrenSaved(key, children)


class Way:
    """A LeaseStore for one life of a worker, over the store that all share. `cut`: nothing gets through any more."""

    def __init__(self, rows: Rows, worker: str, worker_id: str, tell: Callable[[Line], None], rng: Random) -> None:
        self.cut = False
        self._trouble = Trouble.NONE
        self._rows = rows
        self._store = rows.store
        self._worker = worker
        self._worker_id = worker_id
        self._tell = tell
        self._rng = rng
        self._changed = trio.Event()

    def become(self, trouble: Trouble) -> None:
        """Be so from now on; calls that hang are answered when it is over."""
        self._trouble = trouble
        self._changed.set()
        self._changed = trio.Event()

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
                self._tell_all(self._rows.changes(self._worker, self._worker_id, lease))
            return created

        return await self._call(create)

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Become the owner."""

        async def take() -> Lease:
            taken = await self._store.take(lease, owner)
            self._rows.forget_holder(lease.key)  # told in any case: one may take again what was its own
            return taken

        return await self._write(take)

    async def request_handoff(self, lease: Lease, to: str) -> Lease:
        """Ask for a hand-off."""
        return await self._write(lambda: self._store.request_handoff(lease, to))

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Give a sign of life."""
        return await self._write(lambda: self._store.renew(lease, throughput_kbps))

    async def release(self, lease: Lease) -> Lease:
        """Let go."""
        return await self._write(lambda: self._store.release(lease))

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> Lease:
        """Save progress."""
        return await self._write(lambda: self._store.checkpoint(lease, checkpoint))

    async def prepare_checkpoint(self, lease: Lease, checkpoint: Checkpoint, state: bytes | None = None) -> Lease:
        """Save what the next checkpoint is about to be."""
        return await self._write(lambda: self._store.prepare_checkpoint(lease, checkpoint, state))

    async def save_children(self, lease: Lease, children: tuple[str, ...]) -> Lease:
        """Save the children's ids."""

        async def save() -> Lease:
            saved = await self._store.save_children(lease, children)
            self._tell(self._rows.children(lease.key, children))
            return saved

        return await self._call(save)

    async def reset(self, lease: Lease, checkpoint: Checkpoint, starts_at: float | None = None) -> Lease:
        """Put it elsewhere."""
        return await self._write(lambda: self._store.reset(lease, checkpoint, starts_at))

    async def delete(self, key: str) -> None:
        """Remove a lease."""

        async def delete() -> None:
            await self._store.delete(key)
            self._tell_all(self._rows.gone(self._worker, key))

        await self._call(delete)

    async def _write(self, operation: Callable[[], Awaitable[Lease]]) -> Lease:
        async def write() -> Lease:
            row = await operation()
            self._tell_all(self._rows.changes(self._worker, self._worker_id, row))
            return row

        return await self._call(write)

    def _tell_all(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._tell(line)

    async def _call(self, operation: Callable[[], Awaitable[T]]) -> T:
        trouble = self._trouble
        if trouble is Trouble.FLAKY:
            trouble = self._rng.choice(_FLAKY)
        if trouble is not Trouble.NONE:
            self._tell(StoreFailed(self._worker))
        if trouble is Trouble.SLOW:
            await trio.sleep(self._rng.uniform(0.0, 1.5))
        while self._trouble is Trouble.HANG:
            await self._changed.wait()
        if self.cut:
            raise LeaseLostError(f"{self._worker} is dead")
        if trouble is Trouble.DOWN:
            await trio.sleep(self._rng.uniform(0.0, 0.2))
            raise LeaseStoreUnavailableError(f"{self._worker} cannot reach the lease store")
        result = await operation()
        if trouble is Trouble.SLOW:
            await trio.sleep(self._rng.uniform(0.0, 1.5))
        elif trouble is Trouble.UNANSWERED:
            await trio.sleep(self._rng.uniform(0.0, 2.0))
            raise LeaseStoreUnavailableError(f"{self._worker} got no answer from the lease store")
        return result
