"""Maintenance of a log on disk: readers get the same records after every step, even if a pass is interrupted."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil

import pytest

from efo.model import Record, checkpoint_of
from efo_service.log import disk_writer, segments as segments_module
from efo_service.log.compaction import COMPACTED_BYTES, FAN_IN, KIB, MIB, compact
from efo_service.log.disk import DiskFiles
from efo_service.log.disk_partition import DiskPartition
from efo_service.log.maintenance import LogMaintenance, MaintenanceReport
from efo_service.log.partition_writer import open_partition
from efo_service.log.reader_offsets import commit_reader
from efo_service.log.retention import RetentionRules
from efo_service.log.segments import all_segments, list_segments, read_segment
from efo_service.relay.errors import (
    LogIncompleteError,
    LogOwnerError,
    SegmentCorruptError,
    SegmentGoneError,
    SinkFullError,
)
from efo_service.spark.source.offsets import Range
from efo_service.spark.source.planner import read_range

AFTER_GRACE = 2_000_000_000.0
"""A time long after a test has written its files: superseded segments are removed."""
WITHIN_GRACE = 0.0
"""A time before a test has written its files: superseded segments stay."""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def directory(root):
    return root / "t" / "0"


@pytest.fixture
def grow(root, make_records):
    """Commit segments of two records. The commit time of a segment is its number."""
    ends: dict[str, int] = {}

    def grow(count: int, shard: str = "shard") -> None:
        start = ends.get(shard, 0)
        clock = iter(range(start, start + count))
        writer = open_partition(DiskFiles(root), "t", "s", shard, lambda: float(next(clock)))
        for number in range(start, start + count):
            writer.append(make_records(2, 2 * number))
        ends[shard] = start + count
        writer.close()

    return grow


def values(root, end: int, start: int = 0) -> list[bytes]:
    batches = read_range(DiskFiles(root), Range("t", 0, start, end), allow_gaps=False)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def maintain(root, now: float = AFTER_GRACE, **rules):
    return LogMaintenance(DiskFiles(root), "t", RetentionRules(**rules)).run(now)


def test_compaction_keeps_the_records_and_the_position(root, directory, grow, make_records) -> None:
    grow(FAN_IN + 1)
    before = [read_segment(segment) for segment in list_segments(directory)]
    report = maintain(root, WITHIN_GRACE)
    assert (report.parts, report.compacted, report.expired) == (FAN_IN, 1, 0)
    whole, newest = list_segments(directory)
    batch, origin = read_segment(whole)
    assert batch.to_pylist() == [row for one, _ in before[:-1] for row in one.to_pylist()]
    assert (origin.first, origin.last) == (before[0][1].first, before[-2][1].last)
    assert origin.committed_at == before[-2][1].committed_at
    assert read_segment(newest)[1] == before[-1][1]
    writer = open_partition(DiskFiles(root), "t", "s", "shard", lambda: 0.0)
    assert (writer.end, writer.position) == (2 * FAN_IN + 2, checkpoint_of(make_records(1, 2 * FAN_IN + 1)[0]))
    writer.close()


def test_superseded_segments_stay_for_the_grace_period(root, directory, grow) -> None:
    grow(FAN_IN + 1)
    maintain(root, WITHIN_GRACE)
    maintain(root, WITHIN_GRACE)
    assert len(all_segments(directory)) == FAN_IN + 2
    maintain(root, AFTER_GRACE)
    assert len(all_segments(directory)) == 2


def test_a_pattern_of_arrow_files_counts_no_record_twice(root, directory, grow) -> None:
    """Also after a stop between the two steps, or of an earlier efo, which left the parts under their names."""
    grow(FAN_IN + 1)
    maintain(root, WITHIN_GRACE)
    assert sorted(directory.glob("*.arrow")) == [segment.path for segment in list_segments(directory)]
    assert len(list(directory.glob("*.superseded"))) == FAN_IN
    for part in directory.glob("*.superseded"):
        part.rename(part.with_suffix(".arrow"))
    maintain(root, WITHIN_GRACE)
    assert sorted(directory.glob("*.arrow")) == [segment.path for segment in list_segments(directory)]


def test_parts_that_are_there_again_after_their_segment_has_expired_are_removed(root, directory, grow) -> None:
    """After a power failure, for example: only the removal of the segment was durable."""
    grow(FAN_IN + 1)
    maintain(root, WITHIN_GRACE)
    list_segments(directory)[0].path.unlink()
    maintain(root, WITHIN_GRACE)
    assert len(all_segments(directory)) == 1


@pytest.mark.parametrize(("age", "left"), [(0, FAN_IN + 2), (60, FAN_IN + 2), (61, 2)])
def test_superseded_segments_stay_for_a_minute_after_their_compaction(root, directory, grow, age, left) -> None:
    """A reader that listed them before may open them as late as that."""
    grow(FAN_IN + 1)
    maintain(root, WITHIN_GRACE)
    whole = list_segments(directory)[0]
    os.utime(whole.path, (1_000.0, 1_000.0))
    maintain(root, 1_000.0 + age)
    assert len(all_segments(directory)) == left


def test_a_reader_lists_again_if_listed_segments_were_compacted(root, directory, grow, monkeypatch) -> None:
    """The segments are removed between the listing and the reading. The reader lists again and misses no record."""
    grow(FAN_IN + 1)
    listed = list_segments(directory)
    maintain(root, WITHIN_GRACE)
    maintain(root, AFTER_GRACE)
    listings = iter([listed[:3] + listed[3:], listed])
    monkeypatch.setattr(
        "efo_service.log.segments.list_segments", lambda _: next(listings, None) or list_segments(directory)
    )
    assert values(root, 2 * FAN_IN + 2) == [b"value-%d" % n for n in range(2 * FAN_IN + 2)]


def test_commits_between_maintenance_passes_are_all_read(root, directory, grow) -> None:
    for _ in range(6):
        grow(FAN_IN // 2 + 3)
        maintain(root)
    total = 12 * (FAN_IN // 2 + 3)
    assert values(root, total) == [b"value-%d" % n for n in range(total)]
    assert len(all_segments(directory)) < 2 * FAN_IN


@pytest.fixture
def large(root):
    """Commit a segment that is not to be merged with others, and the newest one, which belongs to the writer."""
    records = [Record(str(n + 1), 1.0, b"%d" % n * COMPACTED_BYTES, "key") for n in (0, 1)]
    writer = open_partition(DiskFiles(root), "t", "s", "shard", lambda: 0.0)
    for record in records:
        writer.append([record])
    writer.close()
    return [record.data for record in records]


def test_a_segment_that_is_large_enough_is_compressed_once(root, directory, large) -> None:
    before = read_segment(list_segments(directory)[0])
    maintenance = LogMaintenance(DiskFiles(root), "t", RetentionRules())
    assert maintenance.run(WITHIN_GRACE).parts == 1
    compressed, newest = list_segments(directory)
    assert read_segment(compressed) == before
    assert compressed.path.stat().st_size < MIB < newest.path.stat().st_size
    assert sorted(directory.glob("*.arrow")) == [compressed.path, newest.path]
    assert maintenance.run(AFTER_GRACE).parts == maintain(root).parts == 0
    assert all_segments(directory) == [compressed, newest]
    assert values(root, 2) == large


@pytest.mark.parametrize("step", range(3))
def test_an_interruption_while_one_segment_is_compressed_leaves_an_intact_log(
    root, directory, large, monkeypatch, step
) -> None:
    """Between the two renames it is there twice: what is read is either of the two."""

    class PowerFailureError(Exception):
        pass

    renames = iter(range(step))
    rename = segments_module.Path.rename

    def rename_until(path, target):
        if next(renames, None) is None:
            raise PowerFailureError
        return rename(path, target)

    with monkeypatch.context() as patched, contextlib.suppress(PowerFailureError):
        patched.setattr(segments_module.Path, "rename", rename_until)
        maintain(root, WITHIN_GRACE)
    assert values(root, 2) == large
    for now in (WITHIN_GRACE, AFTER_GRACE, AFTER_GRACE):
        maintain(root, now)
        assert values(root, 2) == large
    assert len(all_segments(directory)) == 2
    assert list_segments(directory)[0].path.stat().st_size < MIB


def test_neighbours_of_a_mebibyte_are_compressed(root, directory) -> None:
    writer = open_partition(DiskFiles(root), "t", "s", "shard", lambda: 0.0)
    for number in range(4):
        writer.append([Record(str(number + 1), 1.0, bytes(400 * KIB), "key")])
    writer.close()
    assert maintain(root, WITHIN_GRACE).parts == 3
    assert [segment.base for segment in list_segments(directory)] == [0, 3]
    assert sum(segment.path.stat().st_size for segment in list_segments(directory)) < 410 * KIB


@pytest.mark.parametrize("step", range(12))
def test_an_interruption_at_any_step_leaves_an_intact_log(root, directory, grow, monkeypatch, step) -> None:
    """The n-th change to the file system and all later ones fail. The next pass continues."""

    class PowerFailureError(Exception):
        pass

    grow(FAN_IN + 1)
    maintain(root, WITHIN_GRACE)
    grow(FAN_IN + 1)
    done = 0

    def fail_from_step(call):
        def wrapped(*arguments, **named):
            nonlocal done
            done += 1
            if done > step:
                raise PowerFailureError
            return call(*arguments, **named)

        return wrapped

    with monkeypatch.context() as patched, contextlib.suppress(PowerFailureError):
        for name in ("rename", "unlink"):
            patched.setattr(segments_module.Path, name, fail_from_step(getattr(segments_module.Path, name)))
        maintain(root, seconds=1.0)
    assert done > step
    total = 4 * (FAN_IN + 1)
    start = list_segments(directory)[0].base
    assert values(root, total, start) == [b"value-%d" % n for n in range(start, total)]
    maintain(root)
    assert values(root, total, start) == [b"value-%d" % n for n in range(start, total)]
    assert not list(directory.glob("*.tmp"))


def test_a_damaged_segment_is_reported_and_not_compacted(root, directory, grow) -> None:
    grow(FAN_IN + 1)
    path = list_segments(directory)[3].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SegmentCorruptError, match="damaged"):
        maintain(root)
    assert len(all_segments(directory)) == FAN_IN + 1


def test_segments_of_two_shards_are_not_compacted_together(root, directory, grow) -> None:
    grow(1, "shard")
    grow(2, "other")
    stray = list_segments(root / "t" / "1")[1]
    moved = directory / stray.path.name
    shutil.copy(stray.path, moved)
    with pytest.raises(LogOwnerError, match="several shards"):
        compact(list_segments(directory))


def test_a_full_disk_leaves_the_log_unchanged(root, directory, grow, monkeypatch) -> None:
    def full(_descriptor) -> None:
        raise OSError(28, "No space left on device")

    grow(FAN_IN + 1)
    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(SinkFullError):
        maintain(root)
    assert len(all_segments(directory)) == FAN_IN + 1
    assert not list(directory.glob("*.tmp"))


def test_old_segments_expire_except_the_newest(root, directory, grow, make_records) -> None:
    grow(5)
    report = maintain(root, seconds=1.0)
    assert (report.expired, report.held_back) == (4, 0)
    assert [segment.base for segment in list_segments(directory)] == [8]
    writer = open_partition(DiskFiles(root), "t", "s", "shard", lambda: 0.0)
    assert (writer.end, writer.position) == (10, checkpoint_of(make_records(1, 9)[0]))
    writer.close()


def test_only_segments_that_are_old_enough_expire(root, directory, grow) -> None:
    grow(5)
    maintain(root, 10.0, seconds=8.5)  # commits at 0, 1, 2, ...
    assert [segment.base for segment in list_segments(directory)] == [4, 6, 8]


def test_the_parts_of_an_expired_segment_are_removed_too(root, directory, grow) -> None:
    grow(FAN_IN + 1)
    maintain(root, WITHIN_GRACE)
    assert len(all_segments(directory)) == FAN_IN + 2  # the parts still exist
    maintenance = LogMaintenance(DiskFiles(root, grace=10**12), "t", RetentionRules(seconds=1.0))
    assert maintenance.run(AFTER_GRACE).expired == 1
    assert [segment.base for segment in all_segments(directory)] == [2 * FAN_IN]


def test_segments_expire_even_if_the_disk_is_full(root, directory, grow, monkeypatch) -> None:
    grow(2 * FAN_IN)

    def full(_descriptor) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(SinkFullError):
        maintain(root, seconds=60.0)
    assert len(list_segments(directory)) == 1


@pytest.mark.parametrize("damage", ["data", "footer"])
def test_a_damaged_segment_stops_only_its_partition(root, directory, grow, damage) -> None:
    grow(FAN_IN + 2)
    grow(FAN_IN + 2, "other")
    whole = list_segments(directory)[3].path
    content = bytearray(whole.read_bytes())
    if damage == "footer":
        del content[-20:]
    else:
        content[len(content) // 3] ^= 1
    whole.write_bytes(content)
    with pytest.raises(SegmentCorruptError):
        maintain(root, seconds=60.0)
    assert whole.exists() == (damage == "footer")
    assert len(list_segments(root / "t" / "1")) == 1


def test_a_file_with_an_invalid_name_stops_only_its_partition(root, directory, grow) -> None:
    grow(3)
    grow(3, "other")
    (directory / "copy.arrow").touch()
    with pytest.raises(SegmentCorruptError, match=r"copy\.arrow"):
        maintain(root, seconds=60.0)
    (directory / "copy.arrow").unlink()
    assert len(list_segments(directory)) == 3
    assert len(list_segments(root / "t" / "1")) == 1


def test_a_part_that_another_process_removed_is_not_brought_back(root, directory, grow, monkeypatch) -> None:
    """A second compaction, on another host for example, may have removed records that expired."""
    grow(4)
    parts = list_segments(directory)[:3]
    write_file = disk_writer.write_file

    def write_and_remove_a_part(path, chunks) -> None:
        write_file(path, chunks)
        parts[1].path.unlink()

    monkeypatch.setattr(disk_writer, "write_file", write_and_remove_a_part)
    with pytest.raises(SegmentGoneError, match=r"was removed during its compaction.*another process"):
        compact(parts)
    assert len(list_segments(directory)) == 3
    assert not list(directory.glob("*.tmp"))


def test_a_compacted_segment_that_another_process_removed_is_reported(root, directory, grow, monkeypatch) -> None:
    grow(4)
    write_file = disk_writer.write_file

    def write_and_remove(path, chunks) -> None:
        write_file(path, chunks)
        path.unlink()

    monkeypatch.setattr(disk_writer, "write_file", write_and_remove)
    with pytest.raises(SegmentGoneError, match=r"rollup\.tmp was removed: does another process compact"):
        compact(list_segments(directory)[:3])
    assert len(list_segments(directory)) == 4


def test_a_report_says_whether_the_log_has_changed(root, grow) -> None:
    grow(2)
    assert not maintain(root).has_changed_log
    grow(FAN_IN)
    assert maintain(root).has_changed_log  # compacted
    grow(1)
    assert maintain(root, seconds=1.0).has_changed_log  # expired


def test_a_report_tells_the_sizes_and_the_lags_of_all_partitions(root, grow) -> None:
    grow(3)
    grow(2, "other")
    for name, offsets in (("slow", {0: 2, 1: 2}), ("new", {}), ("done", {0: 6, 1: 4}), ("ahead", {0: 9, 1: 3})):
        commit_reader(DiskFiles(root), "t", name, offsets, 5.0)
    sizes = [[segment.path.stat().st_size for segment in list_segments(root / "t" / number)] for number in ("0", "1")]
    report = maintain(root)
    assert (report.parts, report.compacted, report.expired, report.freed, report.held_back) == (0, 0, 0, 0, 0)
    assert (report.size, report.segments, report.oldest_commit) == (sum(map(sum, sizes)), 5, 0.0)
    assert report.lags == {"slow": 6, "new": 10, "done": 0, "ahead": 1}
    assert report.committed == dict.fromkeys(("slow", "new", "done", "ahead"), 5.0)
    assert not report.has_changed_log
    (root / "t" / "readers" / "new.json").unlink()
    report = maintain(root, seconds=1.0)
    freed = sizes[0][0] + sizes[1][0]
    assert (report.expired, report.freed, report.size) == (2, freed, sum(map(sum, sizes)) - freed)
    assert (report.segments, report.held_by) == (3, {"slow": sizes[0][1]})
    assert report.held_back == sizes[0][1]
    assert report.has_changed_log
    assert (maintain(root).oldest_commit, maintain(root).lags["slow"]) == (1.0, 6)


def test_what_an_old_copy_names_stays_and_the_other_partitions_are_maintained(root, grow, monkeypatch) -> None:
    grow(3)
    grow(3, "other")
    sweep = DiskPartition.sweep

    def swept(partition, *arguments):
        if partition.number == 0:
            raise LogIncompleteError("an old copy of its head was restored")
        return sweep(partition, *arguments)

    monkeypatch.setattr(DiskPartition, "sweep", swept)
    with pytest.raises(LogIncompleteError, match="an old copy"):
        maintain(root, seconds=1.0)
    assert [len(list_segments(root / "t" / number)) for number in ("0", "1")] == [3, 1]


def test_of_two_failures_the_first_is_raised(root, grow, monkeypatch) -> None:
    grow(2)
    grow(2, "other")

    def swept(partition, *_arguments):
        raise SinkFullError(f"partition {partition.number}")

    monkeypatch.setattr(DiskPartition, "sweep", swept)
    with pytest.raises(SinkFullError, match="partition 0"):
        maintain(root, seconds=1.0)
    assert [len(list_segments(root / "t" / number)) for number in ("0", "1")] == [1, 1]  # both have expired


def test_a_report_that_knows_no_segments_has_none() -> None:
    report = MaintenanceReport(0, 0, 1, 0, 0, 0)
    assert (report.segments, report.oldest_commit, report.has_changed_log) == (0, None, True)
    assert MaintenanceReport(1, 1, 0, 0, 0, 0).has_changed_log
