import errno
import itertools
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from efo.model import checkpoint_of
from efo_service.log import segments as segments_module
from efo_service.log.columns.arrow import record_batch
from efo_service.log.columns.layout import columns_of
from efo_service.log.disk_writer import segment_content, write_segment
from efo_service.log.fencing import begin_epoch
from efo_service.log.segments import (
    MAX_LISTINGS,
    SCHEMA,
    Origin,
    Segment,
    all_segments,
    last_segment,
    list_segments,
    memory_of,
    read_origin,
    read_parts,
    read_segment,
    read_timestamps,
    select,
    split_superseded,
)
from efo_service.relay.errors import (
    LogOwnerError,
    LogVersionError,
    SegmentCorruptError,
    SegmentGoneError,
    SegmentMissingError,
    SinkError,
    SinkFullError,
)
from efo_service.relay.mapping import RecordMapping

MAPPING = RecordMapping("s", "shard")


@pytest.fixture
def epoch(tmp_path: Path):
    return begin_epoch(tmp_path)


@pytest.fixture
def write(tmp_path: Path, make_records, epoch):
    def write(count: int, base: int = 0, *, is_compressed: bool = False) -> Segment:
        records = make_records(count, base)
        batch = record_batch([columns_of(records, MAPPING)], MAPPING, topic="t", partition=0, base=base)
        origin = Origin("s", "shard", checkpoint_of(records[0]), checkpoint_of(records[-1]), 1.25)
        return write_segment(tmp_path, segment_content(batch, origin, is_compressed=is_compressed), epoch)

    return write


def test_a_segment_is_read_as_it_was_written(write, make_records, tmp_path) -> None:
    segment = write(5, base=7)
    batch, origin = read_segment(segment)
    records = make_records(5, 7)
    assert batch.column("value").to_pylist() == [record.data for record in records]
    assert batch.column("offset").to_pylist() == [7, 8, 9, 10, 11]
    assert origin == Origin("s", "shard", checkpoint_of(records[0]), checkpoint_of(records[-1]), 1.25)
    assert [path.name for path in tmp_path.glob("*.*")] == [segment.path.name]
    assert segment.path.name == f"{7:020}-{12:020}-{segment.crc:08x}.arrow"


def test_any_arrow_reader_sees_the_kafka_columns(write) -> None:
    with pa.ipc.open_file(str(write(3).path)) as reader:
        assert reader.schema.equals(SCHEMA)
        assert reader.read_all().num_rows == 3
        assert reader.schema.metadata[b"efo.shard"] == b"shard"


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_flipped_bit_is_detected(write, data) -> None:
    segment = write(3)
    content = bytearray(segment.path.read_bytes())
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    segment.path.write_bytes(content)
    with pytest.raises(SegmentCorruptError, match="damaged"):
        read_segment(segment)


def test_a_read_error_of_the_disk_raises_sink_error(write, monkeypatch) -> None:
    """With a mapped file, SIGBUS would kill the relay."""
    segment = write(3)

    def read_bytes(_path):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", read_bytes)
        with pytest.raises(SinkError, match="Input/output error"):
            read_segment(segment)
    assert read_segment(segment)[0].equals(read_segment(segment, mapped=True)[0])


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_truncated_segment_is_detected(write, keep) -> None:
    segment = write(3)
    segment.path.write_bytes(segment.path.read_bytes()[:keep])
    with pytest.raises(SegmentCorruptError) as caught:
        read_segment(segment)
    assert str(segment.path) in str(caught.value)
    assert "Restore the file" in str(caught.value)


def rename(segment: Segment, content: bytes, base: int, end: int) -> Segment:
    """Write content to a file whose name has the right CRC."""
    other = Segment(base, end, crc32(content), segment.directory)
    other.path.write_bytes(content)
    return other


def test_arrival_times_that_are_cut_off_are_refused_without_the_checksum(write) -> None:
    """The metadata has the length of each buffer, in bytes, and Arrow believes it."""
    segment = write(5)
    content, length = segment.path.read_bytes(), struct.pack("<q", 5 * 8)
    places = [found.start() for found in re.finditer(re.escape(length), content)]
    refused = 0
    for place in places:
        damaged = content[:place] + bytes(8) + content[place + 8 :]
        try:
            times, _ = read_timestamps(rename(segment, damaged, 0, 5))
        except SegmentCorruptError:
            refused += 1
        else:
            times.validate()
    assert len(places) > refused > 0


