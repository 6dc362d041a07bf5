"""The relay with sinks that fail anywhere, cancelled anywhere: no record is lost, repeated, or acked too early."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
import trio

from efo.errors import IsolateShardError
from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo_service.relay.destination import Destination, SinkRetries
from efo_service.relay.errors import SinkError, SinkFencedError, SinkFullError, SinkUnavailableError
from efo_service.relay.relay import CommitPace, relay_shard
from efo_service.relay.sink import Part
from tests.efo_service.conftest import FIRST, SHARD, STREAM
from tests.efo_service.relay.relaying import Reports

RETRIES = SinkRetries(seconds=5.0, initial=0.01, limit=0.5)
FAILURES = [SinkUnavailableError, SinkFullError, SinkError]
SECONDS = 0.01
"""What opening, closing and each half of a commit take."""


@dataclass
class DurableSink:
    """Keeps records and their position in memory. `is_failing`: openings and commits fail at random, at any step."""

    rng: random.Random
    refused: frozenset[bytes] = frozenset()
    keeps_position: bool = True
    records: list[Record] = field(default_factory=list)
    is_failing: bool = True
    opened: int = 0
    closed: int = 0

    @property
    def position(self) -> Checkpoint | None:
        return checkpoint_of(self.records[-1]) if self.records and self.keeps_position else None

    async def step(self) -> None:
        await trio.sleep(SECONDS)
        if self.is_failing and self.rng.random() < 0.1:
            raise self.rng.choice(FAILURES)("broken")

    @asynccontextmanager
    async def open(self, stream, shard_id, checkpoint=None):
        assert (stream, shard_id) == (STREAM, SHARD)
        await self.step()
        self.opened += 1
        try:
            yield DurableShardSink(self)
        finally:
            await trio.sleep(SECONDS)
            self.closed += 1
            if self.is_failing and self.rng.random() < 0.1:
                raise ValueError("secret data")


class DurableShardSink:
    def __init__(self, sink: DurableSink) -> None:
        self._sink = sink
        self.position = sink.position

    def refusal(self, record: Record) -> str | None:
        return "odd" if record.data in self._sink.refused else None

    def prepare(self, records) -> Part:
        assert not any(map(self.refusal, records))
        return Part(tuple(records), sum(len(record.data) for record in records))

    async def commit(self, parts) -> None:
        records = [record for part in parts for record in part.content]
        assert records
        await self._sink.step()
        self._sink.records += records
        try:
            await self._sink.step()
        except SinkFullError:
            raise SinkUnavailableError("no answer") from None  # it left something behind
        self.position = self._sink.position


class Shard:
    """A shard with all records, read from where the sink or the last ack says. `acked`: how many records are acked."""

    stream, shard_id, checkpoint, has_pending = STREAM, SHARD, Checkpoint.TRIM_HORIZON, False

    def __init__(self, records, acked: int, rng: random.Random) -> None:
        self._records = records
        self._start = acked
        self._rng = rng
        self._ends: dict[int, tuple[int, int]] = {}
        self.acked = acked

    def seek(self, checkpoint: Checkpoint) -> None:
        self._start = int(checkpoint.sequence_number) - FIRST + 1
        self.acked = max(self.acked, self._start)  # the sink has them

    def __aiter__(self) -> Shard:
        return self

    async def __anext__(self) -> Batch:
        await trio.sleep(self._rng.choice([0, 0, 0.003, 0.07]))
        if self._start == len(self._records):
            raise StopAsyncIteration
        begin, self._start = self._start, min(len(self._records), self._start + self._rng.choice([0, 1, 2, 5, 17]))
        number = len(self._ends)
        self._ends[number] = begin, self._start
        return Batch(STREAM, SHARD, self._records[begin : self._start], None, 0, number)

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        begin, end = self._ends[batch.number]
        self.acked = max(self.acked, end if index is None else begin + index + 1)


def spoil(records, rng: random.Random) -> tuple[frozenset[bytes], ...]:
    """Choose the records that the sink refuses: single ones, runs, and the first and last ones of some."""
    odd = {rng.randrange(len(records)) for _ in range(rng.choice([0, 3, 20]))}
    for _ in range(rng.choice([0, 2])):
        begin = rng.randrange(len(records))
        odd |= set(range(begin, min(len(records), begin + 12)))
    return frozenset(records[number].data for number in odd)


async def relay(shard: Shard, destination: Destination, rng: random.Random) -> None:
    limits = {"commit_records": rng.choice([1, 6, 1000]), "commit_bytes": rng.choice([1, 30, 10**6])}
    try:
        await relay_shard(shard, destination, **limits, pace=CommitPace(0.05), rng=rng)
    except SinkFencedError as error:
        raise AssertionError("there is no other worker") from error


def values(records) -> list[bytes]:
    return [record.data for record in records]


@pytest.mark.parametrize("seed", range(60))
async def test_no_failure_and_no_cancellation_loses_or_repeats_a_record(seed, make_records, autojump_clock) -> None:
    rng = random.Random(seed)
    records = make_records(150)
    main, letters = DurableSink(rng, spoil(records, rng)), DurableSink(rng)
    destination = Destination(main, RETRIES, Reports(), Destination(letters, RETRIES))
    acked, runs = 0, 0
    while acked < len(records):
        runs += 1
        main.is_failing = letters.is_failing = runs < 30
        shard = Shard(records, acked, rng)
        with trio.move_on_after(rng.choice([0.005, 0.02, 0.1, 0.4, 99]) if runs < 30 else 99):
            with suppress(SinkError, IsolateShardError):
                await relay(shard, destination, rng)
        assert (main.opened, letters.opened) == (main.closed, letters.closed)
        acked = shard.acked
        durable = {*values(main.records), *values(letters.records)}
        assert durable.issuperset(values(records[:acked]))
    assert values(main.records) == [record.data for record in records if record.data not in main.refused]
    assert values(letters.records) == [record.data for record in records if record.data in main.refused]
    reported = {refused.record for _, refused in destination.reports.refusals}
    assert len(reported) <= len(letters.records)


@pytest.mark.parametrize("seed", range(20))
async def test_without_positions_nothing_is_lost_and_the_order_is_kept(seed, make_records, autojump_clock) -> None:
    rng = random.Random(seed)
    records = make_records(100)
    main, letters = DurableSink(rng, spoil(records, rng), keeps_position=False), DurableSink(rng, keeps_position=False)
    destination = Destination(main, RETRIES, dead_letters=Destination(letters, RETRIES))
    acked, runs = 0, 0
    while acked < len(records):
        runs += 1
        main.is_failing = letters.is_failing = runs < 20
        shard = Shard(records, acked, rng)
        with trio.move_on_after(rng.choice([0.02, 0.1, 99])):
            with suppress(SinkError, IsolateShardError):
                await relay(shard, destination, rng)
        acked = shard.acked
        assert {*values(main.records), *values(letters.records)} >= set(values(records[:acked]))
    for sink, taken in ((main, lambda r: r.data not in main.refused), (letters, lambda r: r.data in main.refused)):
        assert list(dict.fromkeys(values(sink.records))) == values(filter(taken, records))


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("at", [number * SECONDS / 2 for number in range(26)])
async def test_a_relay_that_is_cancelled_anywhere_closes_its_sinks(at, steps, make_records, autojump_clock) -> None:
    """While it opens, commits, waits for the next try, and closes: at each await."""
    rng = random.Random(1)
    main, letters = (DurableSink(rng, refused, is_failing=False) for refused in (frozenset([b"value-2"]), frozenset()))
    destination = Destination(main, RETRIES, dead_letters=Destination(letters, RETRIES))
    failures = iter([None, SinkUnavailableError("away"), SinkFullError("full")])
    step = main.step

    async def fail() -> None:
        await step()
        if (error := next(failures, None)) is not None:
            raise error

    main.step = fail
    shard = Shard(make_records(9), 0, rng)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay, shard, destination, rng)
            await trio.sleep(at)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            scope.cancel()
    assert (main.opened, letters.opened) == (main.closed, letters.closed)
    assert {*values(main.records), *values(letters.records)} >= set(values(make_records(shard.acked)))


async def test_durable_dead_letters_alone_move_the_ack_of_what_is_being_written(make_batch, autojump_clock) -> None:
    """They follow records that are in the buffer, or in the running commit: these must be durable before."""
    rng = random.Random(1)
    main = DurableSink(rng, frozenset([b"value-1", b"value-3"]), is_failing=False)
    letters = DurableSink(rng, is_failing=False)
    letters.records = [make_batch(4).records[-1]]
    batches = [make_batch(1, number, number) for number in range(4)]
    acks = []

    class Timed(Shard):
        def __init__(self) -> None:
            super().__init__((), 0, rng)
            self._batches = iter(batches)

        async def __anext__(self) -> Batch:
            await trio.sleep(0.04)
            for batch in self._batches:
                return batch
            raise StopAsyncIteration

        def ack_through(self, batch, index=None) -> None:
            acks.append((batch.number, index, len(main.records)))

    destination = Destination(main, RETRIES, dead_letters=Destination(letters, RETRIES))
    await relay_shard(Timed(), destination, pace=CommitPace(0.05))
    assert acks == [(1, None, 1), (3, None, 2)]
    assert values(main.records) == [b"value-0", b"value-2"]
    assert len(letters.records) == 1
