"""relay_shard with a scripted shard and a scripted sink, in virtual time."""

import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Self

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from efo.health import Overdue
from efo.model import Batch, Checkpoint, checkpoint_of
from efo_service.log.disk import DiskFiles
from efo_service.log.segments import list_segments, read_segment
from efo_service.log.sink import LogSink
from efo_service.relay import relay
from efo_service.relay.destination import SinkRetries
from efo_service.relay.errors import LogIncompleteError, RecordRefusedError, SinkDefectError, SinkError, SinkFullError
from efo_service.relay.relay import MAX_COMMITS_PER_SECOND, MAX_DELAY, CommitPace
from efo_service.relay.sink import Part
from efo_service.relay.write_buffer import Room
from tests.efo_service.relay.relaying import to

SHARD = "shardId-000000000000"


class Stopwatch:
    """Measures virtual time in seconds since its creation, which is the start of the test."""

    def __init__(self) -> None:
        self.start = trio.current_time()

    @property
    def seconds(self) -> float:
        return round(trio.current_time() - self.start, 3)


class FakeShard(Stopwatch):
    """Delivers batches at fixed times (seconds from the start), then ends. Records acks with their times.

    `pending_until`: until when more of the shard has arrived than was delivered.
    """

    stream = "orders"
    shard_id = SHARD
    checkpoint = Checkpoint.TRIM_HORIZON

    def __init__(
        self,
        *timed: tuple[float, Batch],
        stay: bool = False,
        failure: Exception | None = None,
        pending_until: float = 0.0,
    ) -> None:
        super().__init__()
        self._pending_until = pending_until
        self._timed = iter(timed)
        self._stay = stay
        self._failure = failure
        self.acked: list[tuple[float, int]] = []
        self.first_ack = trio.Event()
        self.delivered: list[tuple[float, int]] = []
        self.seeks: list[Checkpoint] = []

    @property
    def has_pending(self) -> bool:
        return self.seconds < self._pending_until

    def seek(self, checkpoint: Checkpoint) -> None:
        self.seeks.append(checkpoint)

    # Not an async generator: the garbage collector would clean up an unfinished one at an unknown time.
    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        for at, batch in self._timed:
            await trio.sleep_until(self.start + at)
            self.delivered.append((self.seconds, batch.number))
            return batch
        if self._stay:
            await trio.sleep_forever()
        if self._failure is not None:
            raise self._failure
        raise StopAsyncIteration

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        self.acked.append((self.seconds, batch.number if index is None else (batch.number, index)))
        self.first_ack.set()


class FakeSink(Stopwatch):
    """Takes `seconds` for a commit. Records the time of each commit and the numbers of its batches.

    `held`: the bytes that are prepared and not committed.
    """

    def __init__(self, *, seconds: float = 0.002, position: Checkpoint | None = None, fail_at: int = -1) -> None:
        super().__init__()
        self.position = position
        self.commits: list[tuple[float, list[int]]] = []
        self.sizes: list[int] = []
        self.held = 0
        self.error = SinkError("the disk has failed")
        self.odd = None
        self.closed = False
        self.shard: FakeShard | None = None
        self._commit_seconds = seconds
        self._fail_at = fail_at
        self._committing = False

    @asynccontextmanager
    async def open(self, stream: str, shard_id: str, checkpoint: Checkpoint) -> AsyncIterator["FakeSink"]:
        assert (stream, shard_id) == ("orders", SHARD)
        yield self
        self.closed = True

    def refusal(self, record) -> str | None:
        return "it is odd" if record.data == self.odd else None

    def prepare(self, records) -> Part:
        number = self.shard.delivered[-1][1]
        part = Part((number, len(records)), sum(len(record.data) + len(record.partition_key) for record in records))
        self.held += part.size
        return part

    async def commit(self, parts) -> None:
        assert not self._committing, "one commit at a time"
        assert parts
        self._committing = True
        await trio.sleep(self._commit_seconds)
        self._committing = False
        if len(self.commits) == self._fail_at:
            raise self.error
        self.commits.append((self.seconds, [part.content[0] for part in parts]))
        self.sizes.append(sum(part.content[1] for part in parts))
        self.held -= sum(part.size for part in parts)


