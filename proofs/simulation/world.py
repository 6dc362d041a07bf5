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

from efo.consumer.opening import open_consumer
from efo.consumer.shard_task import ShardReader
from efo.errors import ConfigurationError
from efo.kinesis.client import KinesisClient
from efo.model import Position
from efo.testing import FakeKinesis
from efo.testing.errors import FakeError
from efo.testing.faults.kinds import RESPONSE_FAULTS, NoResponse, Refuse, StaleListing
from efo.testing.faults.script import FaultScript, When
from proofs.simulation.checks.checks import Checks
from proofs.simulation.checks.guarantees import Guarantees
from proofs.simulation.checks.leaks import stream_usage
from proofs.simulation.lease_file import LeaseFile
from proofs.simulation.log import SimulatedLog, WorkerLog
from proofs.simulation.plan import SHORT_CLEANUP_AFTER, Action, Plan
from proofs.simulation.producer import Producer
from proofs.simulation.readers import PlannedFailures, log_reader, reader
from proofs.simulation.signing import SimulatedSigning
from proofs.simulation.sink import MemorySink
from proofs.simulation.store_faults import LeaseRows, StoreFault
from proofs.simulation.story import SECOND_APPLICATION, SECOND_STREAM, Acted, Line, Positioned, Story, Violation
from proofs.simulation.worker import STOP_TIMEOUT, Worker, WorkerProcess
from proofs.simulation.worker_leases import WorkerLeases