@pytest.mark.parametrize(("base", "end"), [(10, 13), (1, 4), (0, 4), (0, 2)])
def test_wrong_offsets_in_the_name_are_detected(write, base, end) -> None:
    segment = write(3)
    with pytest.raises(SegmentCorruptError, match="does not hold the offsets in its name"):
        read_segment(rename(segment, segment.path.read_bytes(), base, end))


@pytest.mark.parametrize("offsets", [(0, 7, 14, 1000), (0, 14, 7, 21), (0, 7, 14, -1)])
def test_values_that_are_not_within_their_column_are_detected_although_the_checksum_is_right(write, offsets) -> None:
    segment = write(3)  # of values with seven bytes each
    content = segment.path.read_bytes().replace(struct.pack("=4i", 0, 7, 14, 21), struct.pack("=4i", *offsets), 1)
    with pytest.raises(SegmentCorruptError, match="is not a valid segment"):
        read_segment(rename(segment, content, 0, 3))


def test_a_file_is_mapped_into_memory_only_if_that_is_asked_for(write, tmp_path, monkeypatch) -> None:
    segment, mapped, memory_map = write(3), [], pa.memory_map
    monkeypatch.setattr(segments_module.pa, "memory_map", lambda path: mapped.append(path) or memory_map(path))
    read_segment(segment)
    assert offsets_of(read_parts(tmp_path, 0, 3, ("s", "shard"))) == [0, 1, 2]
    assert mapped == []
    assert offsets_of(read_parts(tmp_path, 0, 3, ("s", "shard"), mapped=True)) == [0, 1, 2]
    assert mapped == [str(segment.path)]


def test_content_that_is_not_a_segment_is_detected(write) -> None:
    with pytest.raises(SegmentCorruptError, match="not a valid segment"):
        read_segment(rename(write(3), b"hello", 0, 3))


@pytest.mark.parametrize("batches", [0, 2])
def test_a_file_without_exactly_one_batch_is_detected(write, batches) -> None:
    segment = write(3)
    sink = pa.BufferOutputStream()
    with pa.ipc.open_file(str(segment.path)) as reader, pa.ipc.new_file(sink, reader.schema) as writer:
        for _ in range(batches):
            writer.write_batch(reader.get_batch(0))
    with pytest.raises(SegmentCorruptError):
        read_segment(rename(segment, sink.getvalue().to_pybytes(), 0, 3))


def test_a_file_with_other_columns_is_detected(write) -> None:
    segment = write(3)
    with pa.ipc.open_file(str(segment.path)) as reader:
        table = reader.read_all().drop_columns("headers")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(SegmentCorruptError, match="exactly one batch with the log's columns"):
        read_segment(rename(segment, sink.getvalue().to_pybytes(), 0, 3))


def with_metadata(segment: Segment, **changes: str) -> bytes:
    with pa.ipc.open_file(str(segment.path)) as reader:
        table = reader.read_all()
        metadata = {**reader.schema.metadata, **{f"efo.{key}".encode(): value for key, value in changes.items()}}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(("name", "version"), [("format", "3"), ("mapping", "2")])
def test_a_newer_format_is_rejected(write, name, version) -> None:
    segment = write(3)
    with pytest.raises(LogVersionError, match=f"has {name} version {version}, .* upgrade efo"):
        read_segment(rename(segment, with_metadata(segment, **{name: version}), 0, 3))


def test_an_earlier_efo_says_that_it_is_too_old_for_a_compressed_segment(write, monkeypatch) -> None:
    """All versions compare the number in the metadata with their own."""
    plain, compressed = write(3), write(3, 3, is_compressed=True)
    monkeypatch.setattr(segments_module, "FORMAT_VERSION", 1)
    assert read_segment(plain)[0].num_rows == 3
    for read in (read_segment, read_origin, read_timestamps):
        with pytest.raises(LogVersionError, match="has format version 2, but this efo supports up to 1: upgrade efo"):
            read(compressed)


def test_a_compressed_segment_is_read_as_one_that_is_not(write) -> None:
    plain, compressed = write(1000), write(1000, is_compressed=True)
    batch, origin = read_segment(plain)
    assert compressed.path.stat().st_size < plain.path.stat().st_size / 5
    for mapped in (False, True):
        found, same_origin = read_segment(compressed, mapped=mapped)
        assert found.equals(batch)
        assert same_origin == origin
    assert read_origin(compressed) == origin
    assert read_timestamps(compressed)[0].equals(batch.column("timestamp"))
    assert pa.ipc.open_file(str(compressed.path)).schema.equals(SCHEMA)
    assert (memory_of(plain), memory_of(compressed)) == (0, batch.nbytes)


