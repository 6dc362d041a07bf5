import errno
import os
import weakref
from dataclasses import replace

import msgspec
import pytest
import trio
import trio.testing

from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.factories.log import RETRIES
from efo_service.log import disk_writer
from efo_service.log.catalog import read_catalog
from efo_service.log.disk import DiskFiles
from efo_service.log.files import Limits
from efo_service.log.segments import list_segments, read_segment
from efo_service.log.sink import LogSink
from efo_service.relay.destination import Destination
from efo_service.relay.errors import SinkClosedError, SinkError, SinkFullError, SinkLockedError
from efo_service.relay.mapping import RecordMapping
from efo_service.relay.record_size import RecordSize
from efo_service.relay.sink import Sink
from tests.efo_service.relay.relaying import Reports, WhenOpen, commit, relay_all

STREAM, SHARD = "orders", "shardId-000000000000"
RETRY_SECONDS = 300.0


@pytest.fixture
def sink(tmp_path) -> LogSink:
    return LogSink(DiskFiles(tmp_path / "log"), "topic", clock=lambda: 1_800_000_000.25)


def offsets(tmp_path) -> list[int]:
    directory = tmp_path / "log" / "topic" / "0"
    return [o for s in list_segments(directory) for o in read_segment(s)[0].column("offset").to_pylist()]


