"""Runs one world: a made-up Kinesis, its workers, what befalls them, and the calm at the end in which all gets done."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final

import trio
import trio.testing

from efo import events
from efo.consumer.shard_task import ShardReader
from efo.leases.stores.memory import MemoryLeaseStore
from efo.testing import FakeKinesis
from efo.testing.errors import FakeError
from efo.testing.faults.kinds import NoAnswer, Refuse, StaleListing
from efo.testing.faults.script import FaultScript, When
from proofs.simulation.checks import Checks, Promises
from proofs.simulation.gauges import gauge
from proofs.simulation.plan import SOON, Deed, Plan
from proofs.simulation.producer import STREAM, Producer
from proofs.simulation.readers import Failures, Tell, reader
from proofs.simulation.sink import MemorySink
from proofs.simulation.story import Acted, Broken, Story
from proofs.simulation.ways import Rows, Trouble
from proofs.simulation.worker import GRACE, Worker

MEAN_TROUBLE: Final = 12.0
"""How long in the mean a worker's way to the lease store is troubled, in seconds."""
_TROUBLES: Final = tuple(trouble for trouble in Trouble if trouble is not Trouble.NONE)


@dataclass(slots=True)
class Tally:
    """What a world had."""

    splits: int = 0
    merges: int = 0
    faults: int = 0
    crashes: int = 0
    virtual_seconds: float = 0.0
    peak_buffered: int = 0


