"""The log on a disk: what its listings tell, and what maintenance makes of the files of a partition."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from efo.model import Checkpoint
from efo_service.log import disk_partition, disk_writer
from efo_service.log.catalog import allocate_partition
from efo_service.log.columns.arrow import record_batch
from efo_service.log.columns.layout import columns_of
from efo_service.log.disk import DiskFiles
from efo_service.log.disk_writer import segment_content
from efo_service.log.files import Limits
from efo_service.log.segments import Origin, all_segments, list_segments, split_superseded
from efo_service.log.topic import log_files
from efo_service.relay.errors import (
    LogOwnerError,
    SegmentCorruptError,
    SegmentGoneError,
    SinkError,
    SinkFullError,
    SinkLockedError,
)
from efo_service.relay.mapping import RecordMapping
from tests.efo_service.conftest import SHARD, STREAM, TOPIC


@pytest.fixture
def files(tmp_path) -> DiskFiles:
    return DiskFiles(tmp_path / "log")


@pytest.fixture
def partition(files, open_writer, make_records):
    """A partition with four segments of two records."""
    writer = open_writer()
    for number in range(4):
        writer.append(make_records(2, 2 * number))
    writer.close()
    return files.partition(TOPIC, 0, (STREAM, SHARD))


# --- the whole log ---


def test_a_disk_has_cheap_listings_and_these_limits(files) -> None:
    assert not files.has_costly_listings
    assert files.limits == Limits(parallel_commits=8, bytes_in_loop=16 * 1024**2, compacted_bytes=16 * 1024**2)
    assert (files.grace, files.mapped) == (60.0, False)


def test_files_are_mapped_into_memory_only_if_that_is_asked_for(tmp_path) -> None:
    assert log_files(tmp_path) == DiskFiles(tmp_path, mapped=False)
    assert log_files(tmp_path, mapped=True) == DiskFiles(tmp_path, mapped=True)


def test_only_documents_are_named_and_all_names_are_listed_in_order(files) -> None:
    folder = files.root / TOPIC / "readers"
    folder.mkdir(parents=True)
    for name in ("b.json", "a.json", "b.7.tmp", "json"):
        (folder / name).touch()
    assert files.names(f"{TOPIC}/readers") == ["a.json", "b.json"]
    assert files.folders(f"{TOPIC}/readers") == ["a.json", "b.7.tmp", "b.json", "json"]
    assert files.folders(f"{TOPIC}/readers/a.json") == []
    assert (files.folders(""), files.name) == ([TOPIC], str(files.root))


def test_a_document_is_replaced_as_a_whole_and_no_temporary_file_stays(files) -> None:
    (files.root / TOPIC).mkdir(parents=True)
    for number in (1, 2):
        files.put(f"{TOPIC}/readers/r.json", {"n": number})
        assert files.read(f"{TOPIC}/readers/r.json") == b'{"n": %d}' % number
    with pytest.raises(TypeError):
        files.put(f"{TOPIC}/readers/r.json", {"n": object()})
    assert files.folders(f"{TOPIC}/readers") == ["r.json"]


def test_a_directory_that_the_catalog_does_not_name_is_told_with_its_shard(files, partition) -> None:
    assert files.uncatalogued(TOPIC, "7", {}) is None
    (files.root / TOPIC / "7").mkdir()
    assert files.uncatalogued(TOPIC, "7", {}) is None
    assert files.uncatalogued(TOPIC, "0", {}).endswith(f'or add "{SHARD}": 0 to its partitions')
    assert f"its shard {SHARD} has the partition 3" in files.uncatalogued(TOPIC, "0", {SHARD: 3})
    newest = list_segments(partition.directory)[-1].path
    newest.write_bytes(newest.read_bytes()[:100])
    assert files.uncatalogued(TOPIC, "0", {SHARD: 3}).endswith("restore catalog.json from a copy")


def test_one_process_at_a_time_has_the_turn(files, partition) -> None:
    with files.turn(TOPIC, 5.0) as one, files.turn(TOPIC, 6.0) as other:
        assert (one, other) == (5.0, None)
    with files.turn(TOPIC, 7.0) as again:
        assert again == 7.0


def test_partitions_are_locked_against_writers_for_as_long_as_asked(files, partition, open_writer) -> None:
    with files.without_writers(TOPIC, [0, 9]):
        assert not (files.root / TOPIC / "9").exists()
        with pytest.raises(SinkLockedError, match=f"{SHARD} has two workers"):
            open_writer()
    writer = open_writer()
    with (
        pytest.raises(SinkLockedError, match="is open in a writer: stop the relay first"),
        files.without_writers(TOPIC, [0]),
    ):
        pass
    writer.close()


def test_only_a_relative_path_is_told_with_the_directory_where_it_begins(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative, absolute = (DiskFiles(root).no_topic("t", list) for root in (Path("nowhere"), tmp_path / "nowhere"))
    assert f"in {tmp_path}, where a relative path begins: give an absolute one" in relative
    assert "where a relative path" not in absolute


# --- a partition ---


def test_what_a_partition_remembers_is_no_part_of_its_identity(partition) -> None:
    again = replace(partition)
    partition.maintained()
    assert partition == again
    assert repr(partition) == repr(again)
    assert (again.mapped, again.grace) == (False, 60.0)


def test_a_partition_that_cannot_be_recovered_is_unlocked_at_once(partition, monkeypatch) -> None:
    locked, take = [], disk_partition.lock_for_writing
    monkeypatch.setattr(disk_partition, "lock_for_writing", lambda *where: locked.append(take(*where)) or locked[0])
    newest = list_segments(partition.directory)[-1].path
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(SegmentCorruptError):
        partition.open(time.time, lambda: None, was_written=True)
    assert [one.closed for one in locked] == [True]


def test_the_bounds_of_a_partition(files, partition) -> None:
    assert (partition.start(), partition.end(), partition.has_records()) == (0, 8, True)
    assert partition.name == str(partition.directory)
    list_segments(partition.directory)[0].path.unlink()
    assert (partition.start(), partition.end()) == (2, 8)
    allocate_partition(files, TOPIC, STREAM, "new")
    new = files.partition(TOPIC, 1, (STREAM, "new"))
    assert (new.start(), new.end(), new.has_records()) == (0, None, False)


@pytest.mark.parametrize("gone", [4, 5])
def test_arrival_times_are_listed_five_times_at_most(partition, monkeypatch, gone) -> None:
    read, listings = disk_partition.list_segments, []

    def listed(directory):
        listings.append(directory)
        if len(listings) <= gone:
            raise SegmentGoneError("it was compacted")
        return read(directory)

    monkeypatch.setattr(disk_partition, "list_segments", listed)
    if gone == 5:
        with pytest.raises(SegmentGoneError):
            list(partition.timestamps())
    else:
        assert [base for base, _ in partition.timestamps()] == [0, 2, 4, 6]
    assert len(listings) == 5


@pytest.mark.parametrize("gone", [4, 5])
def test_the_state_is_read_five_times_at_most(partition, monkeypatch, gone) -> None:
    read, reads = disk_partition.read_origin, []

    def origin(segment):
        reads.append(segment)
        if len(reads) <= gone:
            raise SegmentGoneError("it was compacted")
        return read(segment)

    monkeypatch.setattr(disk_partition, "read_origin", origin)
    if gone == 5:
        with pytest.raises(SegmentGoneError):
            partition.state()
    else:
        assert (partition.state().segments, partition.state().end) == (4, 8)


def test_the_files_are_the_current_ones_then_the_superseded_ones(partition) -> None:
    first, second, *_ = parts = list_segments(partition.directory)
    sizes = {part.base: part.path.stat().st_size for part in parts}
    assert partition.replace([first, second])
    found = list(partition.files())
    assert [(one.base, one.end, one.is_superseded) for one in found] == [
        (0, 4, False),
        (4, 6, False),
        (6, 8, False),
        (0, 2, True),
        (2, 4, True),
    ]
    assert [one.size for one in found[-2:]] == [sizes[0], sizes[2]]
    assert [one.read().size for one in found] == [one.size for one in found]


def test_arrival_times_and_files_of_another_shard_are_refused(files, partition) -> None:
    other = files.partition(TOPIC, 0, (STREAM, "other"))
    for read in (lambda: list(other.timestamps()), lambda: [one.read() for one in other.files()], other.check):
        with pytest.raises(LogOwnerError, match="assigns its partition to orders/other"):
            read()
    partition.check()


def test_all_segments_but_the_newest_are_maintained(partition) -> None:
    parts = list_segments(partition.directory)
    sizes = [part.path.stat().st_size for part in parts]
    found = partition.maintained()
    assert [(one.segment, one.size, one.memory) for one in found.segments] == [
        (part, size, 0) for part, size in zip(parts[:-1], sizes, strict=False)
    ]
    assert (found.kept, found.current, found.start, found.end, found.oldest) == (sizes[-1], 4, 0, 8, parts[0])
    partition.replace(parts[:2])
    found = partition.maintained()
    assert (found.kept, found.current, found.oldest.end) == (sizes[0] + sizes[1] + sizes[3], 3, 4)
    for segment in all_segments(partition.directory):
        segment.path.unlink()
    found = partition.maintained()
    assert (found.segments, found.kept, found.current, found.start, found.end, found.oldest) == ([], 0, 0, 0, 0, None)


def test_the_memory_of_a_segment_is_read_once_and_forgotten_with_it(partition, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(disk_partition, "memory_of", lambda segment: asked.append(segment) or len(asked))
    first, second, third, _ = list_segments(partition.directory)
    assert [one.memory for one in partition.maintained().segments] == [1, 2, 3]
    assert [one.memory for one in partition.maintained().segments] == [1, 2, 3]
    partition.expire([second], lambda: None)
    assert [one.memory for one in partition.maintained().segments] == [1, 3]
    assert (asked, set(partition._memory)) == ([first, second, third], {first, third})


def test_segments_expire_with_their_superseded_parts_and_others_stay(partition) -> None:
    first, second, third, fourth = list_segments(partition.directory)
    partition.replace([first, second])
    whole = list_segments(partition.directory)[0]
    checks = []
    assert partition.expire([whole], lambda: checks.append(all_segments(partition.directory)))
    assert checks == [all_segments(partition.directory)]
    assert split_superseded(checks[0]) == ([third, fourth], [])
    assert partition.expire([third], lambda: None)
    assert list_segments(partition.directory) == [fourth]


@pytest.mark.parametrize(("age", "left"), [(59.0, 2), (61.0, 0)])
def test_superseded_segments_stay_for_the_grace_period(partition, age, left) -> None:
    partition.replace(list_segments(partition.directory)[:2])
    for segment in all_segments(partition.directory):
        os.utime(segment.path, (1000.0, 1000.0))
    assert partition.sweep(1000.0 + age, lambda: None) == (0, 0)
    current, superseded = split_superseded(all_segments(partition.directory))
    assert (len(current), len(superseded)) == (3, left)


def test_a_segment_that_becomes_the_same_one_is_not_put_aside(partition) -> None:
    (only,) = list_segments(partition.directory)[:1]
    assert partition.replace([only])
    found = all_segments(partition.directory)
    assert len([one for one in found if one.base == 0 and not one.is_put_aside]) == 1


def test_the_time_of_a_commit_is_in_its_segment(partition) -> None:
    assert partition.committed_at(list_segments(partition.directory)[0]) == 1_800_000_000.25


# --- the bytes of a segment ---


def laid_out(make_records, size: int):
    mapping = RecordMapping(STREAM, SHARD)
    records = make_records(3)
    batch = record_batch([columns_of(records, mapping)], mapping, topic=TOPIC, partition=0, base=5)
    values = pa.array([bytes(size), b"", b""], pa.binary())
    batch = batch.set_column(1, "value", values)
    origin = Origin(STREAM, SHARD, Checkpoint("1"), Checkpoint("3"), 1.5)
    return segment_content(batch, origin), values.buffers()[2]


def test_short_pieces_of_a_segment_are_joined_and_long_columns_are_not_copied(make_records) -> None:
    small, _ = laid_out(make_records, 16 * 1024 - 1)
    assert [type(chunk) for chunk in small.chunks] == [bytes]
    assert (small.base, small.end, small.last) == (5, 8, Checkpoint("3"))
    large, values = laid_out(make_records, 16 * 1024)
    before, content, after = large.chunks
    assert (type(before), type(after)) == (bytes, bytes)
    assert (content.address, content.size) == (values.address, values.size)


@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC])
def test_a_segment_whose_name_may_not_be_durable_is_no_full_disk(
    open_writer, make_records, monkeypatch, reason
) -> None:
    """It may exist: it must not be written again."""

    def fail(_directory: Path) -> None:
        raise OSError(reason, os.strerror(reason))

    writer = open_writer()
    monkeypatch.setattr(disk_writer, "sync_directory", fail)
    with pytest.raises(SinkError, match=rf"cannot make .*\.arrow durable: {os.strerror(reason)}") as raised:
        writer.append(make_records(1))
    assert not isinstance(raised.value, SinkFullError)
    writer.close()