async def test_committed_records_and_position_are_found_after_reopening(sink: Sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position is None
        parts = [shard.prepare(make_batch(3).records), shard.prepare(make_batch(2, 3).records)]
        assert sum(part.size for part in parts) == shard.prepare(make_batch(5).records).size
        assert shard.position is None
        await shard.commit(parts)
        assert shard.position == checkpoint_of(make_batch(5).records[-1])
        shard.prepare(make_batch(7, 5).records)  # never committed
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position == checkpoint_of(make_batch(5).records[-1])
        assert shard.end_offset == 5
    assert offsets(tmp_path) == list(range(5))
    (segment,) = list_segments(tmp_path / "log" / "topic" / "0")
    _, origin = read_segment(segment)
    assert (origin.stream, origin.shard_id, origin.committed_at) == (STREAM, SHARD, 1_800_000_000.25)


async def test_records_can_be_prepared_during_a_commit(sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, shard, make_batch(3))
            await trio.testing.wait_all_tasks_blocked()
            part = shard.prepare(make_batch(2, 3).records)
        await shard.commit([part])
    assert offsets(tmp_path) == list(range(5))
    assert len(list_segments(tmp_path / "log" / "topic" / "0")) == 2


async def test_one_shard_has_one_writer(sink, tmp_path) -> None:
    async with sink.open(STREAM, SHARD):
        with pytest.raises(SinkLockedError):
            async with LogSink(DiskFiles(tmp_path / "log"), "topic", lock_timeout=0).open(STREAM, SHARD):
                pass
    async with sink.open(STREAM, SHARD):
        pass


async def test_a_writer_waits_until_the_earlier_one_releases_the_partition(sink, make_batch, tmp_path) -> None:
    waiting = trio.Event()

    async def open_second() -> Checkpoint | None:
        waiting.set()
        async with LogSink(DiskFiles(tmp_path / "log"), "topic").open(STREAM, SHARD) as shard:
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
            async with LogSink(DiskFiles(tmp_path / "log"), "topic", lock_timeout=seconds, run_blocking=at_once).open(
                STREAM, SHARD
            ):
                pass
    assert seconds <= trio.current_time() < seconds + 0.2


async def test_a_released_partition_is_open_in_its_next_writer_at_once(autojump_clock, tmp_path) -> None:
    """A shard that moves stands still only as long as its previous owner keeps the lock."""
    first, second = (LogSink(DiskFiles(tmp_path / "log"), "topic", run_blocking=at_once) for _ in range(2))
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
def full(monkeypatch) -> list[int]:
    """Simulate a full disk. Return how many failures are left (in a list)."""
    failures_left = [0]
    sync = os.fdatasync

    def fdatasync(descriptor) -> None:
        if failures_left[0]:
            failures_left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(os, "fsync", fdatasync)
    return failures_left


@pytest.fixture
def filling(sink, full):
    """Make the destination of a log whose disk is full so many times once the shard is open, as the service has it."""

    def filling(failures: int, seconds: float = RETRY_SECONDS) -> Destination:
        left = iter([failures])

        def fill() -> None:
            full[0] = next(left, full[0])

        return Destination(WhenOpen(sink, fill), replace(RETRIES, seconds=seconds), Reports())

    return filling


async def test_a_commit_is_retried_while_the_disk_is_full(autojump_clock, full, filling, make_batch, tmp_path) -> None:
    """Maintenance frees space meanwhile. A service that restarts again and again would never run it."""
    destination = filling(6)
    shard = await relay_all(destination, make_batch(3), make_batch(2, 3, 1), each=True)
    assert shard.acked == [(0, None), (1, None)]
    assert destination.reports.errors == [(SHARD, "sink_full")] * 6
    assert destination.reports.delays == [1, 2, 4, 8, 16, 30]
    full[0] = 3
    opened = await relay_all(reopened := filling(0))
    assert opened.seeks == [checkpoint_of(make_batch(2, 3).records[-1])]
    assert reopened.reports.delays == [1, 2, 4]
    assert trio.current_time() == (1 + 2 + 4 + 8 + 16 + 30) + (1 + 2 + 4)
    assert offsets(tmp_path) == list(range(5))
    assert not list((tmp_path / "log").glob("**/*.tmp"))


async def test_that_the_disk_has_space_again_is_reported_once(autojump_clock, filling, make_batch) -> None:
    reports = (destination := filling(3)).reports
    await relay_all(destination, make_batch(3), make_batch(3, 3, 1), each=True)
    await relay_all(destination, make_batch(3, 6))
    assert (reports.recoveries, len(reports.errors)) == ([SHARD], 3)


async def test_a_full_disk_raises_after_the_timeout(autojump_clock, filling, make_batch) -> None:
    destination = filling(10**9)
    with pytest.raises(SinkFullError):
        await relay_all(destination, make_batch(3))
    assert RETRY_SECONDS <= trio.current_time() < RETRY_SECONDS + 30
    assert len(destination.reports.errors) == 5 + 9


async def test_the_tries_on_a_full_disk_end_at_their_limit(autojump_clock, filling, make_batch) -> None:
    with pytest.raises(SinkFullError):
        await relay_all(filling(10**9, seconds=7.0), make_batch(3))
    assert trio.current_time() == 1 + 2 + 4


async def test_a_full_disk_can_be_written_again_by_the_same_opening(full, sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        full[0] = 1
        parts = [shard.prepare(make_batch(3).records)]
        with pytest.raises(SinkFullError):
            await shard.commit(parts)
        await shard.commit(parts)
    assert offsets(tmp_path) == [0, 1, 2]


async def test_a_segment_that_may_exist_is_not_written_again(filling, sink, make_batch, tmp_path, monkeypatch) -> None:
    """The segment is renamed, but its directory cannot be synced: reopening shows whether it is durable."""
    destination = filling(0)
    with monkeypatch.context() as patched:
        patched.setattr(disk_writer, "sync_directory", raise_full)
        with pytest.raises(SinkError, match="durable") as caught:
            await relay_all(destination, make_batch(3))
    assert not isinstance(caught.value, SinkFullError)
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position == checkpoint_of(make_batch(3).records[-1])
    assert (destination.reports.errors, offsets(tmp_path)) == ([], [0, 1, 2])


def raise_full(_directory) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_failed_commit_closes_the_shard_sink_and_reopening_recovers(sink, make_batch, tmp_path) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        await commit(shard, make_batch(3))
        obstacle = shard._writer._opened._epoch.temporary
        obstacle.mkdir()
        with pytest.raises(SinkError, match="Is a directory"):
            await commit(shard, make_batch(2, 3))
        obstacle.rmdir()
        with pytest.raises(SinkClosedError):
            await commit(shard, make_batch(1, 5))
        async with sink.open(STREAM, SHARD) as again:
            assert again.position == checkpoint_of(make_batch(3).records[-1])
            await commit(again, make_batch(2, 3))
    assert offsets(tmp_path) == list(range(5))


async def test_a_cancelled_commit_is_atomic(sink, make_batch, tmp_path) -> None:
    """Cancelled before it starts, a commit writes nothing. A running commit ends before the lock is released."""
    async with sink.open(STREAM, SHARD) as shard:
        with trio.CancelScope() as scope:
            scope.cancel()
            await commit(shard, make_batch(3))
        assert scope.cancelled_caught
        with pytest.raises(SinkClosedError):
            await commit(shard, make_batch(3))
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position is None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, shard, make_batch(3))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position in (None, checkpoint_of(make_batch(3).records[-1]))
        assert offsets(tmp_path) == list(range(shard.end_offset))


async def test_each_shard_gets_a_separate_partition(sink, make_batch, tmp_path) -> None:
    other = "shardId-000000000007"
    async with sink.open(STREAM, SHARD) as one, sink.open(STREAM, other) as two, trio.open_nursery() as nursery:
        nursery.start_soon(commit, one, make_batch(3))
        nursery.start_soon(commit, two, make_batch(4))
    assert read_catalog(DiskFiles(tmp_path / "log"), "topic").partitions == {SHARD: 0, "shardId-000000000007": 1}
    assert offsets(tmp_path) == [0, 1, 2]


async def test_a_log_that_cannot_be_created_raises_sink_error(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="Not a directory"):
        async with LogSink(DiskFiles(tmp_path / "file" / "log"), "topic").open(STREAM, SHARD):
            pass


async def test_empty_batches_alone_commit_nothing(filling, make_batch, tmp_path) -> None:
    shard = await relay_all(filling(0), make_batch(0))
    assert shard.acked == [(0, None)]
    assert offsets(tmp_path) == []


# --- parts -----------------------------------------------------------------------------------------------------------

MAPPING = RecordMapping(STREAM, SHARD)


class Key(str):
    """A partition key that can have weak references."""

    __slots__ = ("__weakref__",)


async def test_the_records_of_a_part_are_not_kept(sink, make_batch) -> None:
    """Their memory is free for the next ones, long before the commit."""
    records = tuple(msgspec.structs.replace(record, partition_key=Key("key")) for record in make_batch(3).records)
    keys = [weakref.ref(record.partition_key) for record in records]
    async with sink.open(STREAM, SHARD) as shard:
        part = shard.prepare(records)
        del records
        assert [key() for key in keys] == [None, None, None]
        assert part.content.keys == b"keykeykey"


async def test_records_whose_headers_differ_are_kept_for_the_commit(sink, make_batch) -> None:
    records = tuple(msgspec.structs.replace(record, tags=(("a", "b"),)) for record in make_batch(2).records)
    async with sink.open(STREAM, SHARD) as shard:
        part = shard.prepare(records)
    assert (part.content.plain, part.content.records) == (None, records)


@pytest.mark.parametrize(
    "changes", [{}, {"encryption_type": "KMS"}, {"tags": (("a", None),)}, {"explicit_hash_key": "7"}]
)
async def test_the_size_of_a_part_is_that_of_its_records(sink, make_batch, changes) -> None:
    records = tuple(msgspec.structs.replace(record, **changes) for record in make_batch(3).records)
    size = RecordSize(MAPPING, record=40 + len("topic"), header=8)
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.prepare(records).size == size(records)
        assert shard.prepare(make_batch(2, 3).records).size == size(make_batch(2, 3).records)
    assert size(()) == 0


@pytest.mark.parametrize(("limit", "calls"), [(0, 3), (16 * 1024 * 1024, 2)])
async def test_only_a_large_commit_is_laid_out_in_a_thread(make_batch, tmp_path, monkeypatch, limit, calls) -> None:
    monkeypatch.setattr(DiskFiles, "limits", Limits(8, limit, 0))
    called = []

    async def run_blocking(work):
        called.append(work)
        await trio.lowlevel.checkpoint()
        return work()

    async with LogSink(DiskFiles(tmp_path / "log"), "topic", run_blocking=run_blocking).open(STREAM, SHARD) as shard:
        await commit(shard, make_batch(3))
    assert len(called) == calls
    (segment,) = list_segments(tmp_path / "log" / "topic" / "0")
    assert read_segment(segment)[0].num_rows == 3


def test_a_record_has_no_other_fields_that_a_header_could_need() -> None:
    """A new field that becomes a header must be looked at for plain headers, too (columns.py)."""
    assert {field.name for field in msgspec.structs.fields(Record)} == {
        "sequence_number",
        "approximate_arrival_timestamp",
        "data",
        "partition_key",
        "encryption_type",
        "sub_sequence_number",
        "explicit_hash_key",
        "tags",
    }
