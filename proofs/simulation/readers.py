"""How the workers of a world read: with handlers that are slow and fail, by hand, or by the service's relay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from zlib import crc32

import trio

from efo.consumer.failure_handler import HOLD, DeadLetter, HandlerResult
from efo.consumer.handler import Handler
from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_task import ShardReader
from efo.errors import IsolateShardError
from efo.events import Observer
from efo.model import Batch, Checkpoint, Record
from efo_service.relay.errors import SinkClosedError
from efo_service.relay.relay import relay_shard
from proofs.simulation.plan import MOST_HICCUPS, Plan
from proofs.simulation.sink import MemorySink
from proofs.simulation.story import Acked, Handled, Line, Mark

Tell = Callable[[Line], None]
POISON = 10**9
"""So often does a handler fail with a record that it never takes."""
HOLDING = 0.8
"""How likely a handler that holds answers so."""


class HandlerError(Exception):
    """What a handler of these worlds raises."""


class Failures:
    """Which records fail how often: by the seed alone, whoever handles them. Shared by all workers of a world."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._left: dict[bytes, int] = {}

    def times(self, identity: bytes) -> int:
        """Return how often a record fails in all."""
        draw = crc32(b"%d %s" % (self._plan.seed, identity)) / 2**32
        if draw < self._plan.poison:
            return POISON
        if draw < self._plan.poison + self._plan.hiccups:
            return 1 + int(draw * 1e6) % MOST_HICCUPS
        return 0

    def may_set_aside(self, key: str, number: int) -> bool:
        """Tell whether a record may be skipped: where the policy does that, each that fails may."""
        if self._plan.policy.then not in ("skip", "dead_letter"):
            return False
        return self.times(b"%s:%d" % (key.encode(), number)) > 0

    def meet(self, records: tuple[Record, ...]) -> None:
        """Raise HandlerError if one of them is to fail now."""
        for record in records:
            identity = record.data.partition(b"|")[0]
            left = self._left.setdefault(identity, self.times(identity))
            if left:
                self._left[identity] = left - 1
                raise HandlerError("made up")


class WorldHandler:
    """Handles for one life of a worker: waits, fails or not, takes effect, waits again; then it is acked."""

    def __init__(self, plan: Plan, worker: str, tell: Tell, failures: Failures, rng: Random) -> None:
        self._plan = plan
        self._worker = worker
        self._tell = tell
        self._failures = failures
        self._rng = rng

    async def take(self, shard_id: str, records: tuple[Record, ...], held: list[Record]) -> HandlerResult | None:
        """Handle these records of a shard: hold them, or make them safe, and with them what is held."""
        await self.pause()
        self._failures.meet(records)
        self._tell(Handled(self._worker, shard_id, marks(records)))
        held += records
        if self._plan.holds and self._rng.random() < HOLDING:
            return HOLD
        await self.flush(shard_id, held)
        return None

    async def flush(self, shard_id: str, held: list[Record]) -> None:
        """Make safe what is held of a shard."""
        await self.pause()
        self._tell(Acked(self._worker, shard_id, marks(held)))
        held.clear()

    async def pause(self) -> None:
        """Take some time, seldom much."""
        longest = self._plan.nap if self._plan.nap and self._rng.random() < 0.01 else self._plan.slowness
        if longest:
            await trio.sleep(self._rng.uniform(0.0, longest))
        else:
            await trio.lowlevel.checkpoint()


def reader(
    plan: Plan, worker: str, tell: Tell, failures: Failures, sink: MemorySink, observer: Observer, rng: Random
) -> ShardReader:
    """Return what reads shards in one life of a worker."""
    handler = WorldHandler(plan, worker, tell, failures, rng)
    match plan.reader:
        case "plain":
            return _Plain(worker, tell, handler, rng)
        case "sink":
            return _Relay(worker, tell, sink)
        case kind:
            return _ByHandler(plan, handler, observer, rng, by_record=kind == "records")


def marks(records: Iterable[Record]) -> tuple[Mark, ...]:
    """Return the places of records in their shard."""
    return tuple((int(record.sequence_number), record.sub_sequence_number) for record in records)


