"""Writes the leases of one worker in batches (group commit): while one batch is written, the next one gathers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import trio

from efo.errors import EfoError, LeaseError, LeaseStoreUnavailableError, without_tracebacks
from efo.events import LeaseOperation, LeaseStoreCalled, Observer
from efo.leases.store import LeaseStore
from efo.leases.writes import LeaseWrite, ReleaseLease, RenewLease, TakeLease, write_one
from efo.model import Lease

PATIENCE_SHARE: Final = 0.05
"""How long a batch waits for the one before it, as a share of the fail-over time: one that hangs must not stop all."""

MAX_BATCH: Final = 1000
"""The maximum number of writes in a batch. A store in memory, and the settling of any batch, take 14 µs for each: the
renewals of 4,000 leases at once would keep other tasks from running for more than 50 ms."""


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A write without a result. `settle`: receives the result. `batch`: the batch that is being written, with it."""

    write: LeaseWrite
    operation: LeaseOperation
    settle: Callable[[Lease | LeaseError], None]
    batch: _Batch | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    """Writes that share a call of the store. `wanted`: how many of them somebody waits for."""

    entries: Sequence[PendingWrite]
    wanted: int
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_done: trio.Event = field(default_factory=trio.Event)


class LeaseWriter:
    """Writes leases to `store` in batches while `run` runs, and one by one otherwise.

    A write that fails has no effect on the others of its batch. If a batch as a whole fails, hangs for
    `failover_seconds` or is cancelled, each of its writes fails with LeaseStoreUnavailableError: whether it took
    place is unknown.
    """

    def __init__(self, store: LeaseStore, failover_seconds: float, observer: Observer) -> None:
        self._store = store
        self._failover_time = failover_seconds
        self._observer = observer
        self._queue: list[PendingWrite] = []
        self._queued = trio.Event()
        self._is_running = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write batches until cancelled."""
        self._is_running = True
        try:
            async with trio.open_nursery() as nursery:
                task_status.started()
                while True:
                    await self._queued.wait()
                    await trio.lowlevel.checkpoint()  # for the other tasks that write now
                    batch = self._next_batch()
                    nursery.start_soon(self._write_batch, batch)
                    with trio.move_on_after(PATIENCE_SHARE * self._failover_time):
                        await batch.is_done.wait()
        finally:
            self._is_running = False
            _settle_all(self._queue, LeaseStoreUnavailableError("the lease coordinator has ended"))

    def _next_batch(self) -> _Batch:
        """Remove the first write of each lease from the queue, up to MAX_BATCH.

        A former holder of a lease may still have one in it. Writes of one lease stay in their order.
        """
        first: dict[str, PendingWrite] = {}
        rest = []
        for entry in self._queue:
            key = entry.write.lease.key
            if key in first or len(first) == MAX_BATCH:
                rest.append(entry)
            else:
                first[key] = entry
        self._queue = rest
        if not self._queue:
            self._queued = trio.Event()
        return _batch_of(list(first.values()))

    def put(
        self, write: LeaseWrite, settle: Callable[[Lease | LeaseError], None], operation: LeaseOperation | None = None
    ) -> PendingWrite:
        """Add a write to the next batch. `settle` receives its result, and must not raise. `operation`: for reports."""
        entry = PendingWrite(write, operation or _operation_of(write), settle)
        self._queue.append(entry)
        self._queued.set()
        return entry

    def withdraw(self, entry: PendingWrite, *, hangs: bool = False) -> None:
        """Stop waiting for a write. It fails, and its effect is unknown if its batch is being written.

        The batch is cancelled if nobody waits for any of its writes, or if it `hangs`: the store gives no response.
        """
        if entry.batch is None:
            with suppress(ValueError):
                self._queue.remove(entry)
                entry.settle(LeaseStoreUnavailableError("the write was withdrawn"))
            return
        entry.batch.wanted -= 1
        if hangs or not entry.batch.wanted:
            entry.batch.scope.cancel()

    async def write(self, write: LeaseWrite, operation: LeaseOperation | None = None) -> Lease:
        """Write with the next batch; return the row after the write. Raises LeaseError."""
        results: list[Lease | LeaseError] = []
        is_done = trio.Event()

        def settle(result: Lease | LeaseError) -> None:
            results.append(result)
            is_done.set()

        entry = self.put(write, settle, operation)
        if self._is_running:
            try:
                await is_done.wait()
            except trio.Cancelled:
                self.withdraw(entry)
                raise
        else:
            self._queue.remove(entry)
            await self._write_batch(_batch_of([entry]))
        (result,) = results
        if isinstance(result, LeaseError):
            raise copy.copy(result) from result  # several writes may share the error of their batch
        return result

    async def _write_batch(self, batch: _Batch) -> None:
        started = trio.current_time()
        batch.scope.deadline = started + self._failover_time
        unsettled = dict(enumerate(batch.entries))
        ended: dict[tuple[LeaseOperation, str | None, str, str], list[str]] = {}
        is_cancelled = False

        def settle(index: int, result: Lease | LeaseError) -> None:
            entry = unsettled.pop(index)
            error_type, detail = None, ""
            if is_cancelled:  # the store did not fail
                error_type = "cancelled"
            elif isinstance(result, LeaseError):
                error_type, detail = without_tracebacks(result).error_type, detail_of(result)
            key = entry.write.lease.key
            apart = key if isinstance(entry.write, TakeLease) else ""  # each take is reported by itself
            ended.setdefault((entry.operation, error_type, detail, apart), []).append(key)
            entry.settle(result)

        error: LeaseError = LeaseStoreUnavailableError("the lease store did not respond in time")
        try:
            with batch.scope:
                await self._perform([entry.write for entry in batch.entries], settle)
        except LeaseError as failure:
            error = failure
        except BaseException:
            error, is_cancelled = LeaseStoreUnavailableError("the write was cancelled"), True
            raise
        finally:
            for index in list(unsettled):
                settle(index, error)
            batch.is_done.set()
            for entry in batch.entries:  # a cycle would live until a garbage collection
                entry.batch = None
            for (operation, error_type, detail, _), keys in ended.items():
                key = keys[0] if len(keys) == 1 else ""
                duration = trio.current_time() - started
                self._observer(LeaseStoreCalled(operation, key, duration, error_type, len(keys), detail))

    async def _perform(self, writes: list[LeaseWrite], settle: Callable[[int, Lease | LeaseError], None]) -> None:
        if len(writes) == 1:
            settle(0, await write_one(self._store, writes[0]))
        elif writes:
            await self._store.write_many(writes, settle)


def detail_of(error: EfoError) -> str:
    """Return why the store could not be used; empty for all else, which many workers report in daily life."""
    return str(error) if isinstance(error, LeaseStoreUnavailableError) else ""


def _batch_of(entries: list[PendingWrite]) -> _Batch:
    batch = _Batch(entries, len(entries))
    for entry in entries:
        entry.batch = batch
    return batch


def _operation_of(write: LeaseWrite) -> LeaseOperation:
    match write:
        case TakeLease():
            return "take"
        case ReleaseLease():
            return "release"
        case RenewLease(checkpoint=None):
            return "renew"
        case RenewLease():
            return "checkpoint"


def _settle_all(entries: list[PendingWrite], error: LeaseError) -> None:
    while entries:
        entries.pop().settle(error)
