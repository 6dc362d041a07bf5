import errno
import os

import pytest
import trio
import trio.testing

from efo.model import Batch, Checkpoint, checkpoint_of
from efo_service.relay.errors import (
    SinkClosedError,
    SinkError,
    SinkFullError,
    SinkLockedError,
    SinkOrderError,
)
from efo_service.relay.log import segments
from efo_service.relay.log.catalog import read_catalog
from efo_service.relay.log.segments import list_segments, read_segment
from efo_service.relay.log.sink import DISK_FULL_TIMEOUT, LogSink
from efo_service.relay.sink import Sink

STREAM, SHARD = "orders", "shardId-000000000000"


@pytest.fixture
def sink(tmp_path) -> LogSink:
    return LogSink(tmp_path / "log", "topic", clock=lambda: 1_800_000_000.25)


def offsets(tmp_path) -> list[int]:
    directory = tmp_path / "log" / "topic" / "0"
    return [o for s in list_segments(directory) for o in read_segment(s)[0].column("offset").to_pylist()]


async def test_committed_records_and_position_are_found_after_reopening(sink: Sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position is None
        shard.write(make_batch(3))
        shard.write(make_batch(0, 3))
        shard.write(make_batch(2, 3))
        assert (shard.pending_records, shard.pending_bytes) == (5, shard.size(make_batch(5).records))
        assert shard.position is None
        await shard.commit()
        assert (shard.pending_records, shard.pending_bytes) == (0, 0)
        assert shard.position == checkpoint_of(make_batch(5).records[-1])
        shard.write(make_batch(7, 5))  # never committed
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position == checkpoint_of(make_batch(5).records[-1])
        assert shard.end_offset == 5
        await shard.commit()
    assert offsets(tmp_path) == list(range(5))
    (segment,) = list_segments(tmp_path / "log" / "topic" / "0")
    _, origin = read_segment(segment)
    assert (origin.stream, origin.shard_id, origin.committed_at) == (STREAM, SHARD, 1_800_000_000.25)


async def test_batches_can_be_written_during_a_commit(sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shard.commit)
            await trio.testing.wait_all_tasks_blocked()
            shard.write(make_batch(2, 3))
            assert shard.pending_records == 2
        await shard.commit()
    assert offsets(tmp_path) == list(range(5))
    assert len(list_segments(tmp_path / "log" / "topic" / "0")) == 2


@pytest.mark.parametrize("start", [0, 2, 4])
async def test_a_batch_that_repeats_records_is_rejected(sink, make_batch, start) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(5))
        with pytest.raises(SinkOrderError, match="duplicated or out of order"):
            shard.write(make_batch(5, start))
    async with sink.open(STREAM, SHARD) as shard:
        await commit(shard, make_batch(5))
    async with sink.open(STREAM, SHARD) as shard:
        with pytest.raises(SinkOrderError):
            shard.write(make_batch(5, start))


async def test_one_shard_has_one_writer(sink, tmp_path) -> None:
    async with sink.open(STREAM, SHARD):
        with pytest.raises(SinkLockedError):
            async with LogSink(tmp_path / "log", "topic", lock_timeout=0).open(STREAM, SHARD):
                pass
    async with sink.open(STREAM, SHARD):
        pass


async def test_a_writer_waits_until_the_earlier_one_releases_the_partition(sink, make_batch, tmp_path) -> None:
    waiting = trio.Event()

    async def open_second() -> Checkpoint | None:
        waiting.set()
        async with LogSink(tmp_path / "log", "topic").open(STREAM, SHARD) as shard:
            return shard.position

    async def write_first(*, task_status: trio.TaskStatus[None]) -> None:
        async with sink.open(STREAM, SHARD) as shard:
            task_status.started()
            await waiting.wait()
            await commit(shard, make_batch(3))

    async with trio.open_nursery() as nursery:
        await nursery.start(write_first)
        position = await open_second()
    assert position == checkpoint_of(make_batch(3).records[-1])


async def at_once(work):
    """Run blocking work without a thread, so that virtual time shows what is waited for."""
    await trio.lowlevel.checkpoint()
    return work()


@pytest.mark.parametrize("seconds", [0.0, 7.35])
async def test_a_writer_gives_up_after_the_lock_timeout(autojump_clock, sink, tmp_path, seconds) -> None:
    async with sink.open(STREAM, SHARD):
        with pytest.raises(SinkLockedError):
            async with LogSink(tmp_path / "log", "topic", lock_timeout=seconds, run_blocking=at_once).open(
                STREAM, SHARD
            ):
                pass
    assert seconds <= trio.current_time() < seconds + 0.2


