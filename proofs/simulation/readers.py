"""The readers of a world: handlers that are slow and fail, code that acks by hand, and the service's relay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

import trio

from efo.consumer.handlers.batched import batched
from efo.consumer.handlers.failure_handler import HOLD, HandlerResult
from efo.consumer.handlers.handler import Handler
from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_task import ShardReader
from efo.errors import IsolateShardError
from efo.events import Observer
from efo.health import Overdue
from efo.model import Batch, Checkpoint, Record
from efo.protocol.failure import DeadLetter
from efo_service.factories.log import RETRIES
from efo_service.relay.destination import Destination, NoReports, SinkRetries, SkippingSink, isolating
from efo_service.relay.errors import RecordRefusedError, SinkClosedError, SinkError, SinkFencedError, SinkFullError
from efo_service.relay.relay import relay_shard
from efo_service.relay.write_buffer import RefusedRecord
from proofs.simulation.plan import MAX_TRANSIENT_FAILURES, Plan
from proofs.simulation.sink import MemorySink
from proofs.simulation.story import Acked, Handled, Line, Mark, Refused, Waited

if TYPE_CHECKING:
    from proofs.simulation.log import WorkerLog
    from proofs.simulation.worker import WorkerProcess

AddLine = Callable[[Line], None]
_EXPECTED = (SinkError, SinkClosedError, SinkFencedError, SinkFullError)
"""What a sink of a world may raise: it was fenced, or its disk failed. A lock that is never free is a defect."""
POISON_FAILURES = 10**9
"""How often a poison record fails: always."""
REFUSED_SHARE = 0.1
"""The share of records that a sink refuses, in worlds where it refuses some."""
_NO_RETRIES = SinkRetries(seconds=0.0, isolates=False)
"""A failure of a sink in memory isolates its shard."""
HOLD_PROBABILITY = 0.8
"""How likely a handler that holds records returns HOLD."""


class HandlerError(Exception):
    """Raised by the handlers of a world."""


class PlannedFailures:
    """How often each record fails, and which a sink refuses. It depends on the seed alone, not on the worker.

    All workers of a world share it. `is_calm`: the faults of the world have ended.
    """

    def __init__(self, plan: Plan) -> None:
        self.is_calm = False
        self._plan = plan
        self._left: dict[bytes, int] = {}

    def count(self, identity: bytes) -> int:
        """Return how often a record fails in total."""
        draw = crc32(b"%d %s" % (self._plan.seed, identity)) / 2**32
        if draw < self._plan.poison_rate:
            return POISON_FAILURES
        if draw < self._plan.poison_rate + self._plan.transient_rate:
            return 1 + int(draw * 1e6) % MAX_TRANSIENT_FAILURES
        return 0

    def may_skip(self, key: str, number: int) -> bool:
        """Return whether a record may be skipped or dead-lettered: it fails, and the policy does that."""
        if self._plan.policy.then not in ("skip", "dead_letter"):
            return False
        return self.count(b"%s:%d" % (key.encode(), number)) > 0

    def refusal(self, record: Record) -> str | None:
        """Return why the sink refuses a record, None if it takes it. Those that isolate shards end with the faults."""
        if self._plan.refusals is None or (self._plan.refusals == "isolate" and self.is_calm):
            return None
        identity = record.data.partition(b"|")[0]
        return "made up" if self._is_refused(identity) else None

    def may_refuse(self, key: str, number: int) -> bool:
        """Return whether a record may be dead-lettered or skipped because the sink refuses it."""
        return self._plan.refusals in ("dead_letter", "skip") and self._is_refused(b"%s:%d" % (key.encode(), number))

    def _is_refused(self, identity: bytes) -> bool:
        return crc32(b"refused %d %s" % (self._plan.seed, identity)) / 2**32 < REFUSED_SHARE

    def check(self, records: tuple[Record, ...]) -> None:
        """Raise HandlerError if one of the records must fail now."""
        for record in records:
            identity = record.data.partition(b"|")[0]
            left = self._left.setdefault(identity, self.count(identity))
            if left:
                self._left[identity] = left - 1
                raise HandlerError("made up")


class SimulatedHandler:
    """The handler of one worker process: sleeps, may fail, lets the records take effect, and sleeps before the ack."""

    def __init__(self, plan: Plan, worker: str, add_line: AddLine, failures: PlannedFailures, rng: Random) -> None:
        self._plan = plan
        self._worker = worker
        self._add_line = add_line
        self._failures = failures
        self._rng = rng

    async def handle(self, shard_id: str, records: tuple[Record, ...], held: list[Record]) -> HandlerResult | None:
        """Handle records of a shard: add them to `held`, and flush `held` or return HOLD."""
        await self.sleep()
        self._failures.check(records)
        self._add_line(Handled(self._worker, shard_id, marks(records)))
        held += records
        if self._plan.holds and self._rng.random() < HOLD_PROBABILITY:
            return HOLD
        await self.flush(shard_id, held)
        return None

    async def flush(self, shard_id: str, held: list[Record]) -> None:
        """Make the held records of a shard durable."""
        await self.sleep()
        self._add_line(Acked(self._worker, shard_id, marks(held)))
        held.clear()

    async def sleep(self) -> None:
        """Sleep for a random time, rarely for a long one."""
        longest = (
            self._plan.max_rare_delay
            if self._plan.max_rare_delay and self._rng.random() < 0.01
            else self._plan.max_delay
        )
        if longest:
            await trio.sleep(self._rng.uniform(0.0, longest))
        else:
            await trio.lowlevel.checkpoint()


def reader(
    plan: Plan,
    worker: str,
    add_line: AddLine,
    failures: PlannedFailures,
    sink: MemorySink,
    dead_letters: MemorySink,
    observer: Observer,
    rng: Random,
) -> ShardReader:
    """Return the shard reader of one worker process."""
    handler = SimulatedHandler(plan, worker, add_line, failures, rng)
    match plan.reader:
        case "stream":
            return _StreamReader(worker, add_line, handler, rng)
        case "sink":
            relay = _RelayReader(plan, worker, add_line)
            into: Destination | None = None
            if plan.refusals == "dead_letter":
                into = Destination(dead_letters.for_worker(relay.dead_lettered, relay.waited), _NO_RETRIES)
            elif plan.refusals == "skip":
                into = Destination(SkippingSink())
            own = sink.for_worker(relay.committed, relay.waited, failures.refusal)
            relay.destination = Destination(own, _NO_RETRIES, _Refusals(relay), into)
            return relay
        case kind:
            return _HandlerReader(plan, handler, observer, rng, by_record=kind == "records")


def log_reader(plan: Plan, process: WorkerProcess, log: WorkerLog) -> ShardReader:
    """Return the reader of one worker process that relays into the log."""
    relay = _RelayReader(plan, process.name, process.add_line)
    relay.destination = Destination(log.sink, replace(RETRIES, seconds=300.0))
    return relay


def marks(records: Iterable[Record]) -> tuple[Mark, ...]:
    """Return the positions of records in their shard."""
    return tuple((int(record.sequence_number), record.sub_sequence_number) for record in records)


class _HandlerReader:
    """Runs a `Handler` per shard, with functions of its own, since handlers hold records by shard."""

    def __init__(
        self, plan: Plan, handler: SimulatedHandler, observer: Observer, rng: Random, *, by_record: bool
    ) -> None:
        self._plan = plan
        self._handler = handler
        self._observer = observer
        self._rng = rng
        self._by_record = by_record

    async def __call__(self, shard: ShardStream) -> None:
        held_by_shard: list[Record] = []

        def held() -> list[Record]:
            return held_by_shard if self._plan.holds else []  # calls that run at once must not share a list

        async def handle(batch: Batch) -> HandlerResult | None:
            return await self._handler.handle(batch.shard_id, batch.records, held())

        async def handle_record(record: Record, batch: Batch) -> HandlerResult | None:
            return await self._handler.handle(batch.shard_id, (record,), held())

        async def flush(shard_id: str) -> None:
            await self._handler.flush(shard_id, held_by_shard)

        policy = self._plan.policy
        if policy.then == "dead_letter":
            policy = replace(policy, dead_letter=self._dead_letter)
        if self._plan.batched is not None:
            records, size, seconds = self._plan.batched
            handle = batched(handle, records=records, bytes=size, seconds=seconds)
        handler = Handler(
            None if self._by_record else handle,
            record_handler=handle_record if self._by_record else None,
            on_error=policy,
            flush=flush,
            key_concurrency=self._plan.key_concurrency,
            observer=self._observer,
            rng=self._rng,
        )
        await handler(shard)

    async def _dead_letter(self, _letter: DeadLetter) -> None:
        await self._handler.sleep()


class _StreamReader:
    """Iterates a shard stream and acks by hand: one batch, several batches at once, or single records in any order."""

    def __init__(self, worker: str, add_line: AddLine, handler: SimulatedHandler, rng: Random) -> None:
        self._worker = worker
        self._add_line = add_line
        self._handler = handler
        self._rng = rng

    async def __call__(self, shard: ShardStream) -> None:
        unacked: list[Batch] = []
        async for batch in shard:
            await self._handler.sleep()
            self._add_line(Handled(self._worker, shard.shard_id, marks(batch.records)))
            unacked.append(batch)
            if self._rng.random() < 0.02:
                self._ack(shard, unacked)
                raise IsolateShardError("made up", cooldown=self._rng.uniform(0.0, 5.0))
            if self._rng.random() < 0.5:
                await self._handler.sleep()
                self._ack(shard, unacked)
                unacked.clear()
        self._ack(shard, unacked)

    def _ack(self, shard: ShardStream, batches: list[Batch]) -> None:
        if not batches:
            return
        if self._rng.random() < 0.5:
            self._add_acked(shard, tuple(record for batch in batches for record in batch.records))
            shard.ack_through(batches[-1])
            return
        single = [(batch, record) for batch in batches for record in batch.records]
        self._rng.shuffle(single)
        for batch, record in single:
            self._add_acked(shard, (record,))
            shard.ack_record(batch, record)

    def _add_acked(self, shard: ShardStream, records: tuple[Record, ...]) -> None:
        self._add_line(Acked(self._worker, shard.shard_id, marks(records)))


class _RelayReader:
    """The service's relay into a sink that keeps its position. Records take effect when they are committed."""

    destination: Destination

    def __init__(self, plan: Plan, worker: str, add_line: AddLine) -> None:
        self.skips = plan.refusals == "skip"
        self._plan = plan
        self._worker = worker
        self._add_line = add_line

    async def __call__(self, shard: ShardStream) -> None:
        observed = _ObservedShard(shard, self._worker, self._add_line)
        try:
            await isolating(self._relay, refused_records=True, sink_errors=False)(observed)
        except SinkError as error:
            if type(error) not in _EXPECTED:
                raise
            raise IsolateShardError("the sink failed", cooldown=1.0) from error

    async def _relay(self, shard: _ObservedShard) -> None:
        try:
            await relay_shard(
                shard, self.destination, commit_records=self._plan.commit_records, commit_bytes=self._plan.commit_bytes
            )
        except RecordRefusedError:
            self._add_line(Refused(self._worker, shard.shard_id, (), "isolated"))
            raise

    def dead_lettered(self, shard_id: str, records: tuple[Record, ...]) -> None:
        """Add dead letters that are durable to the story."""
        self._add_line(Refused(self._worker, shard_id, marks(records), "dead_lettered"))

    def skipped(self, shard_id: str, record: Checkpoint) -> None:
        """Add a record that is skipped to the story."""
        mark = (int(record.sequence_number), record.sub_sequence_number)
        self._add_line(Refused(self._worker, shard_id, (mark,), "skipped"))

    def committed(self, shard_id: str, records: tuple[Record, ...]) -> None:
        """Add a commit to the story."""
        self._add_line(Handled(self._worker, shard_id, marks(records)))

    def waited(self, shard_id: str) -> None:
        """Add a wait for another writer to the story."""
        self._add_line(Waited(self._worker, shard_id))


