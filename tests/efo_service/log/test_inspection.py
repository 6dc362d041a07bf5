from __future__ import annotations

import json
import os
import shutil

import pytest

from efo.errors import ConfigurationError
from efo_service.log import disk_partition, segments as relay_segments
from efo_service.log.compaction import compact
from efo_service.log.disk import DiskFiles
from efo_service.log.export import export
from efo_service.log.inspection import ReaderState, inspect_topic, verify_topic
from efo_service.log.partition_writer import open_partition
from efo_service.log.reader_offsets import commit_reader
from efo_service.log.segments import Segment, list_segments, read_origin, read_segment
from efo_service.relay.errors import SegmentGoneError, SinkError, TopicNotFoundError


@pytest.fixture
def root(tmp_path, make_records):
    """A log with two shards: "one" with three segments of two records, "two" with one segment of four records."""
    root = tmp_path / "log"
    for shard, sizes in (("one", (2, 2, 2)), ("two", (4,))):
        clock = iter((1.5, 2.5, 3.5))
        writer = open_partition(DiskFiles(root), "t", "s", shard, lambda clock=clock: next(clock))
        start = 0
        for size in sizes:
            writer.append(make_records(size, start))
            start += size
        writer.close()
    return root


def segments(root, partition: int = 0) -> list[Segment]:
    return list_segments(root / "t" / str(partition))


# --- inspect -------------------------------------------------------------------------------------------


def test_inspect_reports_partitions_and_readers(root, make_records) -> None:
    commit_reader(DiskFiles(root), "t", "r", {0: 4}, 9.5)
    state = inspect_topic(DiskFiles(root), "t")
    one, two = state.partitions
    assert (state.topic, state.stream) == ("t", "s")
    assert (one.partition, one.shard_id, one.segments, one.replaced) == (0, "one", 3, 0)
    assert (one.start, one.end, one.epoch) == (0, 6, 1)
    assert (one.oldest_commit, one.newest_commit) == (1.5, 3.5)
    assert one.position == make_records(1, 5)[0].sequence_number
    assert one.size == sum(segment.path.stat().st_size for segment in segments(root))
    assert (two.shard_id, two.end) == ("two", 4)
    assert state.readers == (ReaderState("r", 2 + 4, 9.5),)


def test_the_lag_of_a_reader_has_no_records_that_have_expired(root) -> None:
    segments(root)[0].path.unlink()
    for name, offsets in (("behind", {1: 1}), ("within", {0: 3, 1: 4})):
        commit_reader(DiskFiles(root), "t", name, offsets, 9.5)
    state = inspect_topic(DiskFiles(root), "t")
    assert [(reader.name, reader.lag) for reader in state.readers] == [("behind", 4 + 3), ("within", 3)]


def test_inspect_reports_an_empty_partition_and_superseded_segments(root) -> None:
    open_partition(DiskFiles(root), "t", "s", "three", lambda: 0.0).close()
    compact(segments(root)[:2])
    one, _, three = inspect_topic(DiskFiles(root), "t").partitions
    assert (one.segments, one.replaced) == (2, 2)
    assert (three.segments, three.end, three.position, three.newest_commit) == (0, 0, None, None)


# --- verify --------------------------------------------------------------------------------------------


def problem(root) -> str:
    (only,) = verify_topic(DiskFiles(root), "t").problems
    return only


def test_verify_finds_no_problem_in_an_intact_log(root) -> None:
    seen = []
    found = verify_topic(DiskFiles(root), "t", lambda found: seen.append(found.records))
    assert (found.segments, found.records, found.problems) == (4, 10, [])
    assert found.size == sum(segment.path.stat().st_size for at in (0, 1) for segment in segments(root, at))
    assert seen == [2, 4, 6, 10]
    compact(segments(root)[:2])
    assert verify_topic(DiskFiles(root), "t").problems == []


def test_verify_reports_damage_and_reads_the_rest(root) -> None:
    path = segments(root)[1].path
    path.write_bytes(path.read_bytes()[:-1])
    found = verify_topic(DiskFiles(root), "t")
    assert found.records == 8
    assert len(found.problems) == 1
    assert f"{path} is damaged" in found.problems[0]


def test_verify_reads_superseded_segments_and_counts_them_apart(root) -> None:
    parts = segments(root)[:2]
    compact(parts)
    found = verify_topic(DiskFiles(root), "t")
    assert (found.segments, found.records, found.superseded, found.problems) == (3, 10, 2, [])
    assert found.superseded_size == sum(part.path.stat().st_size for part in parts)
    parts[0].path.write_bytes(parts[0].path.read_bytes()[:-1])
    assert f"{parts[0].path} is damaged" in problem(root)


