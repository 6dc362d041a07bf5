"""A worker of a world: its process runs, crashes or stops, and starts again, as under an orchestrator."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import trio

from efo import events
from efo.consumer.consumer import Consumer
from efo.consumer.opening import open_consumer
from efo.consumer.shard_task import ShardReader
from efo.errors import EfoError
from efo.kinesis.client import KinesisClient
from efo.model import Checkpoint, Position
from efo.settings import ConsumerSettings
from proofs.simulation.assignments import strategy_of
from proofs.simulation.checks.leaks import find_leaks
from proofs.simulation.plan import Plan
from proofs.simulation.readers import AddLine, HandlerError
from proofs.simulation.store_faults import FaultyLeaseStore, LeaseRows, StoreFault
from proofs.simulation.story import (
    Closed,
    Crashed,
    Exited,
    Line,
    Lost,
    Opened,
    Reported,
    Repositioned,
    SkippedByPolicy,
    Violation,
)

MakeReader = Callable[["WorkerProcess", Callable[[], object]], ShardReader]
"""Returns the reader of a process. The function crashes the process."""
STOP_TIMEOUT = 60.0
"""Seconds that a graceful stop may take, besides the longest delays of a handler."""


class WorkerProcess:
    """One process of a worker, from its start to its end. What it does after a crash does not count."""

    def __init__(self, worker_id: str, name: str, plan: Plan, add_line: AddLine) -> None:
        self.worker_id = worker_id
        self.name = name
        self.has_crashed = False
        self.is_stopping = False
        self.has_started = False
        self.arn = ""
        self.consumer: Consumer | None = None
        self.scope = trio.CancelScope()
        self._plan = plan
        self._add_line = add_line

    def add_line(self, line: Line) -> None:
        """Add a line to the story, unless this process has crashed."""
        if not self.has_crashed:
            self._add_line(line)

    def observe(self, event: events.Event) -> None:
        """Add a diagnostic event of the consumer to the story."""
        self.has_started |= isinstance(event, events.ShardsCounted)
        if isinstance(event, events.ConsumerReady):
            self.arn = event.arn
        self.add_line(self._line(event))

    def _line(self, event: events.Event) -> Line:  # noqa: PLR0911 - a table
        match event:
            case events.ShardStarted(shard_id=shard, checkpoint=checkpoint):
                return Opened(self.name, self.worker_id, shard, checkpoint, self._plan.key_concurrency > 1)
            case events.ShardRepositioned(shard_id=shard, to=Checkpoint() as to):
                return Repositioned(self.name, shard, to)
            case events.ShardFinished(shard_id=shard):
                return Closed(self.name, shard, is_finished=True)
            case events.ShardStopped(shard_id=shard, error_type=error):
                return Closed(self.name, shard, is_finished=False, error=error)
            case events.LeaseLost(shard_id=shard, reason=reason) if reason != "released":
                return Lost(self.name, shard, reason)
            case events.RecordSkipped() | events.RecordDeadLettered():
                return SkippedByPolicy(
                    self.name, event.shard_id, (int(event.sequence_number), event.sub_sequence_number)
                )
            case _:
                return Reported(self.name, event)


class Worker:
    """Runs one process at a time and restarts it until `finish`. `crash` and `stop` end the current process.

    `mates`: other consumers in the same process of the operating system, which crash with this one.
    """

    def __init__(
        self,
        number: int,
        plan: Plan,
        kinesis: KinesisClient,
        rows: LeaseRows,
        add_line: AddLine,
        make_reader: MakeReader,
        position: Position,
        application: str,
    ) -> None:
        self.process: WorkerProcess | None = None
        self.crashes = 0
        self.mates: list[Worker] = []
        self.number = number
        self._plan = plan
        self._kinesis = kinesis
        self._rows = rows
        self._add_line = add_line
        self._make_reader = make_reader
        self._position = position
        self._application = application
        self._rng = Random(f"worker {plan.seed} {number}")
        self._starts = 0
        self._store: FaultyLeaseStore | None = None
        self._store_fault = StoreFault.NONE
        self._finishing = trio.Event()

    async def run(self) -> None:
        """Run one process after the other until `finish`."""
        await trio.sleep(self._plan.history + self._rng.choice((0.0, 0.0, self._rng.uniform(0.0, 30.0))))
        while not self._finishing.is_set():
            await self._run_process()
            downtime = self._rng.choice((0.0, self._rng.uniform(0.0, 5.0), self._rng.uniform(0.0, 40.0)))
            with trio.move_on_after(downtime):
                await self._finishing.wait()

    def crash(self) -> bool:
        """End the process as SIGKILL does, with all its consumers. Return whether this one was running."""
        for mate in self.mates:
            mate.crash_alone()
        return self.crash_alone()

    def crash_alone(self) -> bool:
        """Crash this consumer only."""
        if self.process is None or self.process.has_crashed or self._store is None:
            return False
        self.process.add_line(Crashed(self.process.name, self.process.worker_id))
        self.process.has_crashed = self._store.is_cut = True
        self.process.scope.cancel()
        self.crashes += 1
        return True

    def stop(self) -> bool:
        """End the process gracefully, as SIGTERM does. Return whether one was running."""
        if self.process is None or self.process.consumer is None or self.process.is_stopping:
            return False
        self.process.is_stopping = True
        self.process.consumer.drain()
        return True

    def finish(self) -> None:
        """Stop gracefully, and do not start again."""
        self._finishing.set()
        if not self.stop() and self.process is not None and self.process.consumer is None:
            self.process.scope.cancel()  # it still waits for the fan-out consumer

    def set_store_fault(self, fault: StoreFault) -> None:
        """Set the fault between this worker and the lease store, for this process and later ones."""
        self._store_fault = fault
        if self._store is not None:
            self._store.set_fault(fault)

    async def _run_process(self) -> None:
        self._starts += 1
        worker_id = f"w{self.number}.{self._starts}" if self._plan.new_worker_ids else f"w{self.number}"
        self.process = process = WorkerProcess(worker_id, f"w{self.number}.{self._starts}", self._plan, self._add_line)
        leases = self._rows.store_of(process, self.crash)
        self._store = FaultyLeaseStore(
            self._rows,
            leases,
            process.name,
            worker_id,
            process.add_line,
            Random(f"way {self._plan.seed} {process.name}"),
            crash=self.crash,
            end_crash_rate=self._plan.end_crash_rate,
        )
        self._store.set_fault(self._store_fault)
        error: Exception | None = None
        with process.scope:
            try:
                async with self._rows.opened(leases):
                    await self._consume(process, self._store)
            except (EfoError, HandlerError) as failure:
                error = failure
        if (
            not process.has_crashed
            and error is not None
            and process.has_started
            and not isinstance(error, HandlerError)
        ):
            self._add_line(Violation(f"{process.name} failed: {type(error).__name__}: {error}"))
        if process.consumer is not None and (leaks := find_leaks(process.consumer)):
            self._add_line(Violation(f"{process.name} has ended, but still holds: {leaks}"))
        process.add_line(Exited(process.name, None if error is None else type(error).__name__))
        self.process = None

    async def _consume(self, process: WorkerProcess, store: FaultyLeaseStore) -> None:
        plan, name = self._plan, process.name
        settings = ConsumerSettings(
            initial_position=self._position,
            read_mode=plan.read_mode,
            poll_seconds=plan.poll_seconds,
            failover_seconds=plan.failover_seconds,
            checkpoint_seconds=plan.checkpoint_seconds,
            shard_sync_seconds=plan.shard_sync_seconds,
            stream_window=plan.stream_window,
            unsubscribe_idle_seconds=plan.unsubscribe_idle_seconds,
            subscribes_per_second=plan.subscribes_per_second,
            graceful_handoff=plan.graceful_handoff,
            handoff_seconds=plan.handoff_seconds,
            balance="throughput" if plan.balance_by_throughput else "count",
            max_leases=plan.max_leases,
            max_leases_per_scan=plan.max_leases_per_scan,
            assignment=strategy_of(plan.assignment, plan.seed),
            lease_scan_seconds=plan.lease_scan_seconds,
            timing=plan.timing,
            aggregates=plan.aggregates,
        )
        rng = Random(f"consumer {plan.seed} {name}")
        opening = open_consumer(
            self._kinesis,
            application=self._application,
            leases=store,
            worker_id=process.worker_id,
            settings=settings,
            observer=process.observe,
            rng=rng,
        )
        async with opening as consumer:
            process.consumer = consumer
            if self._finishing.is_set():
                return
            await consumer.run(self._make_reader(process, self.crash))