async def relay_shard(shard: FakeShard, sink, **options) -> None:
    if isinstance(sink, FakeSink):
        sink.shard = shard
    await relay.relay_shard(shard, to(sink), **options)


async def test_the_write_buffer_is_committed_when_it_is_old_enough(make_batch, autojump_clock) -> None:
    shard = FakeShard(
        (1.00, make_batch(5, 0, number=0)),
        (1.03, make_batch(5, 5, number=1)),
        (1.04, make_batch(5, 10, number=2)),
        (2.00, make_batch(5, 15, number=3)),
        (3.00, make_batch(0, 20, number=4)),
    )
    sink = FakeSink()
    await relay_shard(shard, sink, pace=CommitPace(0.05))
    assert sink.commits == [(1.052, [0, 1, 2]), (2.052, [3])]
    assert shard.acked == [(1.052, 2), (2.052, 3), (3.0, 4)]
    assert sink.closed


def test_many_shards_share_the_pace_of_commits() -> None:
    pace = CommitPace(0.05)
    assert pace.due(10.0) == 10.05
    assert [pace.due(10.0) for _ in range(3)] == pytest.approx([10.055, 10.06, 10.065])
    assert pace.due(10.2) == 10.25  # a few shards do not delay each other
    last = [pace.due(20.0) for _ in range(1000)][-1]
    assert last == pytest.approx(20.05 + MAX_DELAY)
    assert pace.due(30.0) == 30.05


def test_a_shard_that_lags_commits_later_by_a_tenth_of_its_lag() -> None:
    pace = CommitPace(0.05)
    assert pace.due(10.0, 0.3) == 10.05
    assert pace.due(20.0, 4.0) == pytest.approx(20.4)
    assert pace.due(30.0, 86_400.0) == 30.0 + MAX_DELAY


async def test_a_backlog_is_committed_in_few_commits(make_batch, autojump_clock) -> None:
    batches = [replace(make_batch(5, 5 * n, number=n), millis_behind_latest=60_000) for n in range(250)]
    shard = FakeShard(*((0.01 * n, batch) for n, batch in enumerate(batches)))
    sink = FakeSink()
    await relay_shard(shard, sink, pace=CommitPace(0.05))
    assert len(sink.commits) == 3  # in 2.5 seconds
    assert sink.commits[0][0] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("pending_until", "committed_at"),
    [
        (0.04, 0.05),  # all that had arrived is in the buffer when the commit is due
        (0.20, 0.20),  # with the first batch after which nothing waits
        (9.00, MAX_DELAY),
    ],
)
async def test_a_commit_that_is_due_waits_for_what_has_already_arrived(
    make_batch, pending_until, committed_at, autojump_clock
) -> None:
    batches = [(0.01 * n, make_batch(5, 5 * n, number=n)) for n in (*range(22), 300)]
    sink = FakeSink(seconds=0.002)
    await relay_shard(FakeShard(*batches, pending_until=pending_until), sink, pace=CommitPace(0.05))
    assert sink.commits[0][0] == pytest.approx(committed_at + 0.002, abs=0.001)


async def test_a_full_write_buffer_does_not_wait_for_what_has_already_arrived(make_batch, autojump_clock) -> None:
    shard = FakeShard(*((0.1 * n, make_batch(4, 4 * n, number=n)) for n in range(4)), pending_until=9)
    sink = FakeSink()
    await relay_shard(shard, sink, commit_records=8, pace=CommitPace(0.05))
    assert sink.commits == [(0.102, [0, 1]), (0.302, [2, 3])]


async def test_a_pace_slower_than_the_longest_delay_is_kept(make_batch, autojump_clock) -> None:
    shard = FakeShard((0.0, make_batch(1)), stay=True, pending_until=99)
    sink = FakeSink()
    with trio.move_on_after(9):
        await relay_shard(shard, sink, pace=CommitPace(5))
    assert sink.commits == [(5.002, [0])]


