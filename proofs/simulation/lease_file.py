"""The SQLite lease store of a world: real SQLite on real files, on a machine whose processes and whose power fail.

All workers have a connection of their own to one file (`worker_leases`). A crash comes before any statement, within a
commit, or within a checkpoint of the WAL. What it leaves of the files is computed from what they were before and after
(`lease_images`), written over the files, and checked: SQLite finds no damage, and every row is as its last commit left
it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from efo.leases.lease_row import COLUMN_NAMES
from efo.leases.store import LeaseStore
from efo.model import Lease
from proofs.simulation.disk import ProcessKilled
from proofs.simulation.lease_images import Image
from proofs.simulation.plan import LeaseFilePlan
from proofs.simulation.store_faults import LeaseRows
from proofs.simulation.story import ChildrenSaved, LeaseFileCrash, LeaseFileCrashed, Line, Violation

if TYPE_CHECKING:
    from proofs.simulation.worker import WorkerProcess
    from proofs.simulation.worker_leases import WorkerLeases

Rows: TypeAlias = Mapping[str, tuple[Any, ...]]
Execute = Callable[..., sqlite3.Cursor]

MAX_DELAY: Final = 0.1
"""Seconds before and after a call at most. A store has one thread: calls that wait for each other must not take longer
than the last save may."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in it
_ROWS: Final = f"SELECT {', '.join(COLUMN_NAMES)} FROM lease"  # noqa: S608 - constants