class World:
    """One seed's world. `run` it once, in a trio run of its own; `story` and `checks` then have what was."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tally = Tally()
        self._failures = Failures(plan)
        self._complete = trio.Event()
        self.checks = Checks(
            Promises(
                owns_position=plan.reader == "sink",
                at_latest=plan.at_latest,
                stale_after=plan.checkpoint_interval + 2 * max(plan.nap, plan.slowness) + 1.0,
                zombie_for=plan.failover_time,
                may_set_aside=self._failures.may_set_aside,
            ),
            self._complete_now,
        )
        self.story = Story(trio.current_time, self.checks.hear)
        self._random = Random(f"deeds {plan.seed}")
        self._script = FaultScript(seed=plan.seed)
        if plan.fault_rate:
            self._script = FaultScript.random(plan.seed, kinds=plan.kinds, rate=plan.fault_rate, stop=plan.calm_from)
        self._sink = MemorySink(plan.guard, Random(f"sink {plan.seed}"), plan.slowness, plan.failover_time)
        self._workers: list[Worker] = []

    async def run(self) -> None:
        """Let it happen, and judge it."""
        plan = self.plan
        async with FakeKinesis(settings=plan.fake, faults=self._script) as fake:
            producer = Producer(fake, plan, self._random, self.story.tell)
            rows, kinesis = Rows(MemoryLeaseStore()), fake.kinesis(STREAM)
            living = trio.lowlevel.current_statistics().tasks_living
            tell = self.story.tell
            self._workers = [Worker(n, plan, kinesis, rows, tell, self._reader) for n in range(plan.workers)]
            async with trio.open_nursery() as nursery:
                for worker in self._workers:
                    nursery.start_soon(worker.run)
                async with trio.open_nursery() as deeds:
                    for at, deed in plan.deeds:
                        await trio.sleep_until(at)
                        self._do(deed, producer, fake, deeds)
                        self._measure()
                    await trio.sleep_until(plan.calm_from)
                    deeds.cancel_scope.cancel()
                await self._calm()
                await self._clear()
                await self._finish(nursery)
            await self._check_nothing_is_left(producer, fake, living)
        self.checks.conclude()
        self.tally.splits, self.tally.merges = producer.splits, producer.merges
        self.tally.faults = len(self._script.fired)
        self.tally.crashes = sum(worker.crashes for worker in self._workers)
        self.tally.virtual_seconds = trio.current_time()

    def _reader(self, name: str, tell: Tell, observe: events.Observer) -> ShardReader:
        rng = Random(f"reader {self.plan.seed} {name}")
        return reader(self.plan, name, tell, self._failures, self._sink, observe, rng)

    def _complete_now(self) -> None:
        self._complete.set()

    # --- the end -------------------------------------------------------------------------------------------

    async def _calm(self) -> None:
        """Let everything be done: nothing goes wrong any more."""
        self._script.clear()
        self.story.tell(Acted("calm"))
        for worker in self._workers:
            worker.become(Trouble.NONE)
        with trio.move_on_after(self.plan.patience):
            while not self.checks.is_complete:
                self._complete = trio.Event()
                await self._complete.wait()
            keeps_back = self.plan.reader == "plain" or self.plan.holds
            while not keeps_back and not self.checks.is_settled:  # noqa: ASYNC110 - it is no event
                await trio.sleep(1.0)
            return
        self.story.tell(Broken(f"no progress: {self.plan.patience:g} s after all was well: {self.checks.missing()}"))

    async def _clear(self) -> None:
        """Let the leases be deleted that have served, where that comes soon enough to be waited for."""
        plan, checks = self.plan, self.checks
        if plan.lease_cleanup_after != SOON:
            return
        # Of a lineage the oldest go first, and each generation waits for the one before.
        with trio.move_on_after(checks.generations * (plan.lease_cleanup_after + 2 * plan.shard_sync_interval)):
            while checks.uncleared():  # noqa: ASYNC110 - it is no event
                await trio.sleep(1.0)
        for shard in checks.uncleared():
            self.story.tell(Broken(f"{shard} has served, and its lease is still there"))

    async def _finish(self, nursery: trio.Nursery) -> None:
        """Let every worker leave gracefully."""
        self.story.tell(Acted("finish"))
        for worker in self._workers:
            worker.finish()
        limit = GRACE + 3 * max(self.plan.nap, self.plan.slowness)
        nursery.cancel_scope.deadline = trio.current_time() + limit

    async def _check_nothing_is_left(self, producer: Producer, fake: FakeKinesis, living: int) -> None:
        """Judge what the workers have left behind: no task of theirs, and no subscription."""
        await trio.testing.wait_all_tasks_blocked()
        left = trio.lowlevel.current_statistics().tasks_living - living
        if left:
            self.story.tell(Broken(f"{left} tasks are alive after all workers have left"))
        for shard in producer.shards:
            if live := fake.subscriptions(STREAM, shard).live:
                self.story.tell(Broken(f"{live} subscriptions of {shard} are live after all workers have left"))

    def _measure(self) -> None:
        """Judge what the workers hold now: at most a window for each stream, and two streams for each shard."""
        for worker in self._workers:
            if worker.life is None or worker.life.consumer is None:
                continue
            held = gauge(worker.life.consumer)
            self.tally.peak_buffered = max(self.tally.peak_buffered, held.buffered)
            if held.buffered > self.plan.stream_window:
                self.story.tell(Broken(f"{worker.life.name} holds {held.buffered} bytes of one stream"))
            if held.streams > held.most_streams:
                what = f"{held.streams} streams, and {held.most_streams} would be enough"
                self.story.tell(Broken(f"{worker.life.name} has {what}"))

    # --- deeds ---------------------------------------------------------------------------------------------

    def _do(self, deed: Deed, producer: Producer, fake: FakeKinesis, nursery: trio.Nursery) -> None:
        worker = self._random.choice(self._workers)
        match deed:
            case "put":
                producer.put(self._random.randint(1, 12))
            case "burst":
                producer.put(60)
            case "aggregate":
                producer.aggregate()
            case "split" | "merge":
                producer.reshard(deed)
            case "deregister":
                self._deregister(fake)
            case "listing" | "control":
                self._fail_control(deed)
            case _:
                self._do_to(worker, deed, nursery)

    def _do_to(self, worker: Worker, deed: Deed, nursery: trio.Nursery) -> None:
        match deed:
            case "crash":
                worker.crash()
            case "leave":
                worker.leave()
            case "pause":
                nursery.start_soon(self._pause, worker)
            case "store":
                nursery.start_soon(self._trouble, worker)

    async def _pause(self, worker: Worker) -> None:
        """Pause a shard of a worker for a while."""
        consumer = None if worker.life is None else worker.life.consumer
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
        """Deregister the fan-out consumer, as somebody else would (rule R13)."""
        arns = [worker.life.arn for worker in self._workers if worker.life is not None and worker.life.arn]
        if arns:
            with suppress(FakeError):  # it is gone already, and they do not know
                fake.deregister(arns[0])
                self.story.tell(Acted("deregister"))

    async def _trouble(self, worker: Worker) -> None:
        """Trouble a worker's way to the lease store for a while."""
        trouble, seconds = self._random.choice(_TROUBLES), self._random.expovariate(1 / MEAN_TROUBLE)
        self.story.tell(Acted(f"w{worker.number}: the lease store is {trouble} for {seconds:.3f} s"))
        worker.become(trouble)
        await trio.sleep(seconds)
        worker.become(Trouble.NONE)

    def _fail_control(self, deed: Deed) -> None:
        """Let ListShards lag, or calls of the control plane fail, for a while."""
        now = trio.current_time()
        until = now + self._random.uniform(5.0, 60.0)
        if deed == "listing":
            lag = self._random.uniform(2.0, min(60.0, self.plan.lease_cleanup_after / 2))
            self._script.add(StaleListing(lag), When(start=now, stop=until, times=inf))
            return
        fault = self._random.choice((Refuse("LimitExceededException"), Refuse(status=500), NoAnswer(10.0)))
        operation = self._random.choice(("*", "ListShards", "DescribeStreamConsumer", "RegisterStreamConsumer"))
        self._script.add(fault, When(operation=operation, probability=0.5, start=now, stop=until))