async def test_with_many_shards_each_commit_has_the_records_of_a_longer_time(autojump_clock, make_batch) -> None:
    """100 shards with a record each 10 ms: 2,000 commits a second, if each shard had its own pace."""
    pace, sinks = CommitPace(0.05), [FakeSink() for _ in range(100)]
    async with trio.open_nursery() as nursery:
        for sink in sinks:
            batches = [(0.01 * n, make_batch(1, n, number=n)) for n in range(500)]
            nursery.start_soon(partial(relay_shard, FakeShard(*batches), sink, pace=pace))
    assert sum(len(sink.commits) for sink in sinks) < 1.2 * 5 * MAX_COMMITS_PER_SECOND
    assert all(sum(len(records) for _, records in sink.commits) == 500 for sink in sinks)


@pytest.mark.parametrize("limits", [{"commit_records": 10}, {"commit_bytes": 10 * len("value-0key-0")}])
async def test_a_full_write_buffer_is_committed_at_once(make_batch, limits, autojump_clock) -> None:
    shard = FakeShard(*((0.01 * n, make_batch(4, 4 * n, number=n)) for n in range(4)))
    sink = FakeSink()
    await relay_shard(shard, sink, pace=CommitPace(9), **limits)
    assert sink.commits == [(0.022, [0, 1, 2]), (0.032, [3])]


async def test_a_batch_larger_than_a_commit_is_committed_in_pieces(make_batch, autojump_clock) -> None:
    shard = FakeShard((0.0, make_batch(8, number=0)), (9.0, make_batch(0, 8, number=1)))
    sink = FakeSink(seconds=1)
    await relay_shard(shard, sink, commit_bytes=3 * len("value-0key-0"), pace=CommitPace(9))
    assert sink.sizes == [4, 4]
    assert shard.acked == [(1, (0, 3)), (2, 0), (9, 1)]


@pytest.mark.parametrize("odd", range(8))
@pytest.mark.parametrize("commit_bytes", [10**6, 3 * len("value-0key-0")])
async def test_all_records_before_a_refused_one_are_committed_and_acked(
    make_batch, odd, commit_bytes, autojump_clock
) -> None:
    """Otherwise an isolated shard would never get past them."""
    batches = [make_batch(3, number=0), make_batch(4, 3, number=1), make_batch(1, 7, number=2)]
    shard, sink = FakeShard(*((0.0, batch) for batch in batches), stay=True), FakeSink()
    sink.odd = b"value-%d" % odd
    with pytest.raises(RecordRefusedError, match="it is odd"):
        await relay_shard(shard, sink, commit_bytes=commit_bytes)
    assert sum(sink.sizes) == odd
    starts = [0, 3, 7]
    ends = [starts[n] + len(batches[n]) for _, n in shard.acked if type(n) is int]
    ends += [starts[ack[0]] + ack[1] + 1 for _, ack in shard.acked if type(ack) is tuple]
    assert max(ends, default=0) == odd


@pytest.mark.parametrize("call", ["refusal", "prepare", "commit"])
async def test_an_unexpected_exception_of_the_sink_names_its_place_but_no_data(
    make_batch, call, autojump_clock
) -> None:
    shard, sink = FakeShard((0.0, make_batch(2)), stay=True), FakeSink()

    def fail(*_: object) -> None:
        raise ValueError("secret data")

    setattr(sink, call, fail)
    with pytest.raises(SinkDefectError, match=r"ValueError at .*test_relay.py:\d+: this is a defect") as caught:
        await relay_shard(shard, sink)
    assert "secret" not in str(caught.value)
    assert shard.acked == []


@pytest.mark.parametrize("call", ["refusal", "prepare"])
async def test_what_comes_before_a_defect_of_the_sink_is_committed_and_acked(make_batch, call, autojump_clock) -> None:
    """Otherwise an isolated shard would never get past it."""
    batches = [(0.0, make_batch(3, number=0)), (0.0, make_batch(4, 3, number=1)), (0.0, make_batch(1, 7, number=2))]
    shard, sink = FakeShard(*batches, stay=True), FakeSink()
    work = getattr(sink, call)

    def fail(asked):
        if b"value-4" in [record.data for record in (asked if call == "prepare" else [asked])]:
            raise ValueError("secret data")
        return work(asked)

    setattr(sink, call, fail)
    with pytest.raises(SinkDefectError):
        await relay_shard(shard, sink, pace=CommitPace(9))
    assert (sum(sink.sizes), shard.acked) == (3, [(0.002, 0)])
    assert shard.delivered[-1] == (0.0, 1)


