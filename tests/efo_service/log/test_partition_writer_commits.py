"""Commits of one shard to a partition that is already open: what is prepared again, noted and closed, and when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from efo.model import Checkpoint
from efo_service.log import partition_writer
from efo_service.log.columns.layout import Columns, columns_of
from efo_service.log.partition_writer import LogShardSink, PartitionWriter
from efo_service.relay.errors import SinkClosedError, SinkError, SinkFullError, StoreUnavailableError
from efo_service.relay.mapping import RecordMapping
from efo_service.relay.sink import Part


class FakeAppender:
    """A partition that is open: it fails with the next one of `errors`. `laid_out`: the first and last positions."""

    def __init__(self) -> None:
        self.position: Checkpoint | None = None
        self.end = 7
        self.errors: list[Exception] = []
        self.laid_out: list[tuple[Checkpoint, Checkpoint, float]] = []
        self.appended: list[object] = []
        self.closed = 0

    def lay_out(self, batch: Any, first: Checkpoint, last: Checkpoint, now: float) -> object:
        assert batch.column("offset")[0].as_py() == self.end
        assert batch.column("partition").unique().to_pylist() == [3]
        self.laid_out.append((first, last, now))
        return len(self.laid_out), batch.num_rows

    def append(self, laid_out: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.appended.append(laid_out)
        self.end += laid_out[1]
        self.position = self.laid_out[-1][1]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def opened() -> FakeAppender:
    return FakeAppender()


@pytest.fixture
def make_writer(opened) -> Callable[..., PartitionWriter]:
    return partial(PartitionWriter, opened, "orders", 3, RecordMapping("s", "shard"), lambda: 9.5)


@pytest.fixture
def calls() -> list[Callable[[], object]]:
    return []


@pytest.fixture
def shard(make_writer, calls) -> LogShardSink:
    async def run_blocking(work: Callable[[], object]) -> object:
        calls.append(work)
        return work()

    return LogShardSink(make_writer(note=None), run_blocking, bytes_in_loop=10_000)


def test_records_are_laid_out_with_their_positions_and_the_time(opened, make_writer, make_records) -> None:
    writer = make_writer(note=None)
    parts: list[Columns] = [columns_of(make_records(2, start), writer.mapping) for start in (0, 2, 4)]
    writer.commit(writer.prepare(parts))
    records = make_records(6)
    first, last = (Checkpoint(record.sequence_number) for record in (records[0], records[-1]))
    assert opened.laid_out == [(first, last, 9.5)]
    assert (writer.end, writer.position, opened.appended) == (13, last, [(1, 6)])


def test_that_a_partition_has_records_is_noted_until_that_has_succeeded(opened, make_writer, make_records) -> None:
    notes: list[int] = []

    def note() -> None:
        notes.append(opened.end)
        if len(notes) < 3:
            raise SinkError("the catalog is locked")

    writer = make_writer(note=note)
    for start in range(4):
        writer.append(make_records(1, start))
    assert notes == [8, 9, 10]


def test_what_else_fails_while_that_is_noted_is_raised(opened, make_writer, make_records) -> None:
    def note() -> None:
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        make_writer(note=note).append(make_records(1))
    assert opened.end == 8


async def test_a_commit_without_an_answer_is_asked_for_again_as_it_was(opened, shard, make_records) -> None:
    opened.errors = [StoreUnavailableError("no answer")] * 2
    parts = [shard.prepare(make_records(2))]
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await shard.commit(parts)
    await shard.commit(parts)
    assert (len(opened.laid_out), opened.appended) == (1, [(1, 2)])
    assert (shard.end_offset, shard.position) == (9, opened.position)
    await shard.commit(parts)  # that it was answered is not remembered as a commit without an answer
    assert len(opened.laid_out) == 2


async def test_other_parts_after_a_commit_without_an_answer_are_laid_out_anew(opened, shard, make_records) -> None:
    opened.errors = [StoreUnavailableError("no answer")]
    part = shard.prepare(make_records(2))
    with pytest.raises(StoreUnavailableError):
        await shard.commit([part])
    await shard.commit([part, shard.prepare(make_records(1, 2))])
    assert opened.appended == [(2, 3)]


async def test_a_commit_to_a_full_disk_is_laid_out_anew(opened, shard, make_records) -> None:
    """Nothing was written, and the next try has a time of its own."""
    opened.errors = [SinkFullError("full")]
    parts = [shard.prepare(make_records(2))]
    with pytest.raises(SinkFullError):
        await shard.commit(parts)
    await shard.commit(parts)
    assert opened.appended == [(2, 2)]
    assert opened.closed == 0


async def test_a_commit_that_fails_otherwise_closes_the_partition_once(opened, shard, make_records) -> None:
    opened.errors = [SinkError("defect")]
    parts = [shard.prepare(make_records(2))]
    with pytest.raises(SinkError):
        await shard.commit(parts)
    with pytest.raises(SinkClosedError):
        await shard.commit(parts)
    shard.close()
    assert (opened.closed, opened.appended) == (1, [])


@pytest.mark.parametrize(
    ("sizes", "in_a_thread"), [([10_000], 0), ([10_001], 1), ([5_000, 5_000], 0), ([5_000, 5_001], 1)]
)
async def test_a_commit_of_more_bytes_than_the_limit_is_laid_out_in_a_thread(
    shard, calls, make_records, sizes, in_a_thread
) -> None:
    parts = [Part(shard.prepare(make_records(1, start)).content, size) for start, size in enumerate(sizes)]
    await shard.commit(parts)
    assert len(calls) == 1 + in_a_thread


def test_an_opening_that_fails_after_it_has_locked_the_partition_unlocks_it(
    open_writer, make_records, monkeypatch
) -> None:
    def fail_with(error: Exception) -> Callable[..., None]:
        def mark_written(*_arguments: object) -> None:
            raise error

        return mark_written

    monkeypatch.setattr(partition_writer, "mark_written", fail_with(SinkError("the catalog is locked")))
    writer = open_writer()
    writer.append(make_records(1))
    writer.close()
    monkeypatch.setattr(partition_writer, "mark_written", fail_with(ValueError("a defect")))
    with pytest.raises(ValueError, match="a defect") as raised:
        open_writer()
    monkeypatch.undo()
    open_writer().close()
    assert raised.value is not None  # its traceback would hold what is not closed
