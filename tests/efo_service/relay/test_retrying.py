"""RetryingSink around a sink with scripted failures, in virtual time."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager

import pytest
import trio

from efo.errors import IsolateShardError
from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import RecordRefusedError, SinkClosedError, SinkError, SinkFullError
from efo_service.relay.relay import CommitPace, relay_shard
from efo_service.relay.retrying import RetryingSink
from tests.efo_service.relay.conftest import SHARD, STREAM


class FencedError(SinkError):
    """Another worker owns the shard."""


class FlakySink:
    """Keeps records and position in memory. `failures`: what openings and commits raise, in order; None for success.

    "lost": the commit succeeds, but its response is lost.
    """

    def __init__(self, *failures: Exception | str | None, owns_position: bool = True) -> None:
        self.kept: list[Record] = []
        self.opened = self.closed = 0
        self.owns_position = owns_position
        self._failures = list(failures)

    def fail(self) -> None:
        failure = self._failures.pop(0) if self._failures else None
        if isinstance(failure, Exception):
            raise failure
        if failure:
            raise SinkFullError("no response")

    @asynccontextmanager
    async def open(self, stream, shard_id, checkpoint=None):
        assert (stream, shard_id) == (STREAM, SHARD)
        self.fail()
        self.opened += 1
        yield FlakyShardSink(self)
        self.closed += 1


class FlakyShardSink:
    def __init__(self, sink: FlakySink) -> None:
        self._sink = sink
        self._records: list[Record] = []
        self._broken = False
        self.position = checkpoint_of(sink.kept[-1]) if sink.kept and sink.owns_position else None

    pending_records = pending_bytes = 0

    def size(self, records) -> int:
        return len(records)

    def refusal(self, record: Record) -> str | None:
        return "odd" if record.data == b"odd" else None

    def write(self, batch: Batch) -> None:
        assert self.position is None or checkpoint_of(batch.records[0]) > self.position
        self._records += batch.records

    async def commit(self) -> None:
        assert not self._broken, "used after a failure"
        records, self._records = self._records, []
        self._broken = True
        await trio.sleep(0.01)
        if self._sink._failures[:1] == ["lost"]:
            self._sink.kept += records
        self._sink.fail()
        self._broken = False
        self._sink.kept += records
        if self._sink.kept and self._sink.owns_position:
            self.position = checkpoint_of(self._sink.kept[-1])


async def commit_one(sink: RetryingSink, batch: Batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(batch)
        await shard.commit()


def retrying(sink: FlakySink, **options) -> RetryingSink:
    delays: list[float] = []
    retrying_sink = RetryingSink(
        sink,
        seconds=options.pop("seconds", 60),
        isolating_errors=(FencedError,),
        on_retry=lambda _shard, _error, seconds: delays.append(seconds),
        rng=random.Random(1),
    )
    retrying_sink.delays = delays
    return retrying_sink


RETRYABLE = SinkFullError("full")


@pytest.mark.parametrize(
    "failures", [(), (RETRYABLE,), (None, RETRYABLE), (None, RETRYABLE, RETRYABLE, RETRYABLE), (None, "lost")]
)
async def test_retryable_errors_are_retried_without_losing_or_repeating_records(failures, make_batch, autojump_clock):
    flaky = FlakySink(*failures)
    sink = retrying(flaky)
    async with sink.open(STREAM, SHARD) as shard:
        for start in (0, 5):
            shard.write(make_batch(3, start))
            shard.write(make_batch(2, start + 3))
            await shard.commit()
        assert shard.position == checkpoint_of(make_batch(10).records[-1])
    assert flaky.kept == list(make_batch(10).records)
    assert flaky.opened == flaky.closed
    assert len(sink.delays) == len([failure for failure in failures if failure])


async def test_only_the_rest_of_a_partly_durable_batch_is_written(make_batch, autojump_clock):
    flaky = FlakySink(None, RETRYABLE)
    async with retrying(flaky).open(STREAM, SHARD) as shard:
        shard.write(make_batch(5))
        flaky.kept += make_batch(3).records  # as if another worker had written them in between
        await shard.commit()
    assert flaky.kept == list(make_batch(5).records)


async def test_a_sink_without_positions_gets_all_records_of_the_commit_again(make_batch, autojump_clock):
    flaky = FlakySink(None, "lost", owns_position=False)
    async with retrying(flaky).open(STREAM, SHARD) as shard:
        shard.write(make_batch(2))
        await shard.commit()
    assert flaky.kept == [*make_batch(2).records] * 2


@pytest.mark.parametrize("failures", [[FencedError("another")], [None, FencedError("another")]])
async def test_a_fenced_shard_is_isolated_at_once(failures, make_batch, autojump_clock):
    flaky = FlakySink(*failures)
    sink = retrying(flaky)
    with pytest.raises(IsolateShardError, match="another"):
        await commit_one(sink, make_batch(1))
    assert sink.delays == []
    assert flaky.opened == flaky.closed


async def test_a_shard_is_isolated_when_the_retry_time_is_over(make_batch, autojump_clock):
    flaky = FlakySink(None, *[RETRYABLE] * 1000)
    sink = retrying(flaky, seconds=60)
    started = trio.current_time()
    with pytest.raises(IsolateShardError, match=r"has failed \d+ times in 60 s; the last error: full"):
        await commit_one(sink, make_batch(1))
    assert 60 <= trio.current_time() - started < 61
    assert 10 < len(sink.delays) < 200


async def test_other_errors_are_raised_unchanged_and_close_the_shard_sink(make_batch, autojump_clock):
    flaky = FlakySink(SinkError("broken"), None, SinkError("broken"))
    with pytest.raises(SinkError, match="broken"):
        await commit_one(retrying(flaky), make_batch(1))
    async with retrying(flaky).open(STREAM, SHARD) as shard:
        shard.write(make_batch(1))
        with pytest.raises(SinkError, match="broken"):
            await shard.commit()
        with pytest.raises(SinkClosedError):
            shard.write(make_batch(1, 1))
    assert flaky.opened == flaky.closed == 1


async def test_write_raises_for_a_refused_record(make_batch, autojump_clock):
    flaky = FlakySink()
    odd = Record("5", 1.0, b"odd", "k")
    async with retrying(flaky).open(STREAM, SHARD) as shard:
        with pytest.raises(RecordRefusedError, match="odd"):
            shard.write(Batch("s", SHARD, (odd,), None, 0, 0))
        await shard.commit()
    assert flaky.kept == []


class ListedShard:
    stream, shard_id = STREAM, SHARD

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = iter(batches)
        self.acked: list[int] = []

    checkpoint = Checkpoint.TRIM_HORIZON
    has_pending = False

    def seek(self, checkpoint: Checkpoint) -> None:
        raise AssertionError("the sink was empty")

    def __aiter__(self):
        return self

    async def __anext__(self) -> Batch:
        await trio.sleep(0.02)
        for batch in self._batches:
            return batch
        raise StopAsyncIteration

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        self.acked.append(batch.number)


@pytest.mark.parametrize("seed", range(20))
async def test_the_relay_is_exactly_once_under_any_sequence_of_failures(seed, make_batch, autojump_clock):
    rng = random.Random(seed)
    flaky = FlakySink(*(rng.choice([None, None, RETRYABLE, "lost"]) for _ in range(200)))
    shard = ListedShard([make_batch(3, 3 * number, number) for number in range(100)])
    await relay_shard(shard, retrying(flaky, seconds=9999), pace=CommitPace(0.05))
    assert flaky.kept == list(make_batch(300).records)
    assert shard.acked[-1] == 99
