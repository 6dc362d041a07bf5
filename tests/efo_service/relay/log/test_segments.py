import errno
import itertools
import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from efo.model import checkpoint_of
from efo_service.relay.errors import (
    LogVersionError,
    SegmentCorruptError,
    SegmentGoneError,
    SegmentMissingError,
    SinkError,
    SinkFullError,
)
from efo_service.relay.log.arrow import record_batch
from efo_service.relay.log.fencing import take_epoch
from efo_service.relay.log.segments import (
    SCHEMA,
    Origin,
    Segment,
    all_segments,
    last_segment,
    list_segments,
    read_origin,
    read_segment,
    select,
    split_superseded,
    write_segment,
)
from efo_service.relay.mapping import RecordMapping


@pytest.fixture
def epoch(tmp_path: Path):
    return take_epoch(tmp_path)


@pytest.fixture
def write(tmp_path: Path, make_records, epoch):
    def write(count: int, base: int = 0) -> Segment:
        records = make_records(count, base)
        batch = record_batch(records, RecordMapping("s", "shard"), topic="t", partition=0, base=base)
        origin = Origin("s", "shard", checkpoint_of(records[0]), checkpoint_of(records[-1]), 1.25)
        return write_segment(tmp_path, batch, origin, epoch)

    return write


def test_a_segment_comes_back_as_it_was_written(write, make_records, tmp_path) -> None:
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
def test_a_flipped_bit_anywhere_is_seen(write, data) -> None:
    segment = write(3)
    content = bytearray(segment.path.read_bytes())
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    segment.path.write_bytes(content)
    with pytest.raises(SegmentCorruptError, match="damaged"):
        read_segment(segment)


def test_a_disk_that_cannot_read_is_an_error_and_no_signal(write, monkeypatch) -> None:
    """A page of a mapped file that cannot be read would be SIGBUS, and the end of the relay."""
    segment = write(3)

    def read_bytes(_path):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", read_bytes)
        with pytest.raises(SinkError, match="Input/output error"):
            read_segment(segment)
    assert read_segment(segment)[0].equals(read_segment(segment, mapped=True)[0])


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_cut_segment_is_seen(write, keep) -> None:
    segment = write(3)
    segment.path.write_bytes(segment.path.read_bytes()[:keep])
    with pytest.raises(SegmentCorruptError) as caught:
        read_segment(segment)
    assert str(segment.path) in str(caught.value)
    assert "Restore the file" in str(caught.value)


def rename(segment: Segment, content: bytes, base: int, end: int) -> Segment:
    """Give content a name whose CRC is right."""
    other = Segment(base, end, crc32(content), segment.directory)
    other.path.write_bytes(content)
    return other


def test_a_segment_under_other_offsets_is_seen(write) -> None:
    segment = write(3)
    with pytest.raises(SegmentCorruptError, match="other offsets"):
        read_segment(rename(segment, segment.path.read_bytes(), 10, 13))


def test_something_else_under_a_segments_name_is_seen(write) -> None:
    with pytest.raises(SegmentCorruptError, match="not a segment"):
        read_segment(rename(write(3), b"hello", 0, 3))


def with_metadata(segment: Segment, **changes: str) -> bytes:
    with pa.ipc.open_file(str(segment.path)) as reader:
        table = reader.read_all()
        metadata = {**reader.schema.metadata, **{f"efo.{key}".encode(): value for key, value in changes.items()}}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("name", ["format", "mapping"])
def test_a_newer_format_is_refused(write, name) -> None:
    segment = write(3)
    with pytest.raises(LogVersionError, match=f"has the {name} 2, .* upgrade efo"):
        read_segment(rename(segment, with_metadata(segment, **{name: "2"}), 0, 3))


@pytest.mark.parametrize("changes", [{"last": "soon"}, {"format": "one"}, {"committed_at": ""}])
def test_metadata_that_make_no_sense_are_seen(write, changes) -> None:
    segment = write(3)
    with pytest.raises(SegmentCorruptError, match="not a segment"):
        read_segment(rename(segment, with_metadata(segment, **changes), 0, 3))


def test_a_segment_that_is_gone(write) -> None:
    segment = write(3)
    segment.path.unlink()
    with pytest.raises(SegmentGoneError, match="not there any more"):
        read_segment(segment)


def test_segments_are_listed_in_order_and_nothing_else_is(write, tmp_path) -> None:
    second, first = write(2, base=3), write(3)
    (tmp_path / "segment-0.tmp").write_bytes(b"half")
    (tmp_path / "writer.lock").touch()
    assert list_segments(tmp_path) == [first, second]
    assert last_segment(tmp_path) == second


def test_a_partition_that_is_not_there_yet_is_empty(tmp_path) -> None:
    assert list_segments(tmp_path / "5") == []
    assert last_segment(tmp_path / "5") is None


def test_an_arrow_file_of_another_name_is_not_skipped(write, tmp_path) -> None:
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
def test_select_covers_a_range(start, end, parts) -> None:
    segments = [Segment(base, base + 10, 0, Path()) for base in (0, 10, 20)]
    assert [part[1:] for part in select(segments, start, end)] == parts


@pytest.mark.parametrize(
    ("bases", "missing"),
    [((0, 20), "10 to 19"), ((10, 20), "0 to 9"), ((0, 10), "20 to 29"), ((), "0 to 29")],
)
def test_select_sees_holes(bases, missing) -> None:
    segments = [Segment(base, base + 10, 0, Path("p")) for base in bases]
    with pytest.raises(SegmentMissingError, match=missing):
        list(select(segments, 0, 30))
    assert [part[1:] for part in select(segments, 0, 30, holes=True)] == [(b, b + 10) for b in bases]


def test_segments_that_a_larger_one_replaced_do_not_count(write) -> None:
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


def test_the_origin_alone_is_read_without_the_records(write) -> None:
    segment = write(5)
    assert read_origin(segment) == read_segment(segment)[1]
    content = bytearray(segment.path.read_bytes())
    content[-5] ^= 255
    segment.path.write_bytes(content)
    with pytest.raises(SegmentCorruptError, match="not a segment"):
        read_origin(segment)


def test_select_sees_two_claims_of_the_same_offsets() -> None:
    with pytest.raises(SegmentCorruptError, match="same offsets"):
        list(select([Segment(0, 10, 0, Path()), Segment(5, 15, 0, Path())], 0, 15))


def test_a_full_disk_is_said_and_leaves_nothing(write, tmp_path, epoch) -> None:
    epoch.temporary.symlink_to("/dev/full")
    with pytest.raises(SinkFullError, match="no room") as caught:
        write(3)
    assert caught.value.retryable
    assert list_segments(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written(write, tmp_path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SinkError, match="Permission denied"):
        write(3)


def test_the_executors_side_is_quick_to_import() -> None:
    code = "import sys, efo_service.relay.log.segments; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["trio", "h2", "aiobotocore", "botocore", "pyspark", "httpx2"]
    answer = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