class _ByHandler:
    """A `Handler`, one for each shard: a handler of records is not told which shard they are of."""

    def __init__(self, plan: Plan, handler: WorldHandler, observer: Observer, rng: Random, *, by_record: bool) -> None:
        self._plan = plan
        self._handler = handler
        self._observer = observer
        self._rng = rng
        self._by_record = by_record

    async def __call__(self, shard: ShardStream) -> None:
        together: list[Record] = []

        def held() -> list[Record]:
            return together if self._plan.holds else []  # several keys at once have nothing in common

        async def handle(batch: Batch) -> HandlerResult | None:
            return await self._handler.take(batch.shard_id, batch.records, held())

        async def handle_record(record: Record) -> HandlerResult | None:
            return await self._handler.take(shard.shard_id, (record,), held())

        async def flush(shard_id: str) -> None:
            await self._handler.flush(shard_id, together)

        handling = Handler(
            None if self._by_record else handle,
            handle_record=handle_record if self._by_record else None,
            failures=self._plan.policy,
            dead_letter=self._bury,
            flush=flush,
            key_concurrency=self._plan.key_concurrency,
            observer=self._observer,
            rng=self._rng,
        )
        await handling(shard)

    async def _bury(self, _letter: DeadLetter) -> None:
        await self._handler.pause()


class _Plain:
    """Iterates over a shard and acks by hand: batch by batch, several at once, or single records in any order."""

    def __init__(self, worker: str, tell: Tell, handler: WorldHandler, rng: Random) -> None:
        self._worker = worker
        self._tell = tell
        self._handler = handler
        self._rng = rng

    async def __call__(self, shard: ShardStream) -> None:
        unacked: list[Batch] = []
        async for batch in shard:
            await self._handler.pause()
            self._tell(Handled(self._worker, shard.shard_id, marks(batch.records)))
            unacked.append(batch)
            if self._rng.random() < 0.02:
                self._ack(shard, unacked)
                raise IsolateShardError("made up", cooldown=self._rng.uniform(0.0, 5.0))
            if self._rng.random() < 0.5:
                await self._handler.pause()
                self._ack(shard, unacked)
                unacked.clear()
        self._ack(shard, unacked)

    def _ack(self, shard: ShardStream, batches: list[Batch]) -> None:
        if not batches:
            return
        if self._rng.random() < 0.5:
            self._tell_acked(shard, tuple(record for batch in batches for record in batch.records))
            shard.ack_through(batches[-1])
            return
        single = [(batch, record) for batch in batches for record in batch.records]
        self._rng.shuffle(single)
        for batch, record in single:
            self._tell_acked(shard, (record,))
            shard.ack_record(batch, record)

    def _tell_acked(self, shard: ShardStream, records: tuple[Record, ...]) -> None:
        self._tell(Acked(self._worker, shard.shard_id, marks(records)))


class _Relay:
    """The service's relay into a sink that owns its position: what is committed is what took effect."""

    def __init__(self, worker: str, tell: Tell, sink: MemorySink) -> None:
        self._worker = worker
        self._tell = tell
        self._sink = sink.of(self._committed)

    async def __call__(self, shard: ShardStream) -> None:
        try:
            await relay_shard(_Watched(shard, self._worker, self._tell), self._sink, commit_records=20)
        except SinkClosedError as error:
            raise IsolateShardError(f"fenced: {error}", cooldown=1.0) from error

    def _committed(self, shard_id: str, records: tuple[Record, ...]) -> None:
        self._tell(Handled(self._worker, shard_id, marks(records)))


class _Watched:
    """A shard as the relay sees it; what it acks is told."""

    def __init__(self, shard: ShardStream, worker: str, tell: Tell) -> None:
        self.stream = shard.stream
        self.shard_id = shard.shard_id
        self._shard = shard
        self._worker = worker
        self._tell = tell
        self._unacked: list[Batch] = []

    def seek(self, checkpoint: Checkpoint) -> None:
        self._shard.seek(checkpoint)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Batch:
        batch = await anext(self._shard)
        self._unacked.append(batch)
        return batch

    def ack_through(self, batch: Batch) -> None:
        while self._unacked and self._unacked[0].number <= batch.number:
            done = self._unacked.pop(0)
            self._tell(Acked(self._worker, self.shard_id, marks(done.records)))
        self._shard.ack_through(batch)
