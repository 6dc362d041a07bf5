"""The SQLite lease store of one process: its connection may die at each statement.

`SqliteLeaseStore` runs its work in threads; here it runs in a task of the world, so that the world repeats.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import trio

from efo.errors import EfoError
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.leases.writes import LeaseWrite, SettleWrite, TakeLease
from efo.model import Lease
from proofs.simulation.disk import ProcessKilled
from proofs.simulation.lease_file import Execute, LeaseFile, read_rows
from proofs.simulation.lease_images import (
    failed_between,
    failed_in_checkpoint,
    failed_in_commit,
    killed_in_checkpoint,
    killed_in_commit,
)
from proofs.simulation.story import LeaseFileCrash, Violation

if TYPE_CHECKING:
    from proofs.simulation.worker import WorkerProcess

T = TypeVar("T")

PAGE: Final = 4096
COMMIT_WEIGHT: Final = 5
CHECKPOINT_WEIGHT: Final = 10
"""How much more likely a commit and a checkpoint crash than another step: each has many states in between."""


class WorkerLeases(SqliteLeaseStore):
    """The lease store of one process of a worker. `crash` crashes the process.

    `taking`: the leases that it is taking. By its row alone, a lease that its owner takes again looks renewed.
    """

    def __init__(self, file: LeaseFile, process: WorkerProcess, crash: Callable[[], object]) -> None:
        super().__init__(file.path, file.application, file.stream)
        self.process = process
        self.taking: set[str] = set()
        self._file = file
        self._crash = crash
        self._live: CrashingConnection | None = None

    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except ProcessKilled:
            await trio.sleep_forever()
            raise
        except EfoError as error:
            self.process.add_line(Violation(f"{self.process.name} cannot open the lease store: {error}"))
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.has_crashed:
            self.die()
            return
        try:
            await super().__aexit__(kind, error, traceback)
        except ProcessKilled:
            self.die()  # if the process crashed while it closed the connection
            await trio.sleep_forever()

    async def take(self, lease: Lease, owner: str) -> Lease:
        """Become the owner."""
        self.taking.add(lease.key)
        return await super().take(lease, owner)

    async def write_many(self, writes: Sequence[LeaseWrite], settle: SettleWrite) -> None:
        """Write a batch."""
        self.taking |= {write.lease.key for write in writes if isinstance(write, TakeLease)}
        await super().write_many(writes, settle)

    def lease_of(self, values: tuple[Any, ...]) -> Lease:
        """Return the lease of a row of the file."""
        return self._lease_of(values)

    def die(self) -> None:
        """Close the connection as the end of its process does: without a checkpoint of the WAL."""
        if (connection := self._live) is not None:
            image = self._file.read()
            self._forget_connection()
            sqlite3.Connection.close(connection)
            if not self._file.open:  # SQLite made a checkpoint
                self._file.write(image)

    def _forget_connection(self) -> None:
        self._live = self._connection = None
        self._file.open.remove(self)

    # --- instead of threads --------------------------------------------------------------------------------

    async def _run_in_thread(self, work: Callable[[], T], *, abandon_on_cancel: bool = False) -> T:
        call = _Call(work)
        await self._single_thread.acquire_on_behalf_of(call)
        assert self._file.threads is not None  # noqa: S101 - the file is running
        self._file.threads.start_soon(self._run_call, call)
        with trio.CancelScope(shield=not abandon_on_cancel):
            await call.done.wait()
        if call.error is not None:
            raise call.error
        if not call.has_run:  # the process is dead, and is being cancelled
            if not abandon_on_cancel:
                raise ProcessKilled
            await trio.sleep_forever()
        result: T = call.result
        return result

    async def _run_call(self, call: _Call) -> None:
        """Run a call to its end, as a thread does: nobody can cancel it. It never runs if the process is dead."""
        await self._sleep()
        try:
            if not self.process.has_crashed:
                call.result = call.work()
                call.has_run = True
        except ProcessKilled:
            self._crash()
        except Exception as error:  # noqa: BLE001 - the caller raises it
            call.error = error
        await self._sleep()
        self._single_thread.release_on_behalf_of(call)
        call.done.set()

    async def _sleep(self) -> None:
        await trio.sleep(self._file.rng.uniform(0.0, self._file.max_delay))

    # --- steps that may crash ------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, factory=CrashingConnection)
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # instead, `commit` does the same as a step of its own
        connection.leases, self._live = self, connection
        self._file.open.append(self)
        return connection

    @property
    def is_alive(self) -> bool:
        """Whether the process has a connection."""
        return self._live is not None

    def execute(self, execute: Execute, sql: str, parameters: Sequence[Any]) -> sqlite3.Cursor:
        """Execute a statement. Raises ProcessKilled."""
        if not self.is_alive:
            raise ProcessKilled
        if sql == "COMMIT":
            return self._commit(execute, self._file.draw(COMMIT_WEIGHT))
        how = self._file.draw()
        if how is not None:
            image = self._file.read()
            if how == "power_failed":
                image = failed_between(image, self._file.rng, is_synced=_is_synced(execute))
            self._file.crash(self, how, "between two statements", image)
        return execute(sql, parameters)

    def _commit(self, execute: Execute, how: LeaseFileCrash | None) -> sqlite3.Cursor:
        file = self._file
        before = None if how is None else file.read()
        cursor = execute("COMMIT")
        rows = read_rows(execute)
        if before is not None and how is not None:
            after, is_synced = file.read(), _is_synced(execute)
            if how == "killed":
                image = killed_in_commit(before, after, file.rng)
            else:
                image = failed_in_commit(before, after, file.rng, is_synced=is_synced)
            file.crash(self, how, "in a commit", image, rows)
        file.report(self, rows)
        wal = file.read().wal
        if wal is not None and len(wal) >= file.plan.checkpoint_pages * PAGE:
            self._checkpoint(lambda: execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall())
        return cursor

    def close(self, close: Callable[[], None]) -> None:
        """Close the connection. The last one to close makes a checkpoint, and deletes the WAL. Raises ProcessKilled."""
        if not self.is_alive:
            return
        self._forget_connection()
        if self._file.open:
            close()
        else:
            self._checkpoint(close)

    def _checkpoint(self, work: Callable[[], object]) -> None:
        file, how = self._file, self._file.draw(CHECKPOINT_WEIGHT)
        before = None if how is None else file.read()
        work()
        if before is not None and how is not None:
            leave = killed_in_checkpoint if how == "killed" else failed_in_checkpoint
            file.crash(self, how, "in a checkpoint", leave(before, file.read(), file.rng))


class CrashingConnection(sqlite3.Connection):
    """A connection to SQLite whose process may die at each statement. `leases`: the store that opened it."""

    leases: WorkerLeases | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement. Raises ProcessKilled."""
        if self.leases is None:
            return super().execute(sql, parameters)
        return self.leases.execute(super().execute, sql, parameters)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. A dead process has nothing to roll back."""
        return (self.leases is None or self.leases.is_alive) and super().in_transaction

    def close(self) -> None:
        """Close the connection. Raises ProcessKilled."""
        if self.leases is None:
            super().close()
        else:
            self.leases.close(super().close)


@dataclass(slots=True, eq=False)
class _Call:
    """A call that runs as in a thread. `has_run`: it has a result."""

    work: Callable[[], Any]
    result: Any = None
    error: Exception | None = None
    has_run: bool = False
    done: trio.Event = field(default_factory=trio.Event)


def _is_synced(execute: Execute) -> bool:
    """Return whether each commit is synced: synchronous is FULL or EXTRA."""
    (synchronous,) = execute("PRAGMA synchronous").fetchone()
    return bool(synchronous >= 2)
