"""Runs one world: a fake, its workers, the actions of the plan, and a calm end in which everything must be done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final

import trio
import trio.testing

from efo.consumer.shard_task import ShardReader
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Position
from efo.testing import FakeKinesis
from efo.testing.errors import FakeError
from efo.testing.faults.kinds import NoResponse, Refuse, StaleListing
from efo.testing.faults.script import FaultScript, When
from proofs.simulation.checks import Checks, Guarantees
from proofs.simulation.leak_checks import stream_usage
from proofs.simulation.log import SimulatedLog, WorkerLog
from proofs.simulation.plan import SHORT_CLEANUP_AFTER, Action, Plan
from proofs.simulation.producer import STREAM, Producer
from proofs.simulation.readers import PlannedFailures, log_reader, reader
from proofs.simulation.sink import MemorySink
from proofs.simulation.store_faults import LeaseRows, StoreFault
from proofs.simulation.story import Acted, Positioned, Story, Violation
from proofs.simulation.worker import STOP_TIMEOUT, Worker, WorkerProcess

MEAN_STORE_FAULT: Final = 12.0
"""The mean duration of a fault between a worker and the lease store, in seconds."""
EPOCH: Final = 1_700_000_000.0
"""The wall clock at the start of a world, for the log, in seconds since the epoch."""
_STORE_FAULTS: Final = tuple(fault for fault in StoreFault if fault is not StoreFault.NONE)


@dataclass(slots=True)
class Tally:
    """Counts of what happened in a world. `peak_buffered`: the most bytes that one HTTP/2 stream buffered."""

    splits: int = 0
    merges: int = 0
    faults: int = 0
    crashes: int = 0
    virtual_seconds: float = 0.0
    peak_buffered: int = 0


class World:
    """The world of one seed. `run` it once, in its own trio run; `story` and `checks` then have the results."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tally = Tally()
        self._failures = PlannedFailures(plan)
        self._complete = trio.Event()
        self.checks = Checks(
            Guarantees(
                owns_position=plan.reader == "sink",
                at_latest=plan.at_latest,
                max_listing_lag=plan.max_listing_lag,
                max_save_delay=plan.checkpoint_interval + 2 * max(plan.max_rare_delay, plan.max_delay) + 1.0,
                max_zombie_time=plan.failover_time,
                may_skip=self._failures.may_skip,
            ),
            self._set_complete,
        )
        self.story = Story(trio.current_time, self.checks.check)
        # The texts are part of the seeds: another text is another world.
        self._random = Random(f"deeds {plan.seed}")
        self._script = FaultScript(seed=plan.seed)
        if plan.fault_rate:
            self._script = FaultScript.random(
                plan.seed, kinds=plan.fault_kinds, rate=plan.fault_rate, stop=plan.calm_from
            )
        self._sink = MemorySink(plan.guard, Random(f"sink {plan.seed}"), plan.max_delay, plan.failover_time)
        self._log: SimulatedLog | None = None
        if plan.log is not None:
            self._log = SimulatedLog(
                plan.log,
                STREAM,
                self._clock,
                Random(f"disk {plan.seed}"),
                plan.max_delay,
                self._crash_all,
                self.story.add,
            )
        self._workers: list[Worker] = []

    async def run(self) -> None:
        """Run the world and check it."""
        plan = self.plan
        async with FakeKinesis(settings=plan.fake, faults=self._script) as fake:
            producer = Producer(fake, plan, self._random, self.story.add)
            rows, kinesis = LeaseRows(MemoryLeaseStore()), fake.kinesis(STREAM)
            tasks_before = trio.lowlevel.current_statistics().tasks_living
            add_line = self.story.add
            position = self._initial_position(fake)
            self._workers = [
                Worker(n, plan, kinesis, rows, add_line, self._reader, position) for n in range(plan.workers)
            ]
            async with trio.open_nursery() as nursery:
                for worker in self._workers:
                    nursery.start_soon(worker.run)
                async with trio.open_nursery() as actions:
                    for at, action in plan.actions:
                        await trio.sleep_until(at)
                        self._perform(action, producer, fake, actions)
                        self._check_streams()
                    await trio.sleep_until(plan.calm_from)
                    actions.cancel_scope.cancel()
                await self._await_completion()
                await self._await_lease_cleanup()
                await self._finish(nursery)
            await self._check_leaks(producer, fake, tasks_before)
        if self._log is not None:
            self._log.conclude()
        self.checks.conclude()
        self.tally.splits, self.tally.merges = producer.splits, producer.merges
        self.tally.faults = len(self._script.fired)
        self.tally.crashes = sum(worker.crashes for worker in self._workers)
        self.tally.virtual_seconds = trio.current_time()

    def _reader(self, process: WorkerProcess, crash: Callable[[], object]) -> ShardReader:
        rng = Random(f"reader {self.plan.seed} {process.name}")
        if self._log is not None:
            return log_reader(self.plan, process, WorkerLog(self._log, process, crash, self._sink.lock_timeout))
        return reader(self.plan, process.name, process.add_line, self._failures, self._sink, process.observe, rng)

    def _initial_position(self, fake: FakeKinesis) -> Position:
        """Return where shards start that were never read, and add a time to the story."""
        if self.plan.at_time is None:
            return Position.latest() if self.plan.at_latest else Position.trim_horizon()
        time = fake.clock() + self.plan.at_time
        self.story.add(Positioned(int(time * 1000)))
        return Position.at_timestamp(time)

    def _clock(self) -> float:
        return EPOCH + trio.current_time()

    def _crash_all(self) -> None:
        for worker in self._workers:
            worker.crash()

    def _set_complete(self) -> None:
        self._complete.set()

    # --- the end -------------------------------------------------------------------------------------------

    async def _await_completion(self) -> None:
        """End all faults and wait until everything is done."""
        self._script.clear()
        if self._log is not None:
            self._log.calm()
        self.story.add(Acted("calm"))
        for worker in self._workers:
            worker.set_store_fault(StoreFault.NONE)
        with trio.move_on_after(self.plan.completion_timeout):
            while not self.checks.is_complete:
                self._complete = trio.Event()
                await self._complete.wait()
            delays_acks = self.plan.reader == "stream" or self.plan.holds
            while not delays_acks and not self.checks.is_settled:  # noqa: ASYNC110 - no event announces it
                await trio.sleep(1.0)
            return
        self.story.add(
            Violation(f"no progress: {self.plan.completion_timeout:g} s after the last fault: {self.checks.missing()}")
        )

    async def _await_lease_cleanup(self) -> None:
        """Wait until the leases of finished shards are deleted, if the plan deletes them early."""
        plan, checks = self.plan, self.checks
        if plan.lease_cleanup_after != SHORT_CLEANUP_AFTER:
            return
        # A lease is deleted only after the leases of the shard's parents.
        with trio.move_on_after(checks.generations * (plan.lease_cleanup_after + 2 * plan.shard_sync_interval)):
            while checks.undeleted_leases():  # noqa: ASYNC110 - no event announces it
                await trio.sleep(1.0)
        for shard in checks.undeleted_leases():
            self.story.add(Violation(f"{shard} is finished, but its lease still exists"))

    async def _finish(self, nursery: trio.Nursery) -> None:
        """Stop every worker gracefully."""
        self.story.add(Acted("finish"))
        for worker in self._workers:
            worker.finish()
        limit = STOP_TIMEOUT + 3 * max(self.plan.max_rare_delay, self.plan.max_delay)
        nursery.cancel_scope.deadline = trio.current_time() + limit

    async def _check_leaks(self, producer: Producer, fake: FakeKinesis, tasks_before: int) -> None:
        """Check that the workers left no task and no subscription behind."""
        await trio.testing.wait_all_tasks_blocked()
        left = trio.lowlevel.current_statistics().tasks_living - tasks_before
        if left:
            self.story.add(Violation(f"{left} tasks run after all workers have ended"))
        for shard in producer.shards:
            if live := fake.subscriptions(STREAM, shard).live:
                self.story.add(Violation(f"{live} subscriptions of {shard} are live after all workers have ended"))

    def _check_streams(self) -> None:
        """Check that no stream buffers more than its window, and that no worker has more streams than it needs."""
        for worker in self._workers:
            if worker.process is None or worker.process.consumer is None:
                continue
            usage = stream_usage(worker.process.consumer)
            self.tally.peak_buffered = max(self.tally.peak_buffered, usage.max_buffered)
            if usage.max_buffered > self.plan.stream_window:
                self.story.add(Violation(f"{worker.process.name} holds {usage.max_buffered} bytes of one stream"))
            if usage.open_streams > usage.max_streams:
                what = f"{usage.open_streams} streams, and {usage.max_streams} would be enough"
                self.story.add(Violation(f"{worker.process.name} has {what}"))

    # --- actions -------------------------------------------------------------------------------------------

    def _perform(self, action: Action, producer: Producer, fake: FakeKinesis, nursery: trio.Nursery) -> None:
        worker = self._random.choice(self._workers)
        match action:
            case "put":
                producer.put(self._random.randint(1, 12))
            case "burst":
                producer.put(60)
            case "aggregate":
                producer.aggregate()
            case "split" | "merge":
                producer.reshard(action)
            case "deregister":
                self._deregister(fake)
            case "stale_listing" | "control_plane_fault":
                self._inject_control_plane_fault(action)
            case _:
                self._perform_on_worker(worker, action, nursery)

    def _perform_on_worker(self, worker: Worker, action: Action, nursery: trio.Nursery) -> None:
        match action:
            case "crash":
                worker.crash()
            case "stop":
                worker.stop()
            case "pause":
                nursery.start_soon(self._pause, worker)
            case "store_fault":
                nursery.start_soon(self._inject_store_fault, worker)

    async def _pause(self, worker: Worker) -> None:
        """Pause a shard of a worker for a while."""
        consumer = None if worker.process is None else worker.process.consumer
        shards = () if consumer is None else consumer.status().shards
        if consumer is None or not shards:
            return
        shard = self._random.choice(shards).shard_id
        consumer.pause(shard)
        try:
            await trio.sleep(self._random.uniform(0.5, 90.0))
        finally:
            if any(status.shard_id == shard and status.is_paused for status in consumer.status().shards):
                consumer.resume(shard)

    def _deregister(self, fake: FakeKinesis) -> None:
        """Deregister the fan-out consumer, as another client might (rule R13)."""
        arns = [worker.process.arn for worker in self._workers if worker.process is not None and worker.process.arn]
        if arns:
            with suppress(FakeError):  # it was deregistered before, and the worker has not noticed yet
                fake.deregister(arns[0])
                self.story.add(Acted("deregister"))

    async def _inject_store_fault(self, worker: Worker) -> None:
        """Inject a fault between a worker and the lease store for a while."""
        fault, seconds = self._random.choice(_STORE_FAULTS), self._random.expovariate(1 / MEAN_STORE_FAULT)
        self.story.add(Acted(f"w{worker.number}: the lease store is {fault} for {seconds:.3f} s"))
        worker.set_store_fault(fault)
        await trio.sleep(seconds)
        worker.set_store_fault(StoreFault.NONE)

    def _inject_control_plane_fault(self, action: Action) -> None:
        """Delay what ListShards shows, or fail calls of the control plane, for a while."""
        now = trio.current_time()
        until = now + self._random.uniform(5.0, 60.0)
        if action == "stale_listing":
            lag = self._random.uniform(2.0, self.plan.max_listing_lag)
            self._script.add(StaleListing(lag), When(start=now, stop=until, times=inf))
            return
        fault = self._random.choice((Refuse("LimitExceededException"), Refuse(status=500), NoResponse(10.0)))
        operation = self._random.choice(("*", "ListShards", "DescribeStreamConsumer", "RegisterStreamConsumer"))
        self._script.add(fault, When(operation=operation, probability=0.5, start=now, stop=until))