async def test_an_empty_batch_as_the_last_that_has_arrived_ends_the_wait(make_batch, autojump_clock) -> None:
    shard = FakeShard((0.0, make_batch(5)), (0.2, make_batch(0, 5, number=1)), stay=True, pending_until=0.2)
    sink = FakeSink()
    with trio.move_on_after(9):
        await relay_shard(shard, sink, pace=CommitPace(0.05))
    assert (sink.commits[0][0], shard.acked) == (0.202, [(0.202, 1)])


async def test_the_task_that_commits_is_not_woken_for_each_batch(make_batch, autojump_clock) -> None:
    """To wake it for each batch costs more than to add the batch."""
    woken = 0

    class Counting(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal woken
            woken += task.name.endswith("ShardRelay.commit")

    shard = FakeShard(*((0.0001 * n, make_batch(1, n, number=n)) for n in range(400)))
    sink = FakeSink()
    trio.lowlevel.add_instrument(counting := Counting())
    await relay_shard(shard, sink, pace=CommitPace(0.05))
    trio.lowlevel.remove_instrument(counting)
    assert sum(sink.sizes) == 400
    assert 0 < woken <= 4 * len(sink.commits) + 2


async def test_the_age_counts_from_the_first_record_even_during_a_commit(make_batch, autojump_clock) -> None:
    shard = FakeShard(*((at, make_batch(1, n, number=n)) for n, at in enumerate((0.0, 0.1, 0.15))), stay=True)
    sink = FakeSink(seconds=0.2)
    with trio.move_on_after(5):
        await relay_shard(shard, sink, pace=CommitPace(0.05))
    assert sink.commits == [(0.25, [0]), (0.45, [1, 2])]


async def test_the_write_buffer_fills_during_a_commit_and_then_reading_pauses(make_batch, autojump_clock) -> None:
    shard = FakeShard(*((0.0, make_batch(1, n, number=n)) for n in range(6)))
    sink = FakeSink(seconds=1)
    await relay_shard(shard, sink, commit_records=2, pace=CommitPace(9))
    assert sink.commits == [(1, [0, 1]), (2, [2, 3]), (3, [4, 5])]
    assert shard.delivered == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 4), (1, 5)]
    assert shard.acked == [(1, 1), (2, 3), (3, 5)]


async def test_an_empty_batch_without_uncommitted_records_is_acked_at_once(make_batch, autojump_clock) -> None:
    shard = FakeShard((1.0, make_batch(0, 0, number=0)), (2.0, make_batch(0, 0, number=1)))
    sink = FakeSink()
    await relay_shard(shard, sink)
    assert shard.acked == [(1.0, 0), (2.0, 1)]
    assert sink.commits == []


async def test_an_empty_batch_is_acked_after_the_earlier_records(make_batch, autojump_clock) -> None:
    shard = FakeShard(
        (0.0, make_batch(1, 0, number=0)),
        (0.01, make_batch(0, 1, number=1)),  # the earlier record is in the write buffer
        (0.5, make_batch(0, 1, number=2)),  # the earlier record is being committed
        (2.0, make_batch(1, 1, number=3)),
        (2.01, make_batch(0, 2, number=4)),
    )
    sink = FakeSink(seconds=1)
    await relay_shard(shard, sink, pace=CommitPace(0.05))
    assert sink.commits == [(1.05, [0]), (3.01, [3])]
    assert shard.acked == [(1.05, 2), (3.01, 4)]


async def test_remaining_records_are_committed_at_once_when_the_shard_ends(make_batch, autojump_clock) -> None:
    shard = FakeShard((0.0, make_batch(1, 0, number=0)))
    sink = FakeSink()
    await relay_shard(shard, sink, pace=CommitPace(9))
    assert sink.commits == [(0.002, [0])]
    assert shard.acked == [(0.002, 0)]


