"""Two writers of one partition, with no lock between them: as two machines that share a file system would be."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from efo_service.relay.errors import SinkError, SinkFencedError
from efo_service.relay.log.fencing import EPOCH, read_epoch, take_epoch
from efo_service.relay.log.partition_writer import PartitionWriter, open_partition
from efo_service.relay.log.segments import list_segments, read_segment
from efo_service.relay.mapping import RecordMapping


class NoLock:
    def close(self) -> None: ...


@pytest.fixture
def take_over(tmp_path):
    """Opens the partition as `open_partition` does after its lock."""

    def take_over() -> PartitionWriter:
        mapping = RecordMapping("s", "shard")
        writer = PartitionWriter(
            take_epoch(tmp_path), NoLock(), topic="t", partition=0, mapping=mapping, clock=lambda: 0.0
        )
        writer.recover()
        return writer

    return take_over


def offsets(directory) -> list[int]:
    return [o for s in list_segments(directory) for o in read_segment(s)[0].column("offset").to_pylist()]


def test_the_writer_before_is_refused(take_over, make_records, tmp_path) -> None:
    first = take_over()
    first.append(make_records(3))
    second = take_over()
    with pytest.raises(SinkFencedError, match=r"opened by another writer, after this one \(epoch 1\)"):
        first.append(make_records(2, 3))
    second.append(make_records(1, 3))
    assert offsets(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("step", ["before", "open", "check", "rename"])
def test_whenever_the_second_comes_nothing_is_lost_or_twice(take_over, make_records, tmp_path, step) -> None:
    """The second writer opens just before a step of the first one's commit."""
    first = take_over()
    first.append(make_records(3))
    second = None

    class Interrupted:
        """The first writer's epoch, and its file system, with a visitor at the step."""

        @property
        def temporary(self):
            visit("open")
            return Temporary(epoch.temporary)

        def check(self) -> None:
            visit("check")
            epoch.check()

        def fenced(self):
            return epoch.fenced()

    class Temporary:
        def __init__(self, path) -> None:
            self.path = path

        def __getattr__(self, name):
            return getattr(self.path, name)

        def rename(self, target):
            visit("rename")
            return self.path.rename(target)

    def visit(where: str) -> None:
        nonlocal second
        if where == step and second is None:
            second = take_over()

    epoch, first._epoch = first._epoch, Interrupted()
    if step == "before":
        second = take_over()
    with pytest.raises(SinkFencedError):
        first.append(make_records(2, 3))
    second.append(make_records(4, second.end))
    assert offsets(tmp_path) == list(range(7))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=25))
def test_any_interleaving_of_openings_and_commits(make_records, tmp_path_factory, steps) -> None:
    root = tmp_path_factory.mktemp("log")
    writers: list[PartitionWriter | None] = [None] * 4
    for who, opens in steps:
        if opens or writers[who] is None:
            mapping = RecordMapping("s", "shard")
            writer = PartitionWriter(
                take_epoch(root), NoLock(), topic="t", partition=0, mapping=mapping, clock=lambda: 0.0
            )
            writer.recover()
            writers[who] = writer
        try:
            writers[who].append(make_records(2, writers[who].end))
        except SinkFencedError:
            writers[who] = None
    assert offsets(root) == list(range(len(offsets(root))))


def test_epochs_count_and_their_file_may_be_damaged(tmp_path) -> None:
    assert [take_epoch(tmp_path).number for _ in range(3)] == [1, 2, 3]
    assert read_epoch(tmp_path) == 3
    epoch = take_epoch(tmp_path)
    for content in (b"", b"\xff\xff", b"-1 x", b"4 0123456789abcdef\n"):
        (tmp_path / EPOCH).write_bytes(content)
        with pytest.raises(SinkError):
            epoch.check()
    assert take_epoch(tmp_path).number == 5


def test_an_epoch_file_that_is_gone_stops_the_writer(tmp_path) -> None:
    epoch = take_epoch(tmp_path)
    (tmp_path / EPOCH).unlink()
    with pytest.raises(SinkError, match="cannot read"):
        epoch.check()


def test_a_crash_anywhere_in_a_temporary_file_is_forgotten(make_records, tmp_path) -> None:
    """What an interrupted commit left, cut at any of many lengths, has no effect on what is recovered."""
    writer = open_partition(tmp_path, "t", "s", "shard", time.time)
    content = writer.append(make_records(3)).path.read_bytes()
    writer.close()
    for length in itertools.chain(range(0, len(content), 97), [len(content)]):
        (writer.directory / "segment-77.tmp").write_bytes(content[:length])
        again = open_partition(tmp_path, "t", "s", "shard", time.time)
        assert again.end == 3
        assert not list(again.directory.glob("*.tmp"))
        again.close()