STREAM: Final = "orders"
APPLICATION: Final = "sim"
OTHER_STREAM: Final = "payments"
"""The stream of a neighbour, unless it is another application on the same stream."""
OTHER_APPLICATION: Final = "sim-2"
MEAN_STORE_FAULT: Final = 12.0
"""The mean duration of a fault between a worker and the lease store, in seconds."""
EPOCH: Final = 1_700_000_000.0
"""The wall clock at the start of a world, for the log, in seconds since the epoch."""
_POLLING_FAULTS: Final = (
    Refuse("ProvisionedThroughputExceededException"),
    Refuse("ExpiredIteratorException"),
    Refuse(status=500),
    NoResponse(),
)
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
    """The world of one seed. `run` it once, in its own trio run; `story` and `checks` then have the results.

    `host`: the world with whose fake and in whose processes this one runs, as its neighbour.
    `neighbour`: a second consumer, which has a story and checks of its own. The two must not notice each other.
    """

    def __init__(self, plan: Plan, host: World | None = None) -> None:
        self.plan = plan
        shares_stream = host is not None and host.plan.shares_stream
        self.stream = OTHER_STREAM if host is not None and not shares_stream else STREAM
        self.application = OTHER_APPLICATION if shares_stream else APPLICATION
        self.tally = Tally()
        self._failures = PlannedFailures(plan)
        self._complete = trio.Event()
        self.checks = Checks(
            Guarantees(
                owns_position=plan.reader == "sink",
                at_latest=plan.at_latest,
                max_listing_lag=(host or self).plan.max_listing_lag,
                saves_late=plan.lease_file is not None,
                max_save_delay=plan.checkpoint_seconds + 2 * max(plan.max_rare_delay, plan.max_delay) + 1.0,
                max_zombie_time=plan.failover_seconds,
                may_skip=self._failures.may_skip,
                may_refuse=self._failures.may_refuse,
            ),
            self._set_complete,
        )
        self.story = Story(trio.current_time, self.checks.check)
        # The texts are part of the seeds: another text is another world.
        self.random = Random(f"deeds {plan.seed}")
        self.script: FaultScript = FaultScript(seed=plan.seed) if host is None else host.script
        if plan.fault_rate:
            self.script = FaultScript.random(
                plan.seed, kinds=plan.fault_kinds, rate=plan.fault_rate, stop=plan.calm_from
            )
        if plan.fault_rate and plan.read_mode != "fanout":
            self._add_polling_faults()
        if plan.signing is not None and plan.signing.denial is not None:
            start, stop = plan.signing.denial
            for operation in ("SubscribeToShard", "GetRecords", "GetShardIterator"):
                denied = When(operation=operation, start=start, stop=stop, times=inf)
                self.script.add(Refuse("AccessDeniedException"), denied)
        self._sink = MemorySink(plan.guard, Random(f"sink {plan.seed}"), plan.max_delay, plan.failover_seconds)
        self._dead_letters = MemorySink(
            plan.guard, Random(f"letters {plan.seed}"), plan.max_delay, plan.failover_seconds
        )
        self._log: SimulatedLog | None = None
        if plan.log is not None:
            self._log = SimulatedLog(
                plan.log,
                self.stream,
                self._clock,
                Random(f"disk {plan.seed}"),
                plan.max_delay,
                self._crash_all,
                self.story.add,
            )
        self.workers: list[Worker] = []
        self.rows = LeaseRows()
        if plan.lease_file is not None:
            self.rows = LeaseFile(
                plan.lease_file,
                self.application,
                self.stream,
                Random(f"lease file {plan.seed}"),
                plan.max_delay,
                self._crash_all,
                self.story.add,
                WorkerLeases,
            )
        self.neighbour = None if plan.neighbour is None else World(plan.neighbour, self)

    @property
    def consumers(self) -> tuple[World, ...]:
        """This world, and its neighbour if it has one."""
        return (self,) if self.neighbour is None else (self, self.neighbour)

    async def run(self) -> None:
        """Run the world and check it."""
        async with FakeKinesis(settings=self.plan.fake, faults=self.script) as fake:
            tasks_before = trio.lowlevel.current_statistics().tasks_living
            producers = self._create_streams(fake)
            for world in self.consumers:
                world.create_workers(fake)
            if self.neighbour is not None:
                self.story.add(Acted(SECOND_APPLICATION if self.plan.shares_stream else SECOND_STREAM))
                self._join_processes(self.neighbour)
            async with trio.open_nursery() as nursery:
                for world, producer in zip(self.consumers, producers, strict=True):
                    nursery.start_soon(world.run_consumer, producer, fake)
            if self.neighbour is not None:
                await self._check_stores(self.neighbour, fake)
            await self._check_leaks(fake, producers, tasks_before)
        for world in self.consumers:
            world.conclude()
        streams = set(producers)
        self.tally.splits = sum(producer.splits for producer in streams)
        self.tally.merges = sum(producer.merges for producer in streams)
        self.tally.faults = len(self.script.fired)
        self.tally.crashes = sum(worker.crashes for world in self.consumers for worker in world.workers)
        self.tally.virtual_seconds = trio.current_time()

    def _create_streams(self, fake: FakeKinesis) -> list[Producer]:
        """Return the producer of each consumer's stream. Two consumers of one stream have one producer."""
        if self.neighbour is None or not self.plan.shares_stream:
            return [Producer(fake, w.stream, w.plan, w.random, w.story.add) for w in self.consumers]

        def add_to_both(line: Line) -> None:
            for world in self.consumers:
                world.story.add(line)

        return [Producer(fake, self.stream, self.plan, self.random, add_to_both)] * 2

    def create_workers(self, fake: FakeKinesis) -> None:
        """Create the workers of this consumer."""
        plan, position = self.plan, self._initial_position(fake)
        self.workers = [
            Worker(n, plan, self._client(fake), self.rows, self.story.add, self._reader, position, self.application)
            for n in range(plan.workers)
        ]

    def _client(self, fake: FakeKinesis) -> KinesisClient:
        """Return what a worker reads with. Each has its own idea of the service's clock."""
        kinesis, signing = fake.kinesis(self.stream), self.plan.signing
        if signing is None:
            return kinesis
        return SimulatedSigning(signing, fake.clock, lambda text: self.story.add(Acted(text))).applied_to(kinesis)

    def _join_processes(self, neighbour: World) -> None:
        """Let the consumers of the same number be in one process."""
        for own, other in zip(self.workers, neighbour.workers, strict=False):
            own.mates, other.mates = [other], [own]

    async def run_consumer(self, producer: Producer, fake: FakeKinesis) -> None:
        """Run the workers, and the actions of the plan, and wait until everything is done."""
        plan = self.plan
        async with self.rows.running(), trio.open_nursery() as nursery:
            for worker in self.workers:
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

    def _reader(self, process: WorkerProcess, crash: Callable[[], object]) -> ShardReader:
        rng = Random(f"reader {self.plan.seed} {process.name}")
        if self._log is not None:
            return log_reader(self.plan, process, WorkerLog(self._log, process, crash, self._sink.lock_timeout))
        return reader(
            self.plan,
            process.name,
            process.add_line,
            self._failures,
            self._sink,
            self._dead_letters,
            process.observe,
            rng,
        )

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
        for worker in self.workers:
            worker.crash()

    def _set_complete(self) -> None:
        self._complete.set()

    def conclude(self) -> None:
        """Check the end state."""
        if self._log is not None:
            self._log.conclude()
        self.checks.conclude()

    # --- the end -------------------------------------------------------------------------------------------

    async def _await_completion(self) -> None:
        """End all faults and wait until everything is done."""
        self.script.clear()
        if self._log is not None:
            self._log.calm()
        self.rows.calm()
        self._failures.is_calm = True
        self.story.add(Acted("calm"))
        for worker in self.workers:
            worker.set_store_fault(StoreFault.NONE)
        with trio.move_on_after(self.plan.completion_timeout):
            while not self.checks.books.is_complete:
                self._complete = trio.Event()
                await self._complete.wait()
            delays_acks = self.plan.reader == "stream" or self.plan.holds
            while not delays_acks and not self.checks.books.is_settled:  # noqa: ASYNC110 - no event announces it
                await trio.sleep(1.0)
            return
        self.story.add(
            Violation(
                f"no progress: {self.plan.completion_timeout:g} s after the last fault: {self.checks.books.missing()}"
            )
        )

    async def _await_lease_cleanup(self) -> None:
        """Wait until the leases of finished shards are deleted, if the plan deletes them early."""
        plan, books = self.plan, self.checks.books
        if plan.lease_cleanup_after != SHORT_CLEANUP_AFTER:
            return
        # A lease is deleted only after the leases of the shard's parents.
        with trio.move_on_after(books.generations * (plan.lease_cleanup_after + 2 * plan.shard_sync_seconds)):
            while books.undeleted_leases():  # noqa: ASYNC110 - no event announces it
                await trio.sleep(1.0)
        for shard in books.undeleted_leases():
            self.story.add(Violation(f"{shard} is finished, but its lease still exists"))

    async def _finish(self, nursery: trio.Nursery) -> None:
        """Stop every worker gracefully."""
        self.story.add(Acted("finish"))
        for worker in self.workers:
            worker.finish()
        limit = STOP_TIMEOUT + 3 * max(self.plan.max_rare_delay, self.plan.max_delay)
        nursery.cancel_scope.deadline = trio.current_time() + limit

    async def _check_leaks(self, fake: FakeKinesis, producers: list[Producer], tasks_before: int) -> None:
        """Check that the workers left no task and no subscription behind."""
        await trio.testing.wait_all_tasks_blocked()
        left = trio.lowlevel.current_statistics().tasks_living - tasks_before
        if left:
            self.story.add(Violation(f"{left} tasks run after all workers have ended"))
        for world, producer in zip(self.consumers, producers, strict=True):
            for shard in producer.shards:
                if live := fake.subscriptions(world.stream, shard).live:
                    world.story.add(Violation(f"{live} subscriptions of {shard} are live after all workers have ended"))

    async def _check_stores(self, neighbour: World, fake: FakeKinesis) -> None:
        """Check that neither consumer can be opened with the lease store of the other."""
        for world, other in ((self, neighbour), (neighbour, self)):
            opening = open_consumer(fake.kinesis(world.stream), application=world.application, leases=other.rows.store)
            with suppress(ConfigurationError):
                async with opening:
                    names = f"{world.application} on {world.stream} can be opened with the lease store of"
                    world.story.add(Violation(f"{names} {other.application} on {other.stream}"))

    def _check_streams(self) -> None:
        """Check that no stream buffers more than its window, and that no worker has more streams than it needs."""
        for worker in self.workers:
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
        worker = self.random.choice(self.workers)
        match action:
            case "put":
                producer.put(self.random.randint(1, 12))
            case "burst":
                producer.put(60)
            case "aggregate":
                producer.aggregate()
            case "split" | "merge":
                producer.reshard(action)
            case "distribute":
                producer.distribute()
            case "deregister":
                self._deregister(fake)
            case "deny_fan_out":
                self._deny_fan_out(fake)
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
        shards = [] if consumer is None else consumer.status().shards
        shards = [status for status in shards if status.state not in ("no_lease", "isolated")]
        if consumer is None or not shards:
            return
        shard = self.random.choice(shards).shard_id
        consumer.pause(shard)
        try:
            await trio.sleep(self.random.uniform(0.5, 90.0))
        finally:
            if any(status.shard_id == shard and status.is_paused for status in consumer.status().shards):
                consumer.resume(shard)

    def _deregister(self, fake: FakeKinesis) -> None:
        """Deregister the fan-out consumer, as another client might (rule R13)."""
        arns = [worker.process.arn for worker in self.workers if worker.process is not None and worker.process.arn]
        if arns:
            with suppress(FakeError):  # it was deregistered before, and the worker has not noticed yet
                fake.deregister(arns[0])
                self.story.add(Acted("deregister"))

    def _add_polling_faults(self) -> None:
        """Let calls of polling fail, as calls and as responses, as often as subscriptions do."""
        responses = tuple(fault for fault in self.plan.fault_kinds if isinstance(fault, RESPONSE_FAULTS))
        faults = (*_POLLING_FAULTS, *responses)
        # A fault of calls has one target, whatever the number of shards: it fires as if for four of them.
        rate = 4 * self.plan.fault_rate / len(faults)
        for fault in faults:
            for operation in ("GetRecords", "GetShardIterator"):
                self.script.add(fault, When(operation=operation, rate=rate, stop=self.plan.calm_from))

    def _deny_fan_out(self, fake: FakeKinesis) -> None:
        """Deny SubscribeToShard for a while, or remove the fan-out consumer and let it not be registered again."""
        now = trio.current_time()
        until = now + self.random.uniform(2.0, 60.0)
        if self.random.random() < 0.5:
            fault, operation = Refuse("AccessDeniedException"), "SubscribeToShard"
        else:
            fault, operation = Refuse("LimitExceededException"), "RegisterStreamConsumer"
            self._deregister(fake)
        self.story.add(Acted(f"{operation} is denied until {until:.3f}"))
        self.script.add(fault, When(operation=operation, start=now, stop=until, times=inf))

    async def _inject_store_fault(self, worker: Worker) -> None:
        """Inject a fault between a worker and the lease store for a while."""
        fault, seconds = self.random.choice(_STORE_FAULTS), self.random.expovariate(1 / MEAN_STORE_FAULT)
        self.story.add(Acted(f"w{worker.number}: the lease store is {fault} for {seconds:.3f} s"))
        worker.set_store_fault(fault)
        await trio.sleep(seconds)
        worker.set_store_fault(StoreFault.NONE)

    def _inject_control_plane_fault(self, action: Action) -> None:
        """Delay what ListShards shows, or fail calls of the control plane, for a while."""
        now = trio.current_time()
        until = now + self.random.uniform(5.0, 60.0)
        if action == "stale_listing":
            lag = self.random.uniform(2.0, self.plan.max_listing_lag)
            self.script.add(StaleListing(lag), When(start=now, stop=until, times=inf))
            return
        fault = self.random.choice((Refuse("LimitExceededException"), Refuse(status=500), NoResponse(10.0)))
        operation = self.random.choice(("*", "ListShards", "DescribeStreamConsumer", "RegisterStreamConsumer"))
        self.script.add(fault, When(operation=operation, probability=0.5, start=now, stop=until))
