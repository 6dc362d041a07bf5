"""A worker of a world: it lives, crashes or leaves, and comes again, as an orchestrator has it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import trio

from efo import events
from efo.consumer.consumer import Consumer, ConsumerSettings, open_consumer
from efo.consumer.shard_task import ShardReader
from efo.errors import EfoError
from efo.kinesis.client import Kinesis
from efo.model import Checkpoint, Position
from proofs.simulation.gauges import leftovers
from proofs.simulation.plan import Plan
from proofs.simulation.readers import HandlerError
from proofs.simulation.story import Broken, Closed, Crashed, Exited, Line, Lost, Opened, SetAside, Sought, Told
from proofs.simulation.ways import Rows, Trouble, Way

MakeReader = Callable[[str, Callable[[Line], None], events.Observer], ShardReader]
GRACE = 60.0
"""Seconds that a graceful stop may take beyond the longest nap of a handler."""


class Life:
    """One life of a worker: a process, from its start to its end. Nothing that it does after a crash counts."""

    def __init__(self, worker_id: str, name: str, plan: Plan, tell: Callable[[Line], None]) -> None:
        self.worker_id = worker_id
        self.name = name
        self.is_dead = False
        self.is_leaving = False
        self.has_begun = False
        self.arn = ""
        self.consumer: Consumer | None = None
        self.scope = trio.CancelScope()
        self._plan = plan
        self._tell = tell

    def tell(self, line: Line) -> None:
        """Add to the story, unless it is the dead who speak."""
        if not self.is_dead:
            self._tell(line)

    def observe(self, event: events.Event) -> None:
        """Take a diagnostic event of the consumer."""
        self.has_begun |= isinstance(event, events.ShardsCounted)
        if isinstance(event, events.ConsumerReady):
            self.arn = event.arn
        self.tell(self._line(event))

    def _line(self, event: events.Event) -> Line:  # noqa: PLR0911 - a table
        match event:
            case events.ShardStarted(shard_id=shard, checkpoint=checkpoint):
                return Opened(self.name, self.worker_id, shard, checkpoint, self._plan.key_concurrency > 1)
            case events.ShardRepositioned(shard_id=shard, to=Checkpoint() as to):
                return Sought(self.name, shard, to)
            case events.ShardFinished(shard_id=shard):
                return Closed(self.name, shard, is_finished=True)
            case events.ShardStopped(shard_id=shard, error_type=error):
                return Closed(self.name, shard, is_finished=False, error=error)
            case events.LeaseLost(shard_id=shard, reason=reason) if reason != "released":
                return Lost(self.name, shard, reason)
            case events.RecordSkipped() | events.RecordDeadLettered():
                return SetAside(self.name, event.shard_id, (int(event.sequence_number), event.sub_sequence_number))
            case _:
                return Told(self.name, event)


class Worker:
    """A place where one process runs at a time. `run` until `finish`; `crash` and `leave` end one life."""

    def __init__(
        self, number: int, plan: Plan, kinesis: Kinesis, rows: Rows, tell: Callable[[Line], None], make: MakeReader
    ) -> None:
        self.life: Life | None = None
        self.crashes = 0
        self.number = number
        self._plan = plan
        self._kinesis = kinesis
        self._rows = rows
        self._tell = tell
        self._make = make
        self._rng = Random(f"worker {plan.seed} {number}")
        self._lives = 0
        self._way: Way | None = None
        self._trouble = Trouble.NONE
        self._finishing = trio.Event()

    async def run(self) -> None:
        """Live again and again until `finish`."""
        await trio.sleep(self._rng.choice((0.0, 0.0, self._rng.uniform(0.0, 30.0))))
        while not self._finishing.is_set():
            await self._live()
            away = self._rng.choice((0.0, self._rng.uniform(0.0, 5.0), self._rng.uniform(0.0, 40.0)))
            with trio.move_on_after(away):
                await self._finishing.wait()

    def crash(self) -> bool:
        """End the life as SIGKILL does; return whether there was one."""
        if self.life is None or self.life.is_dead or self._way is None:
            return False
        self.life.tell(Crashed(self.life.name, self.life.worker_id))
        self.life.is_dead = self._way.cut = True
        self.life.scope.cancel()
        self.crashes += 1
        return True

    def leave(self) -> bool:
        """End the life as SIGTERM does; return whether there was one."""
        if self.life is None or self.life.consumer is None or self.life.is_leaving:
            return False
        self.life.is_leaving = True
        self.life.consumer.stop()
        return True

    def finish(self) -> None:
        """Leave for good."""
        self._finishing.set()
        if not self.leave() and self.life is not None and self.life.consumer is None:
            self.life.scope.cancel()  # it is still waiting for the fan-out consumer

    def become(self, trouble: Trouble) -> None:
        """Let the way to the lease store be so, in this life and those to come."""
        self._trouble = trouble
        if self._way is not None:
            self._way.become(trouble)

    async def _live(self) -> None:
        self._lives += 1
        worker_id = f"w{self.number}.{self._lives}" if self._plan.new_names else f"w{self.number}"
        self.life = life = Life(worker_id, f"w{self.number}.{self._lives}", self._plan, self._tell)
        self._way = Way(self._rows, life.name, worker_id, life.tell, Random(f"way {self._plan.seed} {life.name}"))
        self._way.become(self._trouble)
        error: Exception | None = None
        with life.scope:
            try:
                await self._consume(life, self._way)
            except (EfoError, HandlerError) as failure:
                error = failure
        if not life.is_dead and error is not None and life.has_begun and not isinstance(error, HandlerError):
            self._tell(Broken(f"{life.name} gave up: {type(error).__name__}: {error}"))
        if life.consumer is not None and (left := leftovers(life.consumer)):
            self._tell(Broken(f"{life.name} has ended, and there is left: {left}"))
        life.tell(Exited(life.name, None if error is None else type(error).__name__))
        self.life = None

    async def _consume(self, life: Life, way: Way) -> None:
        plan, name = self._plan, life.name
        settings = ConsumerSettings(
            application="sim",
            worker_id=life.worker_id,
            initial_position=Position.latest() if plan.at_latest else Position.trim_horizon(),
            failover_time=plan.failover_time,
            checkpoint_interval=plan.checkpoint_interval,
            shard_sync_interval=plan.shard_sync_interval,
            stream_window=plan.stream_window,
            unsubscribe_idle_after=plan.unsubscribe_idle_after,
            subscribes_per_second=plan.subscribes_per_second,
            graceful_handoff=plan.graceful_handoff,
            handoff_timeout=plan.handoff_timeout,
            balance_by_throughput=plan.balance_by_throughput,
            max_leases=plan.max_leases,
            lease_cleanup_after=plan.lease_cleanup_after,
            timing=plan.timing,
        )
        rng = Random(f"consumer {plan.seed} {name}")
        async with open_consumer(self._kinesis, way, settings, life.observe, rng=rng) as consumer:
            life.consumer = consumer
            if self._finishing.is_set():
                return
            await consumer.run(self._make(name, life.tell, life.observe))