class LeaseFile(LeaseRows):
    """The file, and what is known of its rows: those of the last commit.

    `application`, `stream`: whose leases it keeps. `crash_all` crashes all workers. `add_line`: for what no worker
    reports. `make_store`: returns the store for a process, which the function crashes.
    """

    def __init__(
        self,
        plan: LeaseFilePlan,
        application: str,
        stream: str,
        rng: Random,
        max_delay: float,
        crash_all: Callable[[], None],
        add_line: Callable[[Line], None],
        make_store: Callable[[LeaseFile, WorkerProcess, Callable[[], object]], WorkerLeases],
    ) -> None:
        super().__init__()
        self.plan = plan
        self.application = application
        self.stream = stream
        self.rng = rng
        self.max_delay = min(max_delay, MAX_DELAY)
        self.path = Path()
        self.threads: trio.Nursery | None = None
        self.open: list[WorkerLeases] = []
        self._committed: Rows = {}
        self._crash_all = crash_all
        self._add_line = add_line
        self._make_store = make_store

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the file, in memory if possible, and run what `SqliteLeaseStore` runs in threads. Check the end."""
        with TemporaryDirectory(prefix="efo-simulation-", dir=_MEMORY if _MEMORY.is_dir() else None) as name:
            self.path = Path(name) / "leases.db"
            async with trio.open_nursery() as self.threads:
                yield
            if self.open:
                self._add_line(Violation(f"{len(self.open)} connections to the lease store are open at the end"))
            self._check(self.read(), self._committed)

    def calm(self) -> None:
        """End all faults."""
        self.plan = replace(self.plan, kill=0.0, power=0.0)

    def store_of(self, process: WorkerProcess, crash: Callable[[], object]) -> LeaseStore:
        """Return the store for one process of a worker."""
        return self._make_store(self, process, crash)

    def opened(self, store: LeaseStore) -> AbstractAsyncContextManager[object]:
        """Open the connection of a process."""
        assert isinstance(store, AbstractAsyncContextManager)  # noqa: S101 - `store_of` returned it
        return store

    # Each commit reports its changes: when a call returns, another worker may have changed the row again.

    def changes(self, worker: str, worker_id: str, row: Lease) -> list[Line]:  # noqa: ARG002 - as in LeaseRows
        """Return no line."""
        return []

    def deletion(self, worker: str, key: str) -> list[Line]:  # noqa: ARG002 - as in LeaseRows
        """Return no line."""
        return []

    def children_saved(self, key: str, children: tuple[str, ...]) -> list[Line]:  # noqa: ARG002 - as in LeaseRows
        """Return no line."""
        return []

    def forget_holder(self, key: str) -> None:
        """Do nothing."""

    def report(self, by: WorkerLeases, rows: Rows) -> None:
        """Report the changes of a commit by this worker. `rows`: those after it."""
        process, add_line = by.process, by.process.add_line
        for key, values in rows.items():
            if values == self._committed.get(key):
                continue
            row, before = by.lease_of(values), self._rows.get(key)
            if key in by.taking and row.owner == process.worker_id:
                by.taking.discard(key)
                super().forget_holder(key)  # a worker may take its own expired lease: report that too
            for line in super().changes(process.name, process.worker_id, row):
                add_line(line)
            if row.children and (before is None or row.children != before.children):
                add_line(ChildrenSaved(key, row.children))
        for key in self._committed.keys() - rows.keys():
            for line in super().deletion(process.name, key):
                add_line(line)
        self._committed = rows

    # --- crashes -------------------------------------------------------------------------------------------

    def draw(self, weight: int = 1) -> LeaseFileCrash | None:
        """Decide whether the next step crashes. `weight`: how much more likely than usual."""
        draw = self.rng.random() / weight
        if draw < self.plan.kill:
            return "killed"
        return "power_failed" if draw < self.plan.kill + self.plan.power else None

    def read(self) -> Image:
        """Return the files as they are."""
        database, wal, index = (path.read_bytes() if path.exists() else None for path in self._paths)
        return Image(database or b"", wal, index)

    def crash(self, by: WorkerLeases, how: LeaseFileCrash, where: str, image: Image, rows: Rows | None = None) -> None:
        """Kill a process, or all of them. `image`: what is left of the files. `rows`: those after its commit.

        If that commit turns out to be durable, it takes effect before its process is dead. Raises ProcessKilled.
        """
        pending = None if rows == self._committed else rows
        for store in tuple(self.open):
            if store is by or how == "power_failed":
                store.die()
        self.write(image)
        is_durable = self._check(image, self._committed, pending)
        what = where if pending is None else f"{where}, which is {'kept' if is_durable else 'lost'}"
        by.process.add_line(LeaseFileCrashed(by.process.name, how, what))
        if is_durable and pending is not None:
            self.report(by, pending)
        if how == "power_failed":
            self._crash_all()
        raise ProcessKilled

    def write(self, image: Image) -> None:
        """Write over the files, in place: other processes may have them open."""
        for path, content in zip(self._paths, (image.database, image.wal, image.index), strict=True):
            if content is None:
                path.unlink(missing_ok=True)
                continue
            with path.open("r+b" if path.exists() else "wb") as file:
                file.write(content)
                file.truncate()

    @property
    def _paths(self) -> tuple[Path, Path, Path]:
        return self.path, self.path.with_name("leases.db-wal"), self.path.with_name("leases.db-shm")

    def _check(self, image: Image, expected: Rows, pending: Rows | None = None) -> bool:
        """Check what SQLite reads from copies of the files. Return whether the pending commit is durable."""
        with TemporaryDirectory(dir=self.path.parent) as name:
            path = Path(name) / "copy.db"
            path.write_bytes(image.database)
            if image.wal is not None:
                path.with_name("copy.db-wal").write_bytes(image.wal)
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
                rows = read_rows(connection.execute)
            except sqlite3.Error as error:
                finding, rows = str(error), {}
            finally:
                connection.close()
        if finding != "ok":
            self._add_line(Violation(f"the lease store is damaged: {finding}"))
        elif rows == pending:
            return True
        elif rows != expected:
            keys = sorted(key for key in expected.keys() | rows.keys() if expected.get(key) != rows.get(key))
            self._add_line(Violation(f"the leases {keys} are not as their last commits left them"))
        return False


def read_rows(execute: Execute) -> dict[str, tuple[Any, ...]]:
    """Return the rows of a file by their keys; none if it has no table yet."""
    (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
    return {row[0]: row for row in execute(_ROWS)} if tables else {}