def test_the_memory_of_a_damaged_segment_is_not_known(write) -> None:
    """Who compacts it reads all of it, and reports the damage."""
    segment = write(3, is_compressed=True)
    for content in (b"", b"hello", segment.path.read_bytes()[:200], bytes(5000)):
        segment.path.write_bytes(content)
        assert memory_of(segment) == 0
    segment.path.unlink()
    with pytest.raises(SegmentGoneError):
        memory_of(segment)


@pytest.mark.parametrize("changes", [{"last": "soon"}, {"format": "one"}, {"committed_at": ""}])
def test_invalid_metadata_are_detected(write, changes) -> None:
    segment = write(3)
    with pytest.raises(SegmentCorruptError, match="not a valid segment"):
        read_segment(rename(segment, with_metadata(segment, **changes), 0, 3))


def test_a_removed_segment_raises_segment_gone_error(write) -> None:
    segment = write(3)
    segment.path.unlink()
    with pytest.raises(SegmentGoneError, match="does not exist any more"):
        read_segment(segment)


def test_only_segments_are_listed_and_in_order(write, tmp_path) -> None:
    second, first = write(2, base=3), write(3)
    (tmp_path / "segment-0.tmp").write_bytes(b"half")
    (tmp_path / "writer.lock").touch()
    assert list_segments(tmp_path) == [first, second]
    assert last_segment(tmp_path) == second


def test_a_missing_partition_has_no_segments(tmp_path) -> None:
    assert list_segments(tmp_path / "5") == []
    assert last_segment(tmp_path / "5") is None


def test_an_arrow_file_with_an_invalid_name_is_an_error(write, tmp_path) -> None:
    segment = write(3)
    segment.path.rename(tmp_path / "backup.arrow")
    with pytest.raises(SegmentCorruptError, match=r"backup\.arrow"):
        list_segments(tmp_path)


@pytest.mark.parametrize(
    ("start", "end", "parts"),
    [
        (0, 30, [(0, 10), (10, 20), (20, 30)]),
        (5, 25, [(5, 10), (10, 20), (20, 25)]),
        (10, 20, [(10, 20)]),
        (12, 13, [(12, 13)]),
        (4, 4, []),
    ],
)
def test_select_returns_the_parts_that_cover_a_range(start, end, parts) -> None:
    segments = [Segment(base, base + 10, 0, Path()) for base in (0, 10, 20)]
    assert [part[1:] for part in select(segments, start, end)] == parts


@pytest.mark.parametrize(
    ("bases", "missing"),
    [((0, 20), "10 to 19"), ((10, 20), "0 to 9"), ((0, 10), "20 to 29"), ((), "0 to 29")],
)
def test_select_detects_missing_offsets(bases, missing) -> None:
    segments = [Segment(base, base + 10, 0, Path("p")) for base in bases]
    with pytest.raises(SegmentMissingError, match=missing):
        list(select(segments, 0, 30))
    assert [part[1:] for part in select(segments, 0, 30, allow_gaps=True)] == [(b, b + 10) for b in bases]


@pytest.mark.parametrize(
    ("start", "end", "parts", "missing"),
    [
        (0, 7, [(0, 2), (2, 4), (6, 7)], "offsets 4 to 5 are"),
        (3, 8, [(3, 4), (6, 8)], "offsets 4 to 5 are"),
        (4, 6, [], "offsets 4 to 5 are"),
        (5, 7, [(6, 7)], "offsets 5 to 5 are"),
        (7, 9, [(7, 8)], "offsets 8 to 8 are"),
        (8, 9, [], "offsets 8 to 8 are"),
        (1, 3, [(1, 2), (2, 3)], None),
        (9, 9, [], None),
        (8, 5, [], None),
    ],
)
def test_select_begins_and_ends_anywhere_between_gaps(start, end, parts, missing) -> None:
    segments = [Segment(base, base + 2, 0, Path("p")) for base in (0, 2, 6)]
    assert [part[1:] for part in select(segments, start, end, allow_gaps=True)] == parts
    if missing is not None:
        with pytest.raises(SegmentMissingError, match=f"{missing} missing in p"):
            list(select(segments, start, end))
    else:
        assert [part[1:] for part in select(segments, start, end)] == parts


def test_the_name_of_a_segment_has_its_offsets_and_whether_it_is_put_aside(tmp_path) -> None:
    segment = Segment(7, 12, 0xAB, tmp_path)
    for one, suffix in ((segment, "arrow"), (segment._replace(is_put_aside=True), "superseded")):
        assert one.path == tmp_path / f"{7:020}-{12:020}-000000ab.{suffix}"
        one.path.touch()
        assert all_segments(tmp_path) == [one]
        assert split_superseded([one]) == (([], [one]) if one.is_put_aside else ([one], []))
        one.path.unlink()


