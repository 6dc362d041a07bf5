"""Commits that are repeated, to a sink with scripted failures, in virtual time."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from efo.errors import IsolateShardError, StreamRecreatedError
from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.relay.destination import Destination, SinkRetries
from efo_service.relay.errors import (
    LogOwnerError,
    SegmentCorruptError,
    SinkDefectError,
    SinkError,
    SinkFencedError,
    SinkFullError,
    SinkOrderError,
)
from efo_service.relay.relay import CommitPace, relay_shard
from efo_service.relay.shard_writer import CLOSE_SECONDS, ShardWriter
from efo_service.relay.sink import Part
from tests.efo_service.conftest import SHARD, STREAM
from tests.efo_service.relay.relaying import ListedShard, Reports, relay_all


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
        self.is_forgiving = False
        self.between = ()
        self._failures = list(failures)

    def fail(self) -> None:
        failure = self._failures.pop(0) if self._failures else None
        if isinstance(failure, Exception):
            self.kept += self.between
            raise failure
        if failure:
            raise UnansweredError("no response")

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

    def refusal(self, record: Record) -> str | None:
        return "odd" if record.data == b"odd" else None

    def prepare(self, records) -> Part:
        return Part(records, len(records))

    async def commit(self, parts) -> None:
        assert not self._broken, "used after a failure"
        records = [record for part in parts for record in part.content]
        assert self.position is None or checkpoint_of(records[0]) > self.position
        self._broken = not self._sink.is_forgiving
        await trio.sleep(0.01)
        if self._sink._failures[:1] == ["lost"]:
            self._sink.kept += records
        self._sink.fail()
        self._broken = False
        self._sink.kept += records
        if self._sink.kept and self._sink.owns_position:
            self.position = checkpoint_of(self._sink.kept[-1])


class UnansweredError(SinkError):
    """A failure after which the sink is opened again."""

    retryable = True
    error_type = "unanswered"


def retried(sink: FlakySink, seconds: float = 60, **options) -> Destination:
    retries = SinkRetries(seconds=seconds, isolating_errors=(FencedError,), **options)
    return Destination(sink, retries, Reports())


RETRYABLE = UnansweredError("full")


@pytest.mark.parametrize(
    "failures", [(), (RETRYABLE,), (None, RETRYABLE), (None, RETRYABLE, RETRYABLE, RETRYABLE), (None, "lost")]
)
async def test_retryable_errors_are_retried_without_losing_or_repeating_records(failures, make_batch, autojump_clock):
    flaky = FlakySink(*failures)
    destination = retried(flaky)
    await relay_all(destination, *(make_batch(5, start) for start in (0, 5)), each=True)
    assert flaky.kept == list(make_batch(10).records)
    assert flaky.opened == flaky.closed
    assert len(destination.reports.delays) == len([failure for failure in failures if failure])


async def test_after_an_error_that_leaves_nothing_behind_the_shard_is_not_opened_again(make_batch, autojump_clock):
    flaky = FlakySink(None, SinkFullError("full"), SinkFullError("full"))
    flaky.is_forgiving = True
    await relay_all(retried(flaky), make_batch(5))
    assert (flaky.kept, flaky.opened) == (list(make_batch(5).records), 1)


async def test_a_position_in_the_middle_of_a_commit_is_that_of_another_worker(make_batch, autojump_clock):
    flaky = FlakySink(None, RETRYABLE)
    flaky.between = make_batch(3).records  # as if another worker had written them in between
    with pytest.raises(SinkFencedError, match="another worker has written"):
        await relay_all(retried(flaky), make_batch(5))
    assert flaky.kept == list(make_batch(3).records)


async def test_what_another_worker_has_written_is_acked_and_not_written_again(make_batch, autojump_clock):
    flaky = FlakySink(None, RETRYABLE)
    flaky.between = make_batch(7).records
    shard = await relay_all(retried(flaky), make_batch(5))
    assert (flaky.kept, shard.acked) == (list(make_batch(7).records), [(0, None)])
    with pytest.raises(SinkOrderError):
        await relay_all(retried(flaky), make_batch(5, 6))


@pytest.mark.parametrize("left", [0, 3])
async def test_a_sink_that_has_lost_records_is_not_continued(left, make_batch, autojump_clock):
    """What was acked would be missing. The shard is read again from what is left."""
    flaky = FlakySink(None, None, RETRYABLE)

    class Removing(Reports):
        def retried(self, shard_id, error, seconds):
            del flaky.kept[left:]

    destination = replace(retried(flaky), reports=Removing())
    with pytest.raises(SinkFencedError, match="records were removed"):
        await relay_all(destination, make_batch(5), make_batch(5, 5, 1), each=True)
    shard = await relay_all(destination, make_batch(10 - left, left))
    assert flaky.kept == list(make_batch(10).records)
    assert shard.seeks == ([checkpoint_of(make_batch(left).records[-1])] if left else [])


class ClosesWithError(FlakySink):
    """Its context fails when it is left, so many times."""

    def __init__(self, *failures: Exception | str | None, times: int = 1, error: Exception | None = None) -> None:
        super().__init__(*failures)
        self.times = times
        self.error = error or ValueError("secret data")

    @asynccontextmanager
    async def open(self, stream, shard_id, checkpoint=None):
        async with super().open(stream, shard_id, checkpoint) as shard:
            yield shard
        self.times -= 1
        if self.times >= 0:
            raise self.error


async def test_a_failure_to_close_a_sink_that_failed_is_no_other_failure(make_batch, autojump_clock):
    flaky = ClosesWithError(None, RETRYABLE)
    await relay_all(retried(flaky), make_batch(5))
    assert (flaky.kept, flaky.opened, flaky.closed) == (list(make_batch(5).records), 2, 2)
    with pytest.raises(SinkError, match="broken"):
        await relay_all(retried(ClosesWithError(None, SinkError("broken"))), make_batch(5))


async def test_a_sink_that_cannot_be_closed_is_reported_without_its_data(make_batch, autojump_clock):
    flaky = ClosesWithError()
    with pytest.raises(SinkDefectError, match=r"ValueError at .*test_shard_writer.py:\d+") as caught:
        await relay_all(retried(flaky), make_batch(5))
    assert "secret" not in str(caught.value)
    assert flaky.kept == list(make_batch(5).records)
    with pytest.raises(SinkError, match="no answer"):
        await relay_all(retried(ClosesWithError(error=SinkError("no answer"))), make_batch(5))


async def test_a_sink_that_hangs_when_it_is_closed_does_not_hold_its_shard(make_batch, autojump_clock):
    class Hangs(FlakySink):
        @asynccontextmanager
        async def open(self, stream, shard_id, checkpoint=None):
            async with super().open(stream, shard_id, checkpoint) as shard:
                yield shard
            await trio.sleep_forever()

    started = trio.current_time()
    with trio.move_on_after(1):
        await relay_all(retried(Hangs()), make_batch(5), pause=9)
    assert trio.current_time() - started == pytest.approx(1 + CLOSE_SECONDS)


async def test_a_second_sink_that_cannot_be_opened_closes_the_first(make_batch, autojump_clock):
    main, letters = FlakySink(), FlakySink(SinkError("no such topic"))
    with pytest.raises(SinkError, match="no such topic"):
        await relay_all(replace(retried(main), dead_letters=retried(letters)), make_batch(1))
    assert (main.opened, main.closed, letters.opened) == (1, 1, 0)


async def test_each_sink_is_closed_although_the_other_cannot_be_closed(make_batch, autojump_clock):
    for sinks in ((ClosesWithError(), FlakySink()), (FlakySink(), ClosesWithError())):
        main, letters = map(retried, sinks)
        with pytest.raises(SinkDefectError):
            await relay_all(replace(main, dead_letters=letters), make_batch(1))
        assert [sink.closed for sink in sinks] == [1, 1]


async def test_the_writer_knows_why_it_waits(make_batch, autojump_clock):
    flaky = FlakySink(RETRYABLE, None, RETRYABLE)
    seen = []

    class Seeing(Reports):
        def retried(self, shard_id, error, seconds):
            seen.append(writer.overdue)

    destination = replace(retried(flaky), reports=Seeing())
    writer = ShardWriter(destination, STREAM, SHARD, Checkpoint.TRIM_HORIZON, None)
    await writer.open()
    assert writer.overdue is None
    record = make_batch(1).records[0]
    await writer.commit([Part([record], 1)], checkpoint_of(record))
    assert [(overdue.error_type, overdue.detail) for overdue in seen] == [("unanswered", "full")] * 2
    assert writer.overdue is None
    assert RETRYABLE.__traceback__ is None  # its frames have the records
    await writer.close()


async def test_a_sink_without_positions_gets_all_records_of_the_commit_again(make_batch, autojump_clock):
    flaky = FlakySink(None, "lost", owns_position=False)
    await relay_all(retried(flaky), make_batch(2))
    assert flaky.kept == [*make_batch(2).records] * 2


@pytest.mark.parametrize("failures", [[FencedError("another")], [None, FencedError("another")]])
async def test_a_fenced_shard_is_isolated_at_once(failures, make_batch, autojump_clock):
    flaky = FlakySink(*failures)
    destination = retried(flaky)
    with pytest.raises(IsolateShardError, match="another"):
        await relay_all(destination, make_batch(1))
    assert destination.reports.delays == []
    assert flaky.opened == flaky.closed


async def test_a_shard_is_isolated_when_the_retry_time_is_over(make_batch, autojump_clock):
    flaky = FlakySink(None, *[RETRYABLE] * 1000)
    destination = retried(flaky, seconds=60)
    started = trio.current_time()
    with pytest.raises(IsolateShardError, match=r"has failed \d+ times in 60 s; the last error: full"):
        await relay_all(destination, make_batch(1))
    assert 60 <= trio.current_time() - started < 61
    assert 10 < len(destination.reports.delays) < 200


async def test_if_the_sink_says_so_the_last_error_is_raised_when_the_time_is_over(make_batch, autojump_clock):
    flaky = FlakySink(None, *[RETRYABLE] * 1000)
    with pytest.raises(UnansweredError):
        await relay_all(retried(flaky, isolates=False), make_batch(1))


async def test_other_errors_are_raised_unchanged_and_close_the_shard_sink(make_batch, autojump_clock):
    flaky = FlakySink(SinkError("broken"), None, SinkError("broken"))
    for _ in range(2):
        with pytest.raises(SinkError, match="broken"):
            await relay_all(retried(flaky), make_batch(1))
    assert flaky.opened == flaky.closed == 1


async def test_only_the_errors_that_are_named_are_repeated(make_batch, autojump_clock):
    with pytest.raises(UnansweredError):
        await relay_all(retried(FlakySink(None, RETRYABLE), errors=(SinkFullError,)), make_batch(1))


DAMAGED = SegmentCorruptError("damaged")


@pytest.mark.parametrize("seconds", [1, 60])
async def test_what_looks_damaged_is_read_again_as_long_as_it_is_doubted(seconds, make_batch, autojump_clock):
    """Whether the shard is opened or committed, and however short other failures are waited for."""
    flaky = FlakySink(DAMAGED, DAMAGED, None, DAMAGED, DAMAGED)
    destination = retried(flaky, seconds, initial=2, jitter=0, doubt=30)
    await relay_all(destination, make_batch(2))
    assert flaky.kept == list(make_batch(2).records)
    reports = destination.reports
    assert (reports.delays, reports.recoveries) == ([2, 4, 2, 4], [SHARD, SHARD])
    started = trio.current_time()
    with pytest.raises(SegmentCorruptError, match=r"^damaged$"):
        await relay_all(retried(FlakySink(*[DAMAGED] * 99), seconds, doubt=30), make_batch(1))
    assert 29.9 < trio.current_time() - started < 36


@pytest.mark.parametrize("error", [LogOwnerError("another's"), StreamRecreatedError("recreated")])
async def test_what_an_intact_log_says_is_not_doubted(error, make_batch, autojump_clock):
    with pytest.raises(type(error)):
        await relay_all(retried(FlakySink(error), doubt=30), make_batch(1))


@pytest.mark.parametrize("seed", range(20))
async def test_the_relay_is_exactly_once_under_any_sequence_of_failures(seed, make_batch, autojump_clock):
    rng = random.Random(seed)
    flaky = FlakySink(*(rng.choice([None, None, RETRYABLE, "lost"]) for _ in range(200)))
    shard = ListedShard([make_batch(3, 3 * number, number) for number in range(100)], pause=0.02)
    await relay_shard(shard, retried(flaky, seconds=9999), pace=CommitPace(0.05), rng=rng)
    assert flaky.kept == list(make_batch(300).records)
    assert shard.acked[-1] == (99, None)
