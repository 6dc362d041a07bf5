"""The embedded log on the simulated disk of a world: its writers, its maintenance, and what it holds by its own files.

Records take effect when the log holds them. That is read from the files after each piece of work on them, whatever the
work returned: a commit may be durable although its process was killed, and then its records must not come again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from efo_service.log.catalog import read_catalog
from efo_service.log.disk import DiskFiles
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.retention import RetentionRules
from efo_service.log.segments import last_segment, list_segments, read_parts
from efo_service.log.sink import LogSink
from efo_service.relay.errors import SinkError, TopicNotFoundError
from proofs.simulation.disk import Disk, DiskEvent, DiskFaults, DiskView, ProcessKilled
from proofs.simulation.plan import LogPlan
from proofs.simulation.story import Disked, Handled, Line, Mark, Violation

if TYPE_CHECKING:
    from proofs.simulation.worker import WorkerProcess

T = TypeVar("T")

TOPIC: Final = "orders"
MAINTENANCE_SHARE: Final = 0.05
"""How many pieces of work on the log are followed by maintenance."""


class SimulatedLog:
    """The log that all workers of a world share.

    `clock`: seconds since the epoch. `crash_all` crashes all workers, when the power fails. `add_line`: for what no
    worker reports.
    """

    def __init__(
        self,
        plan: LogPlan,
        stream: str,
        clock: Callable[[], float],
        rng: Random,
        max_delay: float,
        crash_all: Callable[[], None],
        add_line: Callable[[Line], None],
    ) -> None:
        self.plan = plan
        self.stream = stream
        self.clock = clock
        self.rng = rng
        self.max_delay = max_delay
        self.add_line = add_line
        self.crash_all = crash_all
        self.disk = Disk(clock, rng, faults=plan.faults, has_locks=plan.has_locks)
        self._root = DiskView(self.disk, is_exempt=True).root
        self._held: dict[str, list[Mark]] = {}

    def calm(self) -> None:
        """End all faults."""
        self.disk.faults = DiskFaults()

    def new_records(self) -> Iterator[tuple[str, tuple[Mark, ...]]]:
        """Yield the records that the log has had since the last call, by shard. It never has fewer."""
        with suppress(TopicNotFoundError):
            for shard_id, partition in read_catalog(DiskFiles(self._root), TOPIC).partitions.items():
                directory = self._root / TOPIC / str(partition)
                held = self._held.setdefault(shard_id, [])
                last = last_segment(directory)
                end = 0 if last is None else last.end
                if end < len(held):
                    self.add_line(Violation(f"the log of {shard_id} ends at {end}, but it had {len(held)} records"))
                if end > len(held):
                    marks = self._marks(directory, shard_id, len(held), end)
                    held += marks
                    yield shard_id, marks

    def conclude(self) -> None:
        """Check at the end that each partition has its records, or the newest of them after retention."""
        for shard_id, partition in read_catalog(DiskFiles(self._root), TOPIC).partitions.items() if self._held else ():
            directory, held = self._root / TOPIC / str(partition), self._held.get(shard_id, [])
            segments = list_segments(directory)
            base = segments[0].base if segments else 0
            if base and self.plan.retention is None:
                self.add_line(Violation(f"the log of {shard_id} begins at {base} without retention"))
            if list(self._marks(directory, shard_id, base, len(held))) != held[base:]:
                self.add_line(Violation(f"the log of {shard_id} has other records than were committed"))

    def _marks(self, directory: Any, shard_id: str, start: int, end: int) -> tuple[Mark, ...]:
        return tuple(
            _mark(headers)
            for _, batch in read_parts(directory, start, end, (self.stream, shard_id))
            for headers in batch.column("headers").to_pylist()
        )


class WorkerLog:
    """The log for one process of a worker. `sink`: what its relay writes to. `crash` crashes the process."""

    def __init__(
        self, log: SimulatedLog, process: WorkerProcess, crash: Callable[[], object], lock_timeout: float
    ) -> None:
        self._log = log
        self._process = process
        self._crash = crash
        self._view = DiskView(log.disk, self._report)
        files = DiskFiles(self._view.root, grace=log.plan.grace)
        self.sink = LogSink(files, TOPIC, clock=log.clock, lock_timeout=lock_timeout, run_blocking=self._run_blocking)
        rules = RetentionRules(seconds=log.plan.retention)
        self._maintenance = LogMaintenance(files, TOPIC, rules, fan_in=log.plan.fan_in)

    async def _run_blocking(self, work: Callable[[], T]) -> T:
        """Run work on files, as a thread would: it cannot be cancelled once it has begun."""
        await self._sleep()
        if self._process.has_crashed:
            self._view.die()
        try:
            try:
                return work()
            finally:
                self._report_records()
                if not self._view.is_dead and self._log.rng.random() < MAINTENANCE_SHARE:
                    self._maintain()
        except ProcessKilled:
            self._crash()
            await trio.sleep_forever()
            raise
        finally:
            with trio.CancelScope(shield=True):
                await self._sleep()

    def _maintain(self) -> None:
        with suppress(SinkError):
            report = self._maintenance.run(self._log.clock())
            if report is not None and report.compacted:
                self._add("compacted")
            if report is not None and report.expired:
                self._add("expired")

    def _report_records(self) -> None:
        for shard_id, marks in self._log.new_records():
            self._process.add_line(Handled(self._process.name, shard_id, marks))

    def _report(self, event: DiskEvent) -> None:
        """Report a fault. What the log holds after it takes effect before any worker crashes."""
        self._report_records()
        self._add(event)
        if event == "power_failed":
            self._log.crash_all()

    def _add(self, what: str) -> None:
        self._process.add_line(Disked(self._process.name, what))

    async def _sleep(self) -> None:
        await trio.sleep(self._log.rng.uniform(0.0, self._log.max_delay))


def _mark(headers: list[dict[str, Any]]) -> Mark:
    values = {header["key"]: header["value"] for header in headers}
    return int(values["kinesis.sequence"]), int(values["kinesis.sub_sequence"])