def test_verify_reports_missing_offsets(root) -> None:
    segments(root)[1].path.unlink()
    assert "offsets 2 to 3 are missing" in problem(root)


def test_verify_reports_overlapping_segments(root) -> None:
    first, *_ = segments(root)
    shutil.copy(first.path, Segment(1, 3, first.crc, first.directory).path)
    assert any("have the same offsets" in one for one in verify_topic(DiskFiles(root), "t").problems)


def test_verify_reports_a_segment_of_another_shard(root) -> None:
    stray = segments(root, 1)[0].path
    for segment in segments(root):
        segment.path.unlink()
    shutil.move(stray, root / "t" / "0" / stray.name)
    emptied, other = verify_topic(DiskFiles(root), "t").problems
    assert "t/1 has no segment" in emptied
    assert "holds records of s/two" in other


def test_verify_reports_duplicated_records(root, make_records) -> None:
    writer = open_partition(DiskFiles(root), "t", "s", "one", lambda: 0.0)
    writer.append(make_records(2, 5))
    writer.close()
    assert "duplicated or out of order" in problem(root)


def test_verify_reports_a_file_with_an_invalid_name(root) -> None:
    (root / "t" / "0" / "copy.arrow").touch()
    assert "is not named" in problem(root)


def compact_before_reading(monkeypatch, root, segment: Segment) -> None:
    """Compact partition 0 and remove the parts at once, just before this segment is read."""

    def read(wanted, **how):
        if wanted == segment and segment.path.exists():
            parts = segments(root)[:2]
            compact(parts)
            for part in parts:
                part.path.unlink()
        return read_segment(wanted, **how)

    monkeypatch.setattr(relay_segments, "read_segment", read)
    monkeypatch.setattr(disk_partition, "read_segment", read)


@pytest.mark.parametrize("at", [0, 1])
def test_verify_finds_no_problem_during_a_compaction(root, monkeypatch, at) -> None:
    compact_before_reading(monkeypatch, root, segments(root)[at])
    found = verify_topic(DiskFiles(root), "t")
    assert (found.problems, found.records) == ([], 6 + 4)
    assert len(segments(root)) == 2


@pytest.mark.parametrize("at", [0, 1])
def test_export_is_complete_during_a_compaction(root, monkeypatch, at) -> None:
    compact_before_reading(monkeypatch, root, segments(root)[at])
    lines = [json.loads(line) for line in export(DiskFiles(root), "t", partition=0, encoding="base64")]
    assert [line["offset"] for line in lines] == list(range(6))
    assert len(segments(root)) == 2


def test_verify_reports_listed_segments_that_do_not_exist(root, monkeypatch) -> None:
    def raise_gone(segment, **_how):
        raise SegmentGoneError(f"{segment.path} does not exist any more")

    monkeypatch.setattr(disk_partition, "read_segment", raise_gone)
    first, second = verify_topic(DiskFiles(root), "t").problems
    assert "t/0: files after offset 0 are listed but do not exist" in first
    assert "t/1: files after offset 0" in second


def test_inspect_lists_again_if_the_oldest_segment_has_just_expired(root, monkeypatch) -> None:
    def read(segment):
        if segment.base == 0 and segment.path.exists() and segment.directory.name == "0":
            segment.path.unlink()
        return read_origin(segment)

    monkeypatch.setattr(disk_partition, "read_origin", read)
    assert inspect_topic(DiskFiles(root), "t").partitions[0].start == 2


def test_inspect_gives_up_if_a_listed_segment_never_exists(root, monkeypatch) -> None:
    asked = []

    def raise_gone(segment):
        asked.append(segment)
        raise SegmentGoneError(f"{segment.path} does not exist any more")

    monkeypatch.setattr(disk_partition, "read_origin", raise_gone)
    with pytest.raises(SegmentGoneError):
        inspect_topic(DiskFiles(root), "t")
    assert len(asked) == relay_segments.MAX_LISTINGS


def test_a_segment_that_is_removed_while_its_partition_is_inspected_has_no_size(root, monkeypatch) -> None:
    """A superseded one, for example: maintenance removes it between the listing and the look at its size."""
    whole = compact(segments(root)[:2])
    part = relay_segments.all_segments(whole.directory)
    (removed, *_) = [one for one in part if one.end < whole.end]
    read = relay_segments.read_origin

    def read_and_remove(segment):
        removed.path.unlink(missing_ok=True)
        return read(segment)

    before = inspect_topic(DiskFiles(root), "t").partitions[0]
    size = removed.path.stat().st_size
    monkeypatch.setattr(disk_partition, "read_origin", read_and_remove)
    after = inspect_topic(DiskFiles(root), "t").partitions[0]
    assert (after.replaced, after.size) == (before.replaced, before.size - size)