@pytest.mark.parametrize("position", [None, Checkpoint("17", 3)])
async def test_the_shard_is_read_from_the_position_of_the_sink(position, autojump_clock) -> None:
    shard = FakeShard()
    await relay_shard(shard, FakeSink(position=position))
    assert shard.seeks == ([position] if position else [])


async def test_a_failed_commit_acks_nothing_and_raises_no_exception_group(make_batch, autojump_clock) -> None:
    shard = FakeShard(*((0.1 * n, make_batch(1, n, number=n)) for n in range(9)), stay=True)
    with pytest.raises(SinkError, match="disk has failed"):
        await relay_shard(shard, FakeSink(fail_at=1))
    assert [number for _, number in shard.acked] == [0]


async def test_an_error_of_the_shard_raises_no_exception_group(make_batch, autojump_clock) -> None:
    shard = FakeShard((0.0, make_batch(1)), failure=ConnectionError("gone"))
    with pytest.raises(ConnectionError, match="gone"):
        await relay_shard(shard, FakeSink(seconds=1))
    assert shard.acked == []


async def test_two_simultaneous_errors_are_both_reported(make_batch, autojump_clock) -> None:
    shard = FakeShard((0.0, make_batch(1, number=0)), (1.0, make_batch(1, 1, number=1)), failure=ConnectionError())

    class FailsWhenCancelled(FakeSink):
        async def commit(self, parts) -> None:
            try:
                await super().commit(parts)
            finally:
                raise SinkError("while being cancelled")

    with pytest.raises(SinkError, match="while being cancelled") as caught:
        await relay_shard(shard, FailsWhenCancelled(seconds=9), pace=CommitPace(0))
    assert "ConnectionError" in caught.value.__notes__[0]


async def test_a_cancelled_relay_acks_only_committed_batches(make_batch, autojump_clock) -> None:
    shard = FakeShard((0.0, make_batch(1, 0, number=0)), (1.0, make_batch(1, 1, number=1)), stay=True)
    sink = FakeSink(seconds=0.5)
    with trio.move_on_after(1.3) as scope:
        await relay_shard(shard, sink)
    assert scope.cancelled_caught
    assert shard.acked == [(0.55, 0)]


@pytest.mark.parametrize("seed", range(20))
async def test_any_sequence_of_batches_is_committed_once_and_acked_in_order(
    make_batch, seed, tmp_path, autojump_clock
) -> None:
    """With the real log: bursts, empty batches and cancellations. Acked records are durable, none is duplicated."""
    rng = random.Random(seed)
    start, acked = 0, -1
    for _ in range(6):
        begin, timed, at, upto = start, [], 0.0, {}
        for number in range(rng.randrange(12)):
            at += rng.choice([0, 0, 0.01, 0.2])
            batch = make_batch(rng.choice([0, 1, 3, 20]), begin, number=number)
            begin += len(batch.records)
            upto[number] = begin
            timed.append((at, batch))
        shard = FakeShard(*timed)
        sink = LogSink(DiskFiles(tmp_path), "t", clock=lambda: 0.0)
        with trio.move_on_after(rng.choice([0.1, 0.3, 99])):
            await relay_shard(shard, sink, commit_records=rng.choice([1, 10, 1000]), pace=CommitPace(0.05))
        async with sink.open("orders", SHARD) as recovered:
            start = recovered.end_offset
            if start:
                assert recovered.position == checkpoint_of(make_batch(1, start - 1).records[0])
        numbers = [number for _, number in shard.acked]
        assert numbers == sorted(numbers)
        acked = max(acked, *(upto[number] for number in numbers), -1)
        assert acked <= start
    segments = list_segments(tmp_path / "t" / "0")
    values = [value for segment in segments for value in read_segment(segment)[0].column("value").to_pylist()]
    assert values == [record.data for record in make_batch(start).records]


async def test_a_shard_relayed_into_the_log_continues_at_its_position(make_batch, tmp_path, autojump_clock) -> None:
    sink = LogSink(DiskFiles(tmp_path), "t")
    first = FakeShard(*((0.01 * n, make_batch(10, 10 * n, number=n)) for n in range(5)))
    await relay_shard(first, sink)
    second = FakeShard()
    await relay_shard(second, sink)
    assert second.seeks == [checkpoint_of(make_batch(50).records[-1])]


