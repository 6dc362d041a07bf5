"""Two writers of one partition without a lock between them, as on two machines that share a file system."""

from __future__ import annotations

import itertools
import re
import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from efo_service.log.disk import DiskFiles
from efo_service.log.disk_writer import DiskAppender
from efo_service.log.fencing import EPOCH, begin_epoch, read_epoch
from efo_service.log.partition_writer import PartitionWriter, open_partition
from efo_service.log.segments import list_segments, read_segment
from efo_service.relay.errors import SinkError, SinkFencedError
from efo_service.relay.mapping import RecordMapping


class NoLock:
    def close(self) -> None: ...


def open_writer_without_lock(directory: Path) -> PartitionWriter:
    """Open the partition as `open_partition` does, but without the lock."""
    opened = DiskAppender(begin_epoch(directory), ("s", "shard"), NoLock())
    opened.recover()
    return PartitionWriter(opened, "t", 0, RecordMapping("s", "shard"), lambda: 0.0, None)


@pytest.fixture
def open_without_lock(tmp_path):
    return partial(open_writer_without_lock, tmp_path)


def offsets(directory) -> list[int]:
    return [o for s in list_segments(directory) for o in read_segment(s)[0].column("offset").to_pylist()]


def test_the_earlier_writer_is_fenced(open_without_lock, make_records, tmp_path) -> None:
    first = open_without_lock()
    first.append(make_records(3))
    second = open_without_lock()
    with pytest.raises(SinkFencedError, match=r"opened by another writer after this one \(epoch 1\)"):
        first.append(make_records(2, 3))
    second.append(make_records(1, 3))
    assert offsets(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("step", ["before", "open", "check", "rename"])
def test_a_second_writer_at_any_step_loses_and_repeats_no_record(
    open_without_lock, make_records, tmp_path, step
) -> None:
    """The second writer opens the partition just before a step of the first one's commit."""
    first = open_without_lock()
    first.append(make_records(3))
    second = None

    class Interrupted:
        """The first writer's epoch and its file. The second writer opens the partition at the step."""

        directory = tmp_path

        @property
        def temporary(self):
            open_second_at("open")
            return Temporary(epoch.temporary)

        def check(self) -> None:
            open_second_at("check")
            epoch.check()

        def fenced(self):
            return epoch.fenced()

    class Temporary(type(tmp_path)):
        def rename(self, target):
            open_second_at("rename")
            return super().rename(target)

    def open_second_at(current_step: str) -> None:
        nonlocal second
        if current_step == step and second is None:
            second = open_without_lock()

    epoch, first._opened._epoch = first._opened._epoch, Interrupted()
    if step == "before":
        second = open_without_lock()
    with pytest.raises(SinkFencedError):
        first.append(make_records(2, 3))
    second.append(make_records(4, second.end))
    assert offsets(tmp_path) == list(range(7))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=25))
def test_offsets_are_continuous_after_any_interleaving_of_openings_and_commits(
    make_records, tmp_path_factory, steps
) -> None:
    root = tmp_path_factory.mktemp("log")
    writers: list[PartitionWriter | None] = [None] * 4
    for index, opens in steps:
        if opens or writers[index] is None:
            writers[index] = open_writer_without_lock(root)
        try:
            writers[index].append(make_records(2, writers[index].end))
        except SinkFencedError:
            writers[index] = None
    assert offsets(root) == list(range(len(offsets(root))))


def test_epochs_are_counted_even_after_their_file_was_damaged(tmp_path) -> None:
    assert [begin_epoch(tmp_path).number for _ in range(3)] == [1, 2, 3]
    assert read_epoch(tmp_path) == 3
    assert re.fullmatch(r"3 [0-9a-f]{16}\n", (tmp_path / EPOCH).read_text())
    epoch = begin_epoch(tmp_path)
    for content in (b"", b"\xff\xff", b"-1 x", b"4 0123456789abcdef\n"):
        (tmp_path / EPOCH).write_bytes(content)
        with pytest.raises(SinkError):
            epoch.check()
    assert begin_epoch(tmp_path).number == 5


def test_a_missing_epoch_file_stops_the_writer(tmp_path) -> None:
    epoch = begin_epoch(tmp_path)
    (tmp_path / EPOCH).unlink()
    with pytest.raises(SinkError, match="cannot read"):
        epoch.check()


def test_an_incomplete_temporary_file_does_not_affect_recovery(make_records, tmp_path) -> None:
    """A temporary file of an interrupted commit, of any length, does not affect recovery."""
    writer = open_partition(DiskFiles(tmp_path), "t", "s", "shard", time.time)
    directory = tmp_path / "t" / "0"
    writer.append(make_records(3))
    content = list_segments(directory)[0].path.read_bytes()
    writer.close()
    for length in itertools.chain(range(0, len(content), 97), [len(content)]):
        (directory / "segment-77.tmp").write_bytes(content[:length])
        again = open_partition(DiskFiles(tmp_path), "t", "s", "shard", time.time)
        assert again.end == 3
        assert not list(directory.glob("*.tmp"))
        again.close()
