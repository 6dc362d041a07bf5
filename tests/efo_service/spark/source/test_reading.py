import logging

import pytest

from efo_service.log.disk import DiskFiles
from efo_service.log.reading import BATCH_ROWS
from efo_service.log.segments import list_segments
from efo_service.relay.errors import LogIncompleteError, LogOwnerError, SegmentCorruptError, SegmentMissingError
from efo_service.spark.source.offsets import Range
from efo_service.spark.source.planner import read_range


def offsets(log, start: int, end: int, *, allow_gaps: bool = False) -> list[list[int]]:
    batches = read_range(DiskFiles(log.root, mapped=True), Range(log.topic, 0, start, end), allow_gaps=allow_gaps)
    return [batch.column("offset").to_pylist() for batch in batches]


def test_small_segments_are_merged_into_one_batch(log) -> None:
    for _ in range(20):
        log.grow(0, 3)
    assert offsets(log, 0, 60) == [list(range(60))]
    assert offsets(log, 4, 8) == [[4, 5, 6, 7]]


def test_large_segments_are_split_into_batches(log) -> None:
    for _ in range(3):
        log.grow(0, BATCH_ROWS - 1000)
    log.grow(0, BATCH_ROWS * 2)
    batches = offsets(log, 10, (BATCH_ROWS - 1000) * 3 + BATCH_ROWS * 2)
    assert [row for batch in batches for row in batch] == list(range(10, BATCH_ROWS * 5 - 3000))
    assert max(map(len, batches)) <= BATCH_ROWS


def test_missing_records_are_an_error_or_a_warning(log, caplog) -> None:
    for _ in range(3):
        log.grow(0, 10)
    middle = list_segments(log.root / log.topic / "0")[1]
    middle.path.unlink()
    with pytest.raises(SegmentMissingError, match="10 to 19"):
        offsets(log, 5, 25)
    with caplog.at_level(logging.WARNING):
        assert offsets(log, 5, 25, allow_gaps=True) == [[5, 6, 7, 8, 9, 20, 21, 22, 23, 24]]
    assert "10 of the records 5 to 25 are missing" in caplog.text


def test_a_damaged_segment_is_an_error_even_if_holes_are_allowed(log) -> None:
    log.grow(0, 10)
    (segment,) = list_segments(log.root / log.topic / "0")
    segment.path.write_bytes(segment.path.read_bytes() + b"!")
    with pytest.raises(SegmentCorruptError):
        offsets(log, 0, 10, allow_gaps=True)


def test_swapped_directories_are_an_error_even_if_holes_are_allowed(log) -> None:
    log.grow(0, 10)
    log.grow(1, 10)
    for source, target in (("0", "x"), ("1", "0"), ("x", "1")):
        (log.root / log.topic / source).rename(log.root / log.topic / target)
    with pytest.raises(LogOwnerError, match="a file or directory was moved"):
        offsets(log, 0, 10, allow_gaps=True)


def test_a_partition_that_left_the_catalog_is_an_error(log) -> None:
    log.grow(0, 10)
    with pytest.raises(LogIncompleteError, match=r"7 is not in the catalog"):
        list(read_range(DiskFiles(log.root, mapped=True), Range(log.topic, 7, 0, 1), allow_gaps=True))