class _Refusals(NoReports):
    """Adds skipped records to the story. Dead letters are added when they are durable."""

    def __init__(self, relay: _RelayReader) -> None:
        self._relay = relay

    def refused(self, shard_id: str, refused: RefusedRecord) -> None:
        """Note a record that the sink refuses."""
        if self._relay.skips:
            self._relay.skipped(shard_id, refused.record)


class _ObservedShard:
    """A shard stream for the relay that adds each ack to the story."""

    def __init__(self, shard: ShardStream, worker: str, add_line: AddLine) -> None:
        self.stream = shard.stream
        self.shard_id = shard.shard_id
        self.checkpoint = shard.checkpoint
        self.ages = shard.ages
        self._shard = shard
        self._worker = worker
        self._add_line = add_line
        self._unacked: list[Batch] = []
        self._acked_of_first = 0

    @property
    def has_pending(self) -> bool:
        return self._shard.has_pending

    @property
    def overdue(self) -> Callable[[], Overdue | None]:
        return self._shard.overdue

    @overdue.setter
    def overdue(self, overdue: Callable[[], Overdue | None]) -> None:
        self._shard.overdue = overdue

    def seek(self, checkpoint: Checkpoint) -> None:
        self._shard.seek(checkpoint)

    def __aiter__(self) -> _ObservedShard:
        return self

    async def __anext__(self) -> Batch:
        batch = await anext(self._shard)
        self._unacked.append(batch)
        return batch

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        whole = batch.number if index is None else batch.number - 1
        while self._unacked and self._unacked[0].number <= whole:
            self._add_acked(self._unacked.pop(0))
            self._acked_of_first = 0
        if index is not None:
            self._add_acked(batch, index + 1)
            self._acked_of_first = index + 1
        self._shard.ack_through(batch, index)

    def _add_acked(self, batch: Batch, end: int | None = None) -> None:
        self._add_line(Acked(self._worker, self.shard_id, marks(batch.records[self._acked_of_first : end])))
