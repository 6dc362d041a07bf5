"""The log without Spark: `efo.read_log`, on a disk and on an object store, while it is compacted and expires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import efo
from efo.errors import ConfigurationError
from efo_service.log import topic as topic_module
from efo_service.log.catalog import allocate_partition
from efo_service.log.compaction import FAN_IN
from efo_service.log.disk import DiskFiles
from efo_service.log.files import LogFiles
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.partition_writer import open_partition
from efo_service.log.reader_offsets import commit_reader, read_readers
from efo_service.log.reading import BATCH_BYTES, BATCH_ROWS, PartitionRange, Selection, first_offset, plan, read, sized
from efo_service.log.retention import RetentionRules
from efo_service.relay.errors import SegmentMissingError, TopicNotFoundError
from tests.efo_service.log.objects.logs import SHARD, STREAM, TOPIC, Log, make_records

ARRIVED = datetime.fromtimestamp(1_700_000_000, UTC)
"""When record 0 arrived; each arrives a millisecond after the one before."""


class OnDisk:
    def __init__(self, directory: Path) -> None:
        self.path: str | Path = directory / "log"
        self._count = 0

    def append(self, commits: int, records: int = 2) -> None:
        writer = open_partition(DiskFiles(self.path), TOPIC, STREAM, SHARD, lambda: 1_800_000_000.25)
        for _ in range(commits):
            writer.append(make_records(records, self._count))
            self._count += records
        writer.close()

    def compact(self) -> None:
        assert LogMaintenance(DiskFiles(self.path, grace=0), TOPIC, RetentionRules()).run(2e9).compacted
        LogMaintenance(DiskFiles(self.path, grace=0), TOPIC, RetentionRules()).run(2e9)  # what was superseded is gone

    def expire(self) -> None:
        LogMaintenance(DiskFiles(self.path, grace=0), TOPIC, RetentionRules(seconds=1.0)).run(2e9)


class OnStore:
    path = "s3://logs/efo"

    def __init__(self) -> None:
        self._log = Log()

    def open(self, url: object) -> LogFiles:
        return ObjectFiles(self._log.client(), url)

    def append(self, commits: int, records: int = 2) -> None:
        writer = self._log.writer()
        for _ in range(commits):
            self._log.append(writer, records)

    def compact(self) -> None:
        self._log.fold()
        self._log.merge()

    def expire(self) -> None:
        self._log.fold()
        self._log.expire()


@pytest.fixture(params=["disk", "store"])
def log(request, tmp_path, monkeypatch):
    if request.param == "disk":
        return OnDisk(tmp_path)
    log = OnStore()
    monkeypatch.setattr(topic_module, "log_files", log.open)
    return log


def offsets(log, **arguments) -> list[int]:
    return efo.read_log(log.path, TOPIC, **arguments).read_all().column("offset").to_pylist()


def test_all_records_are_read_in_order_with_the_columns_of_the_log(log) -> None:
    log.append(3)
    table = efo.read_log(log.path, TOPIC).read_all()
    assert table.column_names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    assert table.column("value").to_pylist() == [b"value-%d" % number for number in range(6)]
    assert table.column("offset").to_pylist() == list(range(6))


def test_columns_are_those_that_were_asked_for_in_their_order(log) -> None:
    log.append(1)
    reader = efo.read_log(log.path, TOPIC, columns=["value", "offset"])
    assert reader.schema.names == ["value", "offset"]
    assert reader.read_all().to_pylist() == [{"value": b"value-0", "offset": 0}, {"value": b"value-1", "offset": 1}]


def test_the_position_in_kinesis_may_be_columns(log) -> None:
    log.append(1)
    reader = efo.read_log(log.path, TOPIC, columns=["shard_id", "offset", "stream", "sub_sequence_number"])
    assert reader.schema.field("sub_sequence_number").type == pa.int32()
    assert reader.read_all().to_pylist()[1] == {
        "shard_id": SHARD, "offset": 1, "stream": STREAM, "sub_sequence_number": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"start": 2}, [2, 3, 4, 5]),
        ({"end": 3}, [0, 1, 2]),
        ({"start": 1, "end": 4}, [1, 2, 3]),
        ({"start": {0: 4}}, [4, 5]),
        ({"start": {}, "end": {0: 2}}, [0, 1]),
        ({"end": 1000}, [0, 1, 2, 3, 4, 5]),
        ({"start": ARRIVED + timedelta(milliseconds=2)}, [2, 3, 4, 5]),
        ({"start": ARRIVED + timedelta(microseconds=1001)}, [2, 3, 4, 5]),
        ({"end": ARRIVED + timedelta(milliseconds=2)}, [0, 1]),
        ({"start": ARRIVED - timedelta(days=1), "end": ARRIVED + timedelta(days=1)}, [0, 1, 2, 3, 4, 5]),
        ({"start": ARRIVED + timedelta(days=1)}, []),
        ({"partitions": [0]}, [0, 1, 2, 3, 4, 5]),
        ({"partitions": []}, []),
    ],
)
def test_offsets_and_times_choose_the_records(log, arguments, expected) -> None:
    log.append(3)
    assert offsets(log, **arguments) == expected


def test_the_end_is_that_of_the_call(log) -> None:
    log.append(2)
    reader = efo.read_log(log.path, TOPIC)
    log.append(2)
    assert reader.read_all().num_rows == 4


def test_a_compaction_while_it_is_read_loses_and_repeats_nothing(log, monkeypatch) -> None:
    monkeypatch.setattr("efo_service.log.reading.BATCH_ROWS", 3)
    log.append(FAN_IN + 3)
    reader = efo.read_log(log.path, TOPIC, columns=["offset"])
    read = [*next(reader).column("offset").to_pylist(), *next(reader).column("offset").to_pylist()]
    log.compact()
    read += [offset for batch in reader for offset in batch.column("offset").to_pylist()]
    assert read == list(range(2 * FAN_IN + 6))


def test_what_expires_before_it_is_read_is_an_error_or_a_gap(log, monkeypatch, caplog) -> None:
    monkeypatch.setattr("efo_service.log.reading.BATCH_ROWS", 2)
    log.append(4)
    strict, lenient = efo.read_log(log.path, TOPIC), efo.read_log(log.path, TOPIC, allow_gaps=True)
    next(strict), next(lenient)
    log.expire()
    log.append(1)
    with pytest.raises(SegmentMissingError, match="allow_gaps=True"):
        strict.read_all()
    left = lenient.read_all().column("offset").to_pylist()
    assert left == sorted(set(left))
    assert not {0, 1}.intersection(left)
    assert "are missing" in caplog.text


def test_a_named_reader_goes_on_where_it_ended_and_a_part_is_read_again(log, monkeypatch) -> None:
    monkeypatch.setattr("efo_service.log.reading.BATCH_ROWS", 2)
    log.append(2)
    assert offsets(log, reader="nightly") == [0, 1, 2, 3]
    log.append(2)
    next(efo.read_log(log.path, TOPIC, reader="nightly"))  # and no further
    assert offsets(log, reader="nightly") == [4, 5, 6, 7]
    assert offsets(log, reader="nightly") == []
    assert offsets(log, reader="nightly", start=6) == [6, 7]


def test_retention_keeps_what_a_named_reader_has_not_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("efo_service.log.reading.BATCH_ROWS", 2)
    log = OnDisk(tmp_path)
    log.append(4)
    reader = efo.read_log(log.path, TOPIC, reader="nightly")
    next(reader)
    log.expire()
    assert reader.read_all().column("offset").to_pylist() == [2, 3, 4, 5, 6, 7]
    log.expire()
    assert offsets(log) == [6, 7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["id"]}, "no column 'id'; it has: key, value, topic"),
        ({"columns": "value"}, r"columns is a list of names, such as \['value'\]"),
        ({"partitions": [7]}, "no partition 7; it has: 0"),
        ({"start": -1}, "start is an offset, 0 or more"),
        ({"start": True}, "start is an offset, 0 or more"),
        ({"start": {0: 1, 7: -1}}, "start is an offset, 0 or more"),
        ({"end": "2026-01-01"}, "end is an offset, 0 or more, a datetime"),
        ({"start": {7: 1}}, "start names the partition 7"),
        ({"start": datetime(2026, 1, 1)}, "start is a time without a timezone"),  # noqa: DTZ001 - that is the mistake
        ({"reader": "../x"}, "not a valid reader name"),
        ({"reader": "r", "partitions": [0]}, "a named reader reads all partitions"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(log, arguments, message) -> None:
    log.append(1)
    with pytest.raises(ConfigurationError, match=message):
        efo.read_log(log.path, TOPIC, **arguments)


def test_a_topic_or_a_directory_that_does_not_exist_is_named(log, tmp_path) -> None:
    log.append(1)
    with pytest.raises(TopicNotFoundError, match="it has: orders"):
        efo.read_log(log.path, "payments")
    with pytest.raises(ConfigurationError, match="is not a directory: give the root of a log"):
        efo.read_log(tmp_path / "nowhere", TOPIC)
    with pytest.raises(ConfigurationError, match="no URL of a log"):
        efo.read_log("s3a://logs/efo", TOPIC)


def test_without_pyarrow_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "efo_service.log.reading", None)
    with pytest.raises(efo.errors.EfoError, match=r"pip install 'efo\[arrow\]'"):
        efo.read_log("/log", TOPIC)


def test_an_empty_topic_has_a_schema(log) -> None:
    log.append(1)
    assert efo.read_log(log.path, TOPIC, start=2, columns=["offset"]).read_all().schema == pa.schema(
        [("offset", pa.int64())]
    )


# --- gaps and sizes ---


@pytest.fixture
def files(tmp_path) -> DiskFiles:
    """A log with four segments of two records each."""
    OnDisk(tmp_path).append(4)
    return DiskFiles(tmp_path / "log")


def read_with_gaps(files: DiskFiles, **selection) -> tuple[list[int], list[str]]:
    """Return the offsets that are read, and what is told of the gaps, without the directory."""
    told: list[str] = []
    batches = read(*plan(files, TOPIC, Selection(**selection), told.append), told.append)
    found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    return found, [one.removeprefix(f"{files.root}/{TOPIC}/") for one in told]


@pytest.mark.parametrize(
    ("lost", "selection", "expected", "gaps"),
    [
        ([], {}, [0, 1, 2, 3, 4, 5, 6, 7], []),
        ([], {"start": 3, "end": 5}, [3, 4], []),
        ([1], {}, [0, 1, 4, 5, 6, 7], ["0: the offsets 2 to 3 are missing"]),
        ([1], {"start": 3, "end": 6}, [4, 5], ["0: the offsets 3 to 3 are missing"]),
        ([1, 2], {"end": 5}, [0, 1], ["0: the offsets 2 to 4 are missing"]),
        ([0], {"start": 0, "end": 4}, [2, 3], ["0: the offsets 0 to 1 are missing"]),
        ([1], {"start": 4}, [4, 5, 6, 7], []),
    ],
)
def test_each_gap_is_told_with_its_offsets(files, lost, selection, expected, gaps) -> None:
    segments = sorted((files.root / TOPIC / "0").glob("*.arrow"))
    for index in lost:
        segments[index].unlink()
    assert read_with_gaps(files, **selection) == (expected, gaps)


def test_a_partition_that_was_emptied_is_told_once(files) -> None:
    for segment in (files.root / TOPIC / "0").glob("*.arrow"):
        segment.unlink()
    found, (told,) = read_with_gaps(files)
    assert (found, "has no segment, but records were committed to it" in told) == ([], True)


def test_a_partition_that_has_had_no_records_yet_is_no_gap(files) -> None:
    allocate_partition(files, TOPIC, STREAM, "new")
    assert read_with_gaps(files) == ([0, 1, 2, 3, 4, 5, 6, 7], [])
    assert plan(files, TOPIC, Selection())[1] == [PartitionRange(0, 0, 8), PartitionRange(1, 0, 0)]


def test_a_named_reader_goes_on_by_its_own_offsets_of_the_partitions_that_there_are(files) -> None:
    commit_reader(files, TOPIC, "first", {0: 2}, 0.0)
    commit_reader(files, TOPIC, "nightly", {0: 6, 9: 5}, 0.0)
    assert efo.read_log(files.root, TOPIC, reader="nightly").read_all().column("offset").to_pylist() == [6, 7]
    assert {one.name: one.offsets for one in read_readers(files, TOPIC)} == {"first": {0: 2}, "nightly": {0: 8}}


def test_a_named_reader_that_starts_after_the_end_goes_on_there(files) -> None:
    assert efo.read_log(files.root, TOPIC, reader="r", start=100).read_all().num_rows == 0
    assert [one.offsets for one in read_readers(files, TOPIC)] == [{0: 100}]


class Times:
    """A partition with the arrival times of two segments, in microseconds."""

    def timestamps(self):
        for base, times in ((10, [1000, 3000, 2000]), (13, [4000, 4001])):
            yield base, pa.array(times, pa.timestamp("us", tz="UTC"))


@pytest.mark.parametrize(
    ("milliseconds", "offset"), [(0, 10), (1, 10), (2, 11), (3, 11), (4, 13), (5, None), (2**63, None)]
)
def test_the_first_record_of_a_time_is_the_oldest_that_arrived_then_or_later(milliseconds, offset) -> None:
    assert first_offset(Times(), milliseconds) == offset  # type: ignore[arg-type] - all that it needs


def batches(*rows: int) -> list[pa.RecordBatch]:
    """Return batches of so many rows of eight bytes, numbered from 0."""
    starts = [sum(rows[:index]) for index in range(len(rows))]
    return [
        pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})
        for start, count in zip(starts, rows, strict=True)
    ]


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        ([], []),
        ([0, 0], []),
        ([5], [5]),
        ([2, 3], [5]),
        ([2, 4], [2, 4]),
        ([3, 3, 2, 1], [3, 5, 1]),
        ([12], [5, 5, 2]),
        ([1, 12, 1], [1, 5, 5, 3]),
    ],
)
def test_batches_are_merged_and_split_to_at_most_so_many_rows(monkeypatch, rows, sizes) -> None:
    monkeypatch.setattr("efo_service.log.reading.BATCH_ROWS", 5)
    found = list(sized(batches(*rows)))
    assert [batch.num_rows for batch in found] == sizes
    assert [number for batch in found for number in batch.column("n").to_pylist()] == list(range(sum(rows)))


@pytest.mark.parametrize(("rows", "sizes"), [([2, 3], [5]), ([2, 4], [2, 4]), ([6], [6]), ([4, 2, 3], [4, 5])])
def test_batches_are_merged_to_at_most_so_many_bytes(monkeypatch, rows, sizes) -> None:
    monkeypatch.setattr("efo_service.log.reading.BATCH_BYTES", 5 * 8)
    assert [batch.num_rows for batch in sized(batches(*rows))] == sizes


def test_the_largest_batches_are_what_spark_is_fast_with() -> None:
    assert (BATCH_ROWS, BATCH_BYTES) == (16_384, 16_777_216)