async def test_a_shard_that_was_read_before_is_not_relayed_into_a_new_log(tmp_path, make_batch) -> None:
    shard = FakeShard((0.0, make_batch(1)))
    shard.checkpoint = Checkpoint("5")
    with pytest.raises(LogIncompleteError, match="no partition of this shard"):
        await relay_shard(shard, LogSink(DiskFiles(tmp_path), "t"))
    assert shard.delivered == []


@pytest.mark.parametrize("count", [1, 5])
async def test_a_shard_that_waits_for_its_next_batch_holds_no_record(
    count, make_batch, tmp_path, autojump_clock
) -> None:
    """Or thousands of idle shards would hold a batch each."""
    records = make_batch(count).records
    references = sys.getrefcount(records)
    shard = FakeShard(stay=True)
    shard._timed = ((0.0, replace(make_batch(0), records=records)) for _ in range(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay_shard, shard, LogSink(DiskFiles(tmp_path), "t"))
        await shard.first_ack.wait()
        await wait_all_tasks_blocked()
        assert sys.getrefcount(records) == references
        nursery.cancel_scope.cancel()


async def test_the_buffers_of_all_shards_together_are_bounded(make_batch, autojump_clock) -> None:
    size = len("value-0key-0")
    room = Room(20 * size)
    shards = [FakeShard(*((0.0, make_batch(5, 5 * n, number=n)) for n in range(8))) for _ in range(6)]
    sinks = [FakeSink(seconds=10) for _ in shards]
    largest = 0

    async def watch() -> None:
        nonlocal largest
        while True:
            largest = max(largest, sum(sink.held for sink in sinks))
            await trio.sleep(0.5)

    async with trio.open_nursery() as watching:
        watching.start_soon(watch)
        async with trio.open_nursery() as nursery:
            for shard, sink in zip(shards, sinks, strict=True):
                nursery.start_soon(partial(relay_shard, shard, sink, pace=CommitPace(5), room=room))
        watching.cancel_scope.cancel()
    assert 20 * size <= largest <= (20 + 6 * 5) * size  # each shard may read one batch more
    for shard, sink in zip(shards, sinks, strict=True):
        assert sorted(number for _, numbers in sink.commits for number in numbers) == list(range(8))
        assert shard.acked[-1][1] == 7
    assert not room.is_full


async def test_a_shard_that_holds_nothing_reads_although_others_fill_the_room(make_batch, autojump_clock) -> None:
    room = Room(1)
    room.hold("another stream, whose sink is down", 10**9)
    shard, sink = FakeShard(*((0.0, make_batch(5, 5 * n, number=n)) for n in range(3))), FakeSink()
    await relay_shard(shard, sink, pace=CommitPace(5), room=room)
    assert [numbers for _, numbers in sink.commits] == [[0], [1], [2]]


async def test_a_shard_that_ends_gives_its_room_back(make_batch, autojump_clock) -> None:
    room = Room(1)
    with trio.move_on_after(1):
        await relay_shard(FakeShard((0.0, make_batch(5)), stay=True), FakeSink(seconds=99), room=room)
    assert not room.is_full


async def test_a_shard_knows_since_when_its_sink_commits_and_why_it_fails(make_batch, autojump_clock) -> None:
    shard, sink = FakeShard((1.0, make_batch(2)), (2.0, make_batch(2, 2, number=1)), stay=True), FakeSink(fail_at=0)
    sink.shard, sink.error = shard, SinkFullError("no room")
    destination, start = to(sink, retries=SinkRetries(initial=30, jitter=0)), trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(relay.relay_shard, shard, destination, pace=CommitPace(0.5)))
        await trio.sleep(1.25)
        assert shard.overdue() is None  # its commit is not due yet
        await trio.sleep(1)
        assert shard.overdue() == Overdue(start + 1.5, "sink_full", "no room")
        sink._fail_at = -1
        await trio.sleep(60)
        assert shard.overdue() is None
        assert len(sink.commits) == 2
        nursery.cancel_scope.cancel()