def test_superseded_segments_are_not_listed(write) -> None:
    parts = [write(2, base=base) for base in (0, 2, 4, 6)]
    whole = write(4, base=2)
    assert list_segments(whole.directory) == [parts[0], whole, parts[3]]
    assert sorted(all_segments(whole.directory)) == sorted([*parts, whole])


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=12))
def test_no_current_segment_lies_within_another(spans) -> None:
    segments = [Segment(base, base + size, 0, Path()) for base, size in spans]
    current, superseded = split_superseded(segments)
    assert sorted(current + superseded) == sorted(segments)
    assert all(a.base < b.base and a.end < b.end for a, b in itertools.pairwise(current))
    assert all(any(c.base <= s.base and s.end <= c.end for c in current) for s in superseded)


def test_read_origin_reads_only_the_footer(write) -> None:
    segment = write(5)
    assert read_origin(segment) == read_segment(segment)[1]
    content = bytearray(segment.path.read_bytes())
    content[-5] ^= 255
    segment.path.write_bytes(content)
    with pytest.raises(SegmentCorruptError, match="not a valid segment"):
        read_origin(segment)


def test_select_detects_overlapping_segments() -> None:
    with pytest.raises(SegmentCorruptError, match="same offsets"):
        list(select([Segment(0, 10, 0, Path()), Segment(5, 15, 0, Path())], 0, 15))


def test_a_full_disk_is_reported_and_leaves_no_segment(write, tmp_path, epoch) -> None:
    epoch.temporary.symlink_to("/dev/full")
    with pytest.raises(SinkFullError, match="no space") as caught:
        write(3)
    assert caught.value.retryable
    assert list_segments(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write to any directory")
def test_a_read_only_directory_raises_sink_error(write, tmp_path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SinkError, match="Permission denied"):
        write(3)


def test_the_segments_module_imports_no_heavy_library() -> None:
    code = "import sys, efo_service.log.segments; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["trio", "h2", "aiobotocore", "botocore", "pyspark", "httpx2"]
    result = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def offsets_of(parts) -> list[int]:
    return [offset for _, batch in parts for offset in batch.column("offset").to_pylist()]


def test_parts_are_cut_at_both_ends_of_the_range(write, tmp_path) -> None:
    for base in (0, 3, 6):
        write(3, base)
    assert offsets_of(read_parts(tmp_path, 2, 8, ("s", "shard"))) == [2, 3, 4, 5, 6, 7]
    assert offsets_of(read_parts(tmp_path, 3, 6, ("s", "shard"))) == [3, 4, 5]


def test_the_segments_of_another_shard_are_not_read(write, tmp_path) -> None:
    write(3)
    for owner in (("s", "other"), ("other", "shard")):
        with pytest.raises(LogOwnerError, match=r"holds records of s/shard.*moved"):
            list(read_parts(tmp_path, 0, 3, owner))


def unlisted(monkeypatch, is_gone):
    """Let the reading of a segment find no file while `is_gone` says so; return the starts of what was opened."""
    opened = []

    def read(segment, **how):
        opened.append(segment.base)
        assert len(opened) < 1000, "the directory is listed for ever"
        if is_gone(opened):
            raise SegmentGoneError(f"{segment.path} does not exist any more")
        return read_segment(segment, **how)

    monkeypatch.setattr(segments_module, "read_segment", read)
    return opened


def test_a_segment_that_stays_listed_and_gone_is_an_error(write, tmp_path, monkeypatch) -> None:
    """Otherwise a reader would list a damaged directory for ever."""
    write(3)
    write(3, 3)
    opened = unlisted(monkeypatch, lambda opened: opened[-1] == 3)
    with pytest.raises(SegmentGoneError):
        list(read_parts(tmp_path, 0, 6, ("s", "shard")))
    assert opened == [0] + [3] * MAX_LISTINGS == [0, 3, 3, 3, 3, 3]


def test_a_reader_that_makes_progress_may_list_as_often_as_needed(write, tmp_path, monkeypatch) -> None:
    """Each segment is compacted once, just before it is read."""
    for base in range(0, 30, 3):
        write(3, base)
    unlisted(monkeypatch, lambda opened: opened.count(opened[-1]) < MAX_LISTINGS)
    assert offsets_of(read_parts(tmp_path, 0, 30, ("s", "shard"))) == list(range(30))
