"""The upkeep of a log on disk: what is read stays the same through every step of it, cut short or not."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil

import pytest

from efo.model import checkpoint_of
from efo_service.relay.errors import LogOwnerError, SegmentCorruptError, SinkFullError
from efo_service.relay.log import segments as segments_module
from efo_service.relay.log.catalog import lock
from efo_service.relay.log.compaction import FAN_IN, compact
from efo_service.relay.log.maintenance import Maintenance
from efo_service.relay.log.partition_writer import open_partition
from efo_service.relay.log.reader_offsets import commit_reader
from efo_service.relay.log.retention import RetentionRules
from efo_service.relay.log.segments import all_segments, list_segments, read_segment
from efo_service.spark.source.offsets import Range
from efo_service.spark.source.reading import read_range

NOW = 2_000_000_000.0
"""Long after every file of a test was written."""
SOON = 0.0
"""Long before."""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def directory(root):
    return root / "t" / "0"


@pytest.fixture
def grow(root, make_records):
    """Commits segments of two records each; their time of commit is their number."""
    ends: dict[str, int] = {}

    def grow(count: int, shard: str = "shard") -> None:
        start = ends.get(shard, 0)
        clock = iter(range(start, start + count))
        writer = open_partition(root, "t", "s", shard, lambda: float(next(clock)))
        for number in range(start, start + count):
            writer.append(make_records(2, 2 * number))
        ends[shard] = start + count
        writer.close()

    return grow


def values(root, end: int, start: int = 0) -> list[bytes]:
    batches = read_range(root, Range("t", 0, start, end), holes=False)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def maintain(root, now: float = NOW, **rules):
    return Maintenance(root, "t", RetentionRules(**rules)).run(now)


def test_small_segments_become_one_with_the_same_records_and_position(root, directory, grow, make_records) -> None:
    grow(FAN_IN + 1)
    before = [read_segment(segment) for segment in list_segments(directory)]
    report = maintain(root, SOON)
    assert (report.parts, report.compacted, report.expired) == (FAN_IN, 1, 0)
    whole, newest = list_segments(directory)
    batch, origin = read_segment(whole)
    assert batch.to_pylist() == [row for one, _ in before[:-1] for row in one.to_pylist()]
    assert (origin.first, origin.last) == (before[0][1].first, before[-2][1].last)
    assert origin.committed_at == before[-2][1].committed_at
    assert read_segment(newest)[1] == before[-1][1]
    writer = open_partition(root, "t", "s", "shard", lambda: 0.0)
    assert (writer.end, writer.position) == (2 * FAN_IN + 2, checkpoint_of(make_records(1, 2 * FAN_IN + 1)[0]))
    writer.close()


def test_the_parts_stay_until_no_reader_can_still_want_them(root, directory, grow) -> None:
    grow(FAN_IN + 1)
    maintain(root, SOON)
    maintain(root, SOON)
    assert len(all_segments(directory)) == FAN_IN + 2
    maintain(root, NOW)
    assert len(all_segments(directory)) == 2


def test_a_reader_that_listed_before_reads_on(root, directory, grow, monkeypatch) -> None:
    """The segments vanish between the listing and the reading: the reader looks again, and misses nothing."""
    grow(FAN_IN + 1)
    listed = list_segments(directory)
    maintain(root, SOON)
    maintain(root, NOW)
    looks = iter([listed[:3] + listed[3:], listed])
    monkeypatch.setattr(
        "efo_service.relay.log.segments.list_segments", lambda _: next(looks, None) or list_segments(directory)
    )
    assert values(root, 2 * FAN_IN + 2) == [b"value-%d" % n for n in range(2 * FAN_IN + 2)]


def test_the_log_grows_on_while_it_is_kept_up(root, directory, grow) -> None:
    for _ in range(6):
        grow(FAN_IN // 2 + 3)
        maintain(root)
    total = 12 * (FAN_IN // 2 + 3)
    assert values(root, total) == [b"value-%d" % n for n in range(total)]
    assert len(all_segments(directory)) < 2 * FAN_IN


@pytest.mark.parametrize("step", range(12))
def test_cut_short_anywhere_it_leaves_a_sound_log(root, directory, grow, monkeypatch, step) -> None:
    """The n-th change to the file system does not happen, nor any after it; the next pass goes on."""

    class PowerCutError(Exception):
        pass

    grow(FAN_IN + 1)
    maintain(root, SOON)
    grow(FAN_IN + 1)
    done = 0

    def cut(call):
        def wrapped(*arguments, **named):
            nonlocal done
            done += 1
            if done > step:
                raise PowerCutError
            return call(*arguments, **named)

        return wrapped

    with monkeypatch.context() as patched, contextlib.suppress(PowerCutError):
        for name in ("rename", "unlink"):
            patched.setattr(segments_module.Path, name, cut(getattr(segments_module.Path, name)))
        maintain(root, seconds=1.0)
    assert done > step
    total = 4 * (FAN_IN + 1)
    start = list_segments(directory)[0].base
    assert values(root, total, start) == [b"value-%d" % n for n in range(start, total)]
    maintain(root)
    assert values(root, total, start) == [b"value-%d" % n for n in range(start, total)]
    assert not list(directory.glob("*.tmp"))


def test_what_is_damaged_is_not_compacted_but_said(root, directory, grow) -> None:
    grow(FAN_IN + 1)
    path = list_segments(directory)[3].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SegmentCorruptError, match="damaged"):
        maintain(root)
    assert len(all_segments(directory)) == FAN_IN + 1


def test_segments_of_two_shards_are_not_put_together(root, directory, grow) -> None:
    grow(1, "shard")
    grow(2, "other")
    stray = list_segments(root / "t" / "1")[1]
    moved = directory / stray.path.name
    shutil.copy(stray.path, moved)
    with pytest.raises(LogOwnerError, match="several shards"):
        compact(list_segments(directory))


def test_a_full_disk_leaves_the_log_as_it_was(root, directory, grow, monkeypatch) -> None:
    def full(_descriptor) -> None:
        raise OSError(28, "No space left on device")

    grow(FAN_IN + 1)
    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(SinkFullError):
        maintain(root)
    assert len(all_segments(directory)) == FAN_IN + 1
    assert not list(directory.glob("*.tmp"))


def test_one_process_at_a_time(root, grow) -> None:
    grow(FAN_IN + 1)
    with lock(root / "t" / "upkeep.lock"):
        assert maintain(root) is None
    assert maintain(root).compacted == 1


def test_a_topic_that_is_not_there_yet_needs_no_upkeep(root) -> None:
    assert maintain(root) is None
    assert not root.exists()


def test_a_pass_can_be_stopped_between_its_steps(root, grow) -> None:
    def stop() -> None:
        raise TimeoutError

    grow(FAN_IN + 1)
    with pytest.raises(TimeoutError):
        Maintenance(root, "t", RetentionRules()).run(NOW, stop)
    assert maintain(root).compacted == 1


def test_old_records_go_but_never_the_newest_segment(root, directory, grow, make_records) -> None:
    grow(5)
    report = maintain(root, seconds=1.0)
    assert (report.expired, report.held_back) == (4, 0)
    assert [segment.base for segment in list_segments(directory)] == [8]
    writer = open_partition(root, "t", "s", "shard", lambda: 0.0)
    assert (writer.end, writer.position) == (10, checkpoint_of(make_records(1, 9)[0]))
    writer.close()


def test_only_what_is_old_enough_goes(root, directory, grow) -> None:
    grow(5)
    maintain(root, 10.0, seconds=8.5)  # commits at 0, 1, 2, ...
    assert [segment.base for segment in list_segments(directory)] == [4, 6, 8]


def test_the_size_is_kept_below_its_limit(root, directory, grow) -> None:
    grow(5)
    size = sum(segment.path.stat().st_size for segment in list_segments(directory))
    report = maintain(root, size=size - 1)
    assert report.expired == 1
    assert (
        report.size == sum(segment.path.stat().st_size for segment in list_segments(directory)) == size - report.freed
    )


def test_what_a_reader_has_not_read_stays_and_is_told(root, directory, grow) -> None:
    grow(5)
    commit_reader(root, "t", "slow", {0: 5}, 0.0)
    commit_reader(root, "t", "fast", {0: 10}, 0.0)
    report = maintain(root, seconds=1.0)
    assert report.expired == 2
    assert report.held_back == sum(segment.path.stat().st_size for segment in list_segments(directory)[:-1])
    assert values(root, 10, 4) == [b"value-%d" % n for n in range(4, 10)]
    commit_reader(root, "t", "slow", {0: 10}, 0.0)
    assert maintain(root, seconds=1.0).expired == 2


def test_what_was_compacted_does_not_come_back_when_it_expires(root, directory, grow) -> None:
    grow(FAN_IN + 1)
    maintain(root, SOON)
    assert len(all_segments(directory)) == FAN_IN + 2  # the parts are there still
    maintenance = Maintenance(root, "t", RetentionRules(seconds=1.0), grace=10**12)
    assert maintenance.run(NOW).expired == 1
    assert [segment.base for segment in all_segments(directory)] == [2 * FAN_IN]


def test_a_full_disk_keeps_nothing_that_has_expired(root, directory, grow, monkeypatch) -> None:
    grow(2 * FAN_IN)

    def full(_descriptor) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(SinkFullError):
        maintain(root, seconds=60.0)
    assert len(list_segments(directory)) == 1


@pytest.mark.parametrize("damage", ["data", "footer"])
def test_a_damaged_segment_stops_its_partition_alone(root, directory, grow, damage) -> None:
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


def test_a_stray_file_stops_its_partition_alone(root, directory, grow) -> None:
    grow(3)
    grow(3, "other")
    (directory / "copy.arrow").touch()
    with pytest.raises(SegmentCorruptError, match=r"copy\.arrow"):
        maintain(root, seconds=60.0)
    (directory / "copy.arrow").unlink()
    assert len(list_segments(directory)) == 3
    assert len(list_segments(root / "t" / "1")) == 1
