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
from efo_service.relay.log.sink import FULL_PATIENCE, LogSink
from efo_service.relay.sink import Sink

STREAM, SHARD = "orders", "shardId-000000000000"


@pytest.fixture
def sink(tmp_path) -> LogSink:
    return LogSink(tmp_path / "log", "topic", clock=lambda: 1_800_000_000.25)


def offsets(tmp_path) -> list[int]:
    directory = tmp_path / "log" / "topic" / "0"
    return [o for s in list_segments(directory) for o in read_segment(s)[0].column("offset").to_pylist()]


async def test_what_was_committed_is_found_again(sink: Sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position is None
        shard.write(make_batch(3))
        shard.write(make_batch(0, 3))
        shard.write(make_batch(2, 3))
        assert (shard.pending_records, shard.pending_bytes) == (5, 5 * len("key-0value-0"))
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


async def test_the_next_group_is_written_while_one_is_committed(sink, make_batch, tmp_path) -> None:
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
async def test_a_batch_that_repeats_or_goes_back_is_refused(sink, make_batch, start) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(5))
        with pytest.raises(SinkOrderError, match="duplicated or out of order"):
            shard.write(make_batch(5, start))
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(5))
        await shard.commit()
    async with sink.open(STREAM, SHARD) as shard:
        with pytest.raises(SinkOrderError):
            shard.write(make_batch(5, start))


async def test_one_shard_has_one_writer(sink, tmp_path) -> None:
    async with sink.open(STREAM, SHARD):
        with pytest.raises(SinkLockedError):
            async with LogSink(tmp_path / "log", "topic", lock_patience=0).open(STREAM, SHARD):
                pass
    async with sink.open(STREAM, SHARD):
        pass


async def test_a_writer_waits_for_the_one_that_has_not_let_go_yet(sink, make_batch, tmp_path) -> None:
    waiting = trio.Event()

    async def come_second() -> Checkpoint | None:
        waiting.set()
        async with LogSink(tmp_path / "log", "topic").open(STREAM, SHARD) as shard:
            return shard.position

    async def write_first(*, task_status: trio.TaskStatus[None]) -> None:
        async with sink.open(STREAM, SHARD) as shard:
            task_status.started()
            await waiting.wait()
            shard.write(make_batch(3))
            await shard.commit()

    async with trio.open_nursery() as nursery:
        await nursery.start(write_first)
        position = await come_second()
    assert position == checkpoint_of(make_batch(3).records[-1])


@pytest.fixture
def full(tmp_path, monkeypatch):
    """Let the disk be full so many times; return how often it was met, and when it was told."""
    left, told = [0], []
    sync = os.fdatasync

    def fdatasync(descriptor) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(os, "fsync", fdatasync)
    sink = LogSink(
        tmp_path / "log", "topic", tell=lambda shard_id, error, _seconds: told.append((shard_id, error.error_type))
    )
    return left, told, sink


async def test_a_full_disk_is_waited_for(autojump_clock, full, make_batch, tmp_path) -> None:
    """The upkeep frees room meanwhile, which a process that ends and starts again would never come to."""
    left, told, sink = full
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        left[0] = 6
        await shard.commit()
        shard.write(make_batch(2, 3))
        await shard.commit()
        assert shard.position == checkpoint_of(make_batch(2, 3).records[-1])
    assert told == [(SHARD, "sink_full")] * 6
    left[0] = 3
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.end_offset == 5
    assert len(told) == 9
    assert trio.current_time() == (1 + 2 + 4 + 8 + 16 + 30) + (1 + 2 + 4)
    assert offsets(tmp_path) == list(range(5))
    assert not list((tmp_path / "log").glob("**/*.tmp"))


async def test_but_not_for_ever(autojump_clock, full, make_batch) -> None:
    left, told, sink = full
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        left[0] = 10**9
        with pytest.raises(SinkFullError):
            await shard.commit()
    assert FULL_PATIENCE <= trio.current_time() < FULL_PATIENCE + 30
    assert len(told) == 5 + 9


async def test_what_may_be_there_is_not_written_again(full, make_batch, tmp_path, monkeypatch) -> None:
    """The segment has its name, and the directory cannot be synced: only opening it again can tell."""
    _, told, sink = full
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        with monkeypatch.context() as patched:
            patched.setattr(segments, "sync_directory", raise_full)
            with pytest.raises(SinkError, match="durable") as caught:
                await shard.commit()
        assert not isinstance(caught.value, SinkFullError)
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position == checkpoint_of(make_batch(3).records[-1])
    assert (told, offsets(tmp_path)) == ([], [0, 1, 2])


def raise_full(_directory) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_failed_commit_closes_and_opening_again_recovers(sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        await shard.commit()
        in_the_way = shard._writer._epoch.temporary
        in_the_way.mkdir()
        shard.write(make_batch(2, 3))
        with pytest.raises(SinkError, match="Is a directory"):
            await shard.commit()
        in_the_way.rmdir()
        with pytest.raises(SinkClosedError):
            shard.write(make_batch(1, 5))
        with pytest.raises(SinkClosedError):
            await shard.commit()
        async with sink.open(STREAM, SHARD) as again:
            assert again.position == checkpoint_of(make_batch(3).records[-1])
            again.write(make_batch(2, 3))
            await again.commit()
    assert offsets(tmp_path) == list(range(5))


async def test_a_cancelled_commit_has_all_or_nothing(sink, make_batch, tmp_path) -> None:
    """Cancelled before it is under way nothing is there; once it is, it is finished before the lock is let go."""
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


async def test_shards_get_partitions_of_their_own(sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as one, sink.open(STREAM, "shardId-000000000007") as two:
        one.write(make_batch(3))
        two.write(make_batch(4))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.commit)
            nursery.start_soon(two.commit)
    assert read_catalog(tmp_path / "log", "topic").partitions == {SHARD: 0, "shardId-000000000007": 1}
    assert offsets(tmp_path) == [0, 1, 2]


async def test_a_log_that_cannot_be_made(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="Not a directory"):
        async with LogSink(tmp_path / "file" / "log", "topic").open(STREAM, SHARD):
            pass


async def test_only_empty_batches_commit_nothing(sink, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(Batch("s", SHARD, (), "1", 0, 0))
        await shard.commit()
        assert shard.position is None
    assert offsets(tmp_path) == []
