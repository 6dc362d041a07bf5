"""What a verification makes of the files of a partition, whose listing may change while they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from efo.model import Checkpoint
from efo_service.log.catalog import allocate_partition
from efo_service.log.disk import DiskFiles
from efo_service.log.files import Content, ListedFile
from efo_service.log.inspection import LiveFile, Verification, live_files, verify_topic
from efo_service.relay.errors import SegmentCorruptError, SegmentGoneError


def content(base: int, end: int, **changes) -> Content:
    """Return the records of offsets, whose positions are their offsets, in a file of ten bytes for each."""
    offsets = changes.pop("offsets", list(range(base, end)))
    columns = {
        "offset": pa.array(offsets, pa.int64()),
        "topic": [changes.pop("topic", "t")] * len(offsets),
        "partition": pa.array([changes.pop("partition", 0)] * len(offsets), pa.int32()),
    }
    ends = (Checkpoint(str(base)), Checkpoint(str(end - 1))) if offsets else (None, None)
    return Content(base, end, *ends, pa.record_batch(columns), 10 * len(offsets))._replace(**changes)


def reading(found: Content | Exception) -> Callable[[], Content]:
    def read() -> Content:
        if isinstance(found, Exception):
            raise found
        return found

    return read


def listed(base: int, end: int, found: Content | Exception | None = None, *, is_superseded: bool = False) -> ListedFile:
    """Return a file whose name has its offsets."""
    read = reading(content(base, end) if found is None else found)
    return ListedFile(f"{base}-{end}", read, base, end, 10 * (end - base), is_superseded)


def unnamed(found: Content) -> ListedFile:
    """Return a file whose name does not tell its offsets."""
    return ListedFile("commit", reading(found))


GONE = SegmentGoneError("it is gone")
DAMAGED = SegmentCorruptError("it is damaged")


class Partition:
    """A partition with these listings, of which the last one stays."""

    name, emptied_message = "log/t/0", "is emptied"

    def __init__(self, *listings: list[ListedFile]) -> None:
        self._listings = list(listings)
        self.listed = 0

    def has_records(self) -> bool:
        return True

    def end(self) -> int:
        return 100

    def files(self) -> Iterator[ListedFile]:
        listing = self._listings[min(self.listed, len(self._listings) - 1)]
        self.listed += 1
        yield from listing

    def findings(self) -> Iterator[str]:
        yield from ()


@pytest.fixture
def verify(tmp_path, monkeypatch):
    allocate_partition(DiskFiles(tmp_path), "t", "s", "shard")

    def verify(partition: Partition) -> Verification:
        monkeypatch.setattr(DiskFiles, "partition", lambda *_arguments: partition)
        return verify_topic(DiskFiles(tmp_path), "t")

    return verify


def test_a_file_that_stays_gone_is_a_problem_after_five_listings(verify) -> None:
    partition = Partition([listed(0, 2), listed(2, 4, GONE)])
    found = verify(partition)
    assert partition.listed == 6  # the first one made progress
    assert found.problems == ["log/t/0: files after offset 2 are listed but do not exist: restore them (it is gone)"]
    assert (found.records, found.segments) == (2, 1)


def test_a_partition_may_be_listed_as_often_as_a_file_is_read_meanwhile(verify) -> None:
    parts = [listed(number, number + 1) for number in range(9)]
    partition = Partition(*([*parts[:count], listed(count, 9, GONE)] for count in range(1, 9)), parts)
    found = verify(partition)
    assert (found.records, found.segments, found.size, found.problems) == (9, 9, 90, [])
    assert partition.listed == 9


def test_records_that_were_compacted_after_they_were_read_count_once(verify) -> None:
    found = verify(Partition([listed(0, 2), listed(2, 4, GONE)], [listed(0, 4), listed(4, 6)]))
    assert (found.records, found.segments, found.size, found.problems) == (6, 3, 80, [])


def test_a_gap_of_a_listing_that_was_not_read_to_its_end_is_none(verify) -> None:
    gone = [listed(0, 2), listed(4, 6), listed(6, 8, GONE)]
    assert verify(Partition(gone, [listed(0, 8)])).problems == []
    assert verify(Partition(gone, [listed(0, 2), listed(4, 8)])).problems == [
        "log/t/0: offsets 2 to 3 are missing: restore their segments, or read without them with failOnDataLoss=false"
    ]


def test_the_first_file_may_begin_anywhere(verify) -> None:
    found = verify(Partition([listed(7, 9), listed(9, 10)]))
    assert (found.records, found.problems) == (3, [])


def test_a_damaged_file_is_no_gap_and_what_follows_it_is_compared_with_what_was_before(verify) -> None:
    again = content(4, 6, first=Checkpoint("1"))
    found = verify(Partition([listed(0, 2), listed(2, 4, DAMAGED), listed(4, 6, again)]))
    assert found.problems == [
        "it is damaged",
        "4-6 starts at 1, but the previous one ends at 1: records are duplicated or out of order",
    ]
    assert (found.records, found.segments) == (4, 2)


def test_files_whose_names_have_no_offsets_are_read_for_them(verify) -> None:
    empty = content(3, 3)
    partition = Partition([unnamed(content(0, 3)), unnamed(empty), unnamed(content(3, 4)), unnamed(content(6, 7))])
    found = verify(partition)
    assert (found.records, found.segments) == (5, 3)
    assert ["offsets 4 to 5 are missing" in one for one in found.problems] == [True]
    (problem,) = verify(Partition([unnamed(content(0, 3)), unnamed(empty), unnamed(content(6, 7))])).problems
    assert "offsets 3 to 5 are missing" in problem


def test_files_that_are_superseded_are_counted_apart_and_may_be_gone(verify) -> None:
    old = [listed(0, 2, is_superseded=True), listed(2, 4, GONE, is_superseded=True)]
    found = verify(Partition([listed(0, 4), *old]))
    assert (found.records, found.segments, found.size, found.problems) == (4, 1, 40, [])
    assert (found.superseded, found.superseded_size) == (1, 20)
    assert verify(Partition([listed(0, 4), listed(0, 2, DAMAGED, is_superseded=True)])).problems == ["it is damaged"]


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (content(2, 4, offsets=[2, 2]), "2-4: its offsets are not exactly 2 to 3"),
        (content(2, 4, topic="u"), "2-4 was written as partition [0] of the topic ['u']: it was moved, put it back"),
        (content(2, 4, partition=3), "2-4 was written as partition [3] of the topic ['t']: it was moved, put it back"),
        (
            content(2, 4, first=Checkpoint("1")),
            "2-4 starts at 1, but the previous one ends at 1: records are duplicated or out of order",
        ),
        (content(2, 4, first=None), None),
    ],
)
def test_a_file_whose_records_do_not_fit_is_a_problem(verify, found, problem) -> None:
    assert verify(Partition([listed(0, 2), listed(2, 4, found)])).problems == ([] if problem is None else [problem])


def test_live_files_are_those_with_records_that_are_not_superseded(tmp_path, monkeypatch) -> None:
    allocate_partition(DiskFiles(tmp_path), "t", "s", "shard")
    files = [listed(0, 2), unnamed(content(2, 3)), unnamed(content(3, 3)), listed(0, 1, is_superseded=True)]
    monkeypatch.setattr(DiskFiles, "partition", lambda *_arguments: Partition(files))
    assert list(live_files(DiskFiles(tmp_path), "t")) == [
        LiveFile(0, "shard", 0, 2, 20, "0-2"),
        LiveFile(0, "shard", 2, 3, 10, "commit"),
    ]