def test_a_missing_topic_is_reported_with_the_existing_ones(root) -> None:
    for function in (inspect_topic, verify_topic):
        with pytest.raises(TopicNotFoundError, match="it has: t"):
            function(DiskFiles(root), "other")


# --- export --------------------------------------------------------------------------------------------


def offsets(root, **which) -> list[tuple[int, int]]:
    lines = map(json.loads, export(DiskFiles(root), "t", encoding="base64", **which))
    return [(line["partition"], line["offset"]) for line in lines]


def test_an_exported_line_has_all_fields_of_a_record(root, make_records) -> None:
    first = next(export(DiskFiles(root), "t", partition=1, encoding="utf-8"))
    record = make_records(1)[0]
    assert json.loads(first) == {
        "topic": "t",
        "partition": 1,
        "offset": 0,
        "key": "key-0",
        "value": "value-0",
        "timestamp": 1_700_000_000_000,
        "headers": [
            ["kinesis.stream", "s"],
            ["kinesis.shard", "two"],
            ["kinesis.sequence", record.sequence_number],
            ["kinesis.sub_sequence", "0"],
        ],
    }


def test_a_range_of_offsets_is_exported(root) -> None:
    assert offsets(root) == [(0, n) for n in range(6)] + [(1, n) for n in range(4)]
    assert offsets(root, partition=0, start=1, end=5) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert offsets(root, start=3) == [(0, 3), (0, 4), (0, 5), (1, 3)]


def test_a_missing_partition_is_reported_with_the_existing_ones(root) -> None:
    with pytest.raises(ConfigurationError, match="no partition 7; it has: 0, 1"):
        offsets(root, partition=7)


def test_a_value_that_is_not_utf_8_is_reported_with_its_offset(root, make_records) -> None:
    writer = open_partition(DiskFiles(root), "u", "s", "one", lambda: 0.0)
    writer.append([type(record)(record.sequence_number, 1.0, b"\xff", "k") for record in make_records(1)])
    writer.close()
    with pytest.raises(ConfigurationError, match=r"u/0/0 is not UTF-8 .* as base64"):
        list(export(DiskFiles(root), "u", encoding="utf-8"))


# --- what is no segment --------------------------------------------------------------------------------------


def place_loop(path) -> None:
    path.symlink_to(path.name)


def place_text(path) -> None:
    path.write_text("text")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (os.mkfifo, "it is not a regular file"),
        (place_loop, "Too many levels of symbolic links"),
        (os.mkdir, "it is not a regular file"),
        (place_text, "is damaged"),
    ],
)
def test_what_is_no_segment_is_reported_and_never_opened(root, place, message) -> None:
    """To open a FIFO would wait for ever."""
    *_, newest = segments(root)
    newest.path.unlink()
    place(newest.path)
    assert message in problem(root)
    with pytest.raises(SinkError, match=message):
        list(export(DiskFiles(root), "t", encoding="base64"))
    with pytest.raises(SinkError, match=message):
        open_partition(DiskFiles(root), "t", "s", "one", lambda: 0.0)
    with pytest.raises(SinkError, match=f"{message}|is not a valid segment"):
        inspect_topic(DiskFiles(root), "t")


def test_a_reader_that_is_no_file_is_reported(root) -> None:
    (root / "t" / "readers").mkdir()
    os.mkfifo(root / "t" / "readers" / "r.json")
    assert "r.json: it is not a regular file" in problem(root)


def test_an_epoch_that_is_no_file_is_reported(root) -> None:
    path = root / "t" / "0" / "epoch"
    path.unlink()
    os.mkfifo(path)
    assert "epoch: it is not a regular file" in problem(root)


@pytest.mark.parametrize("number", ["9" * 6000, "-1", "1e400", ""])
def test_an_epoch_that_is_no_number_counts_as_none(root, number) -> None:
    (root / "t" / "0" / "epoch").write_text(f"{number} token\n")
    assert "no valid file epoch" in problem(root)
    open_partition(DiskFiles(root), "t", "s", "one", lambda: 0.0).close()
    assert verify_topic(DiskFiles(root), "t").problems == []