async def test_a_released_partition_is_open_in_its_next_writer_at_once(autojump_clock, tmp_path) -> None:
    """A shard that moves stands still only as long as its previous owner keeps the lock."""
    first, second = (LogSink(tmp_path / "log", "topic", run_blocking=at_once) for _ in range(2))
    released_at = 0.0

    async def hold(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal released_at
        async with first.open(STREAM, SHARD):
            task_status.started()
            await trio.sleep(9.01)
        released_at = trio.current_time()

    async with trio.open_nursery() as nursery:
        await nursery.start(hold)
        async with second.open(STREAM, SHARD):
            assert trio.current_time() - released_at < 0.2


@pytest.fixture
def full(tmp_path, monkeypatch):
    """Simulate a full disk. Return how many failures are left (in a list), the reported errors and the sink."""
    failures_left, reported = [0], []
    sync = os.fdatasync

    def fdatasync(descriptor) -> None:
        if failures_left[0]:
            failures_left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(os, "fsync", fdatasync)
    sink = LogSink(
        tmp_path / "log",
        "topic",
        on_retry=lambda shard_id, error, _seconds: reported.append((shard_id, error.error_type)),
    )
    return failures_left, reported, sink


async def test_a_commit_is_retried_while_the_disk_is_full(autojump_clock, full, make_batch, tmp_path) -> None:
    """Maintenance frees space meanwhile. A service that restarts again and again would never run it."""
    failures_left, reported, sink = full
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        failures_left[0] = 6
        await shard.commit()
        await commit(shard, make_batch(2, 3))
        assert shard.position == checkpoint_of(make_batch(2, 3).records[-1])
    assert reported == [(SHARD, "sink_full")] * 6
    failures_left[0] = 3
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.end_offset == 5
    assert len(reported) == 9
    assert trio.current_time() == (1 + 2 + 4 + 8 + 16 + 30) + (1 + 2 + 4)
    assert offsets(tmp_path) == list(range(5))
    assert not list((tmp_path / "log").glob("**/*.tmp"))


async def test_each_commit_that_succeeds_is_reported(autojump_clock, full, make_batch) -> None:
    failures_left, reported, sink = full
    succeeded = []
    sink._on_success = succeeded.append
    async with sink.open(STREAM, SHARD) as shard:
        assert succeeded == [SHARD]
        failures_left[0] = 3
        await commit(shard, make_batch(3))
    assert (succeeded, len(reported)) == ([SHARD, SHARD], 3)


async def test_a_full_disk_raises_after_the_timeout(autojump_clock, full, make_batch) -> None:
    failures_left, reported, sink = full
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        failures_left[0] = 10**9
        with pytest.raises(SinkFullError):
            await shard.commit()
    assert DISK_FULL_TIMEOUT <= trio.current_time() < DISK_FULL_TIMEOUT + 30
    assert len(reported) == 5 + 9


async def test_the_tries_on_a_full_disk_end_at_their_limit(autojump_clock, full, make_batch, tmp_path) -> None:
    failures_left, _, _ = full
    sink = LogSink(tmp_path / "log", "topic", retry_seconds=7.0)
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        failures_left[0] = 10**9
        with pytest.raises(SinkFullError):
            await shard.commit()
    assert trio.current_time() == 1 + 2 + 4


async def test_a_segment_that_may_exist_is_not_written_again(full, make_batch, tmp_path, monkeypatch) -> None:
    """The segment is renamed, but its directory cannot be synced: reopening shows whether it is durable."""
    _, reported, sink = full
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        with monkeypatch.context() as patched:
            patched.setattr(segments, "sync_directory", raise_full)
            with pytest.raises(SinkError, match="durable") as caught:
                await shard.commit()
        assert not isinstance(caught.value, SinkFullError)
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position == checkpoint_of(make_batch(3).records[-1])
    assert (reported, offsets(tmp_path)) == ([], [0, 1, 2])


def raise_full(_directory) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_failed_commit_closes_the_shard_sink_and_reopening_recovers(sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        await commit(shard, make_batch(3))
        obstacle = shard._writer._epoch.temporary
        obstacle.mkdir()
        shard.write(make_batch(2, 3))
        with pytest.raises(SinkError, match="Is a directory"):
            await shard.commit()
        obstacle.rmdir()
        with pytest.raises(SinkClosedError):
            shard.write(make_batch(1, 5))
        with pytest.raises(SinkClosedError):
            await shard.commit()
        async with sink.open(STREAM, SHARD) as again:
            assert again.position == checkpoint_of(make_batch(3).records[-1])
            await commit(again, make_batch(2, 3))
    assert offsets(tmp_path) == list(range(5))


async def test_a_cancelled_commit_is_atomic(sink, make_batch, tmp_path) -> None:
    """Cancelled before it starts, a commit writes nothing. A running commit ends before the lock is released."""
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        with trio.CancelScope() as scope:
            scope.cancel()
            await shard.commit()
        assert scope.cancelled_caught
        with pytest.raises(SinkClosedError):
            await shard.commit()
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position is None
        shard.write(make_batch(3))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shard.commit)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position in (None, checkpoint_of(make_batch(3).records[-1]))
        assert offsets(tmp_path) == list(range(shard.end_offset))


async def test_each_shard_gets_a_separate_partition(sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as one, sink.open(STREAM, "shardId-000000000007") as two:
        one.write(make_batch(3))
        two.write(make_batch(4))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.commit)
            nursery.start_soon(two.commit)
    assert read_catalog(tmp_path / "log", "topic").partitions == {SHARD: 0, "shardId-000000000007": 1}
    assert offsets(tmp_path) == [0, 1, 2]


async def test_a_log_that_cannot_be_created_raises_sink_error(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="Not a directory"):
        async with LogSink(tmp_path / "file" / "log", "topic").open(STREAM, SHARD):
            pass


async def test_empty_batches_alone_commit_nothing(sink, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        await commit(shard, Batch("s", SHARD, (), "1", 0, 0))
        assert shard.position is None
    assert offsets(tmp_path) == []
