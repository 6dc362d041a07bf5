"""What each log must do, wherever its files are: on a disk and on an object store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from unittest.mock import patch

import pytest

from efo.errors import ConfigurationError
from efo.model import Checkpoint, Lease, Record, checkpoint_of
from efo_service.log.catalog import (
    Catalog,
    allocate_partition,
    mark_written,
    partition_names,
    read_catalog,
    topics,
    uncatalogued_topics,
)
from efo_service.log.columns.layout import columns_of
from efo_service.log.consistency import adopt_into, check_topic, plan_adoption, readers_ahead
from efo_service.log.disk import DiskFiles
from efo_service.log.files import LogFiles, PartitionState, SizedSegment
from efo_service.log.inspection import inspect_topic, live_files, verify_topic
from efo_service.log.maintenance import LogMaintenance, MaintenanceReport
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.partition_writer import PartitionWriter, open_partition
from efo_service.log.reader_offsets import ReaderCommit, commit_reader, floor, read_readers, remove_reader
from efo_service.log.retention import RetentionRules
from efo_service.log.topic import read_topic
from efo_service.object_store.memory import MemoryStore
from efo_service.relay.errors import (
    LogError,
    LogIncompleteError,
    LogOwnerError,
    LogVersionError,
    SegmentMissingError,
    TopicNotFoundError,
)
from tests.efo_service.conftest import FIRST, SHARD, STREAM, TOPIC

Append = Callable[[int, int], None]
"""Commits `count` records from `start` on to the partition of SHARD, through a writer of its own."""
DOCUMENT = f"{TOPIC}/catalog.json"


@pytest.fixture
def now() -> list[float]:
    return [1_800_000_000.25]


@pytest.fixture(params=["disk", "objects"])
def make_files(request, tmp_path, now) -> Callable[[], LogFiles]:
    """Return the log as another process has it."""
    if request.param == "disk":
        return lambda: DiskFiles(tmp_path / "log", grace=60.0)
    store = MemoryStore(lambda: now[0])
    return lambda: ObjectFiles(store.client(), fold_commits=1)


@pytest.fixture
def files(make_files) -> LogFiles:
    return make_files()


@pytest.fixture
def open_writer(files, now) -> Callable[..., PartitionWriter]:
    return partial(open_partition, files, TOPIC, STREAM, SHARD, lambda: now[0])


@pytest.fixture
def append(open_writer, make_records) -> Append:
    def append(count: int, start: int) -> None:
        writer = open_writer()
        writer.append(make_records(count, start))
        writer.close()

    return append


def overwrite(files: LogFiles, name: str, content: bytes) -> None:
    if isinstance(files, DiskFiles):
        (files.root / name).write_bytes(content)
    else:
        store = files._store
        assert isinstance(store, MemoryStore)
        stored = store.get(name)
        assert stored is not None
        store.replace(name, content, stored.version)


# --- documents ---------------------------------------------------------------------------------------------


def test_a_document_that_does_not_exist_is_none(files) -> None:
    assert (files.read(DOCUMENT), files.exists(DOCUMENT), files.remove(f"{TOPIC}/readers/r.json")) == (
        None,
        False,
        False,
    )
    assert (files.names(f"{TOPIC}/readers"), files.folders(""), files.folders(TOPIC)) == ([], [], [])


def test_a_change_without_new_fields_writes_nothing(files) -> None:
    files.update(DOCUMENT, lambda _content: None)
    assert not files.exists(DOCUMENT)


def test_changes_at_the_same_time_are_all_made(files) -> None:
    shards = [f"shard-{number}" for number in range(12)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda shard: allocate_partition(files, TOPIC, STREAM, shard), shards * 2))
    partitions = read_catalog(files, TOPIC).partitions
    assert sorted(partitions.values()) == list(range(12))
    assert set(partitions) == set(shards)


# --- the catalog -------------------------------------------------------------------------------------------


def test_each_shard_gets_one_partition(files) -> None:
    allocated = [allocate_partition(files, "t", "s", shard) for shard in ("x", "y", "x", "z", "y")]
    assert allocated == [0, 1, 0, 2, 1]
    mark_written(files, "t", "s", 1)
    assert read_catalog(files, "t") == Catalog("s", {"x": 0, "y": 1, "z": 2}, frozenset({1}))
    assert (topics(files), uncatalogued_topics(files)) == (["t"], [])


def test_what_is_not_there_or_not_its_own_is_refused(files) -> None:
    allocate_partition(files, "orders", "s", "x")
    with pytest.raises(TopicNotFoundError, match="it has: orders"):
        read_catalog(files, "t")
    with pytest.raises(LogOwnerError, match="'s', not to 'other'"):
        allocate_partition(files, "orders", "other", "x")
    with pytest.raises(ConfigurationError, match="is not a valid topic name"):
        read_catalog(files, "../orders")
    with pytest.raises(LogIncompleteError, match="efo log adopt"):
        allocate_partition(files, "orders", "s", "y", Checkpoint("7"))


def of_partitions(partitions: str) -> bytes:
    return f'{{"format": 1, "stream": "s", "partitions": {partitions}}}'.encode()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"{}", b"\xff", b"[" * 5000, b"9" * 6000),
        b'{"format": 1e400, "stream": "s", "partitions": {}}',
        *map(of_partitions, ("[]", '{"x": -1}', '{"x": 1e400}', '{"x": 2147483648}', f'{{"x": {"9" * 6000}}}')),
    ],
)
def test_a_damaged_catalog_is_refused_and_stays(files, content) -> None:
    allocate_partition(files, TOPIC, STREAM, SHARD)
    overwrite(files, DOCUMENT, content)
    for call in (read_catalog, check_topic, lambda *where: allocate_partition(*where, STREAM, "y")):
        with pytest.raises(LogError, match="restore"):
            call(files, TOPIC)
    assert files.read(DOCUMENT) == content


def test_a_newer_catalog_is_refused(files) -> None:
    allocate_partition(files, TOPIC, STREAM, SHARD)
    overwrite(files, DOCUMENT, b'{"format": 3, "partitions": ["a new form"]}')
    for call in (read_catalog, lambda *where: allocate_partition(*where, STREAM, "y")):
        with pytest.raises(LogVersionError, match="upgrade efo"):
            call(files, TOPIC)


def test_a_lost_catalog_is_never_written_anew(files, append) -> None:
    append(2, 0)
    files.remove(DOCUMENT)
    assert (topics(files), uncatalogued_topics(files)) == ([], [TOPIC])
    for call in (read_catalog, check_topic, lambda *where: allocate_partition(*where, STREAM, "y")):
        with pytest.raises(LogIncompleteError, match=r"catalog\.json does not exist, but the topic has partitions"):
            call(files, TOPIC)
    assert "does not exist" in verify_topic(files, TOPIC).problems[0]


def test_a_partition_that_the_catalog_lost_is_reported_and_its_number_stays_taken(files, append) -> None:
    append(2, 0)
    files.remove(DOCUMENT)
    files.update(DOCUMENT, lambda _content: {"format": 1, "stream": STREAM, "partitions": {}, "written": []})
    with pytest.raises(LogIncompleteError, match="the catalog does not name this partition"):
        check_topic(files, TOPIC)
    assert partition_names(files, TOPIC) == ["0"]
    assert allocate_partition(files, TOPIC, STREAM, "y") == 1


def test_an_adoption_gives_a_new_partition_once(files, append) -> None:
    append(2, 0)
    planned = plan_adoption(files, TOPIC, [Lease("other", Checkpoint("7"))])
    assert [adopt_into(files, TOPIC, STREAM, planned) for _ in range(2)] == [{"other": 1}, {}]
    assert read_catalog(files, TOPIC).adopted == {1: "7"}


# --- readers -----------------------------------------------------------------------------------------------


def test_the_last_committed_offsets_of_each_reader_are_read(files) -> None:
    allocate_partition(files, TOPIC, STREAM, SHARD)
    for name, offsets, at in (("slow", {0: 5}, 1.5), ("fast", {1: 7}, 2.5), ("fast", {1: 8, 0: 9}, 3.5)):
        commit_reader(files, TOPIC, name, offsets, at)
    assert read_readers(files, TOPIC) == [ReaderCommit("fast", {0: 9, 1: 8}, 3.5), ReaderCommit("slow", {0: 5}, 1.5)]
    assert [remove_reader(files, TOPIC, "slow") for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"\xff", b"[" * 5000, b"9" * 6000),
        b'{"format": 2, "offsets": {"0": 9}, "committed_at": 1}',
        b'{"format": 1}',
        b'{"format": 1, "offsets": {"0": 1e400}, "committed_at": 1}',
        b'{"format": 1, "offsets": {"0": -1}, "committed_at": 1}',
        b'{"format": 1, "offsets": {}, "committed_at": 1e400}',
        b'{"format": 1, "offsets": {}, "committed_at": NaN}',
    ],
)
def test_a_reader_with_an_invalid_file_counts_as_at_offset_0(files, content) -> None:
    allocate_partition(files, TOPIC, STREAM, SHARD)
    commit_reader(files, TOPIC, "r", {0: 5}, 1.5)
    overwrite(files, f"{TOPIC}/readers/r.json", content)
    readers = read_readers(files, TOPIC)
    assert (readers, floor(readers, 0)) == ([ReaderCommit("r", {}, None)], 0)


def test_a_reader_that_is_ahead_is_reported(files, append) -> None:
    append(3, 0)
    commit_reader(files, TOPIC, "r", {0: 4, 7: 1}, 1.5)
    ahead = list(readers_ahead(read_topic(files, TOPIC)))
    assert [("0 ends at offset 3" in ahead[0]), ("7 ends at offset 0" in ahead[1])] == [True, True]


# --- partitions --------------------------------------------------------------------------------------------


def partition(files: LogFiles):
    return read_topic(files, TOPIC).partition(0)


def test_a_partition_without_records_has_no_end(files) -> None:
    allocate_partition(files, TOPIC, STREAM, SHARD)
    empty = partition(files)
    assert (empty.has_records(), empty.start(), empty.end(), [*empty.files()], [*empty.findings()]) == (
        False, 0, None, [], [],
    )  # fmt: skip
    assert empty.state() == PartitionState(0, SHARD, 0, 0, 0, 0, 0, None, None, None, 0) == PartitionState(0, SHARD)
    check_topic(files, TOPIC)


def test_a_segment_weighs_what_its_records_have_in_memory() -> None:
    assert [SizedSegment(None, 100).weight, SizedSegment(None, 100, 300).weight] == [100, 300]


def values(parts: Iterator) -> list[tuple[int, bytes]]:
    return [(row["offset"], row["value"]) for batch in parts for row in batch.to_pylist()]


def test_records_are_read_by_their_offsets(files, append) -> None:
    append(3, 0)
    append(4, 3)
    read = partition(files)
    assert (read.has_records(), read.start(), read.end()) == (True, 0, 7)
    expected = [(number, b"value-%d" % number) for number in range(7)]
    assert values(read.parts(0, 7, allow_gaps=False)) == expected
    assert values(read.parts(2, 5, allow_gaps=False)) == expected[2:5]
    with pytest.raises(SegmentMissingError):
        values(read.parts(5, 9, allow_gaps=False))
    assert values(read.parts(5, 9, allow_gaps=True)) == expected[5:]
    append(1, 7)
    assert read.end() == 8
    assert [(base, len(times)) for base, times in read.timestamps()] == [(0, 3), (3, 4), (7, 1)]


def test_inspection_and_verification_see_the_same_records(files, append) -> None:
    append(3, 0)
    append(4, 3)
    (state,) = inspect_topic(files, TOPIC).partitions
    assert (state.shard_id, state.start, state.end, state.position) == (SHARD, 0, 7, str(FIRST + 6))
    assert state.epoch == 2
    found = verify_topic(files, TOPIC)
    assert (found.records, found.segments, found.problems) == (7, 2, [])
    assert [(one.start, one.end) for one in live_files(files, TOPIC)] == [(0, 3), (3, 7)]
    assert sum(one.size for one in live_files(files, TOPIC)) == found.size


def test_an_emptied_partition_is_reported(files, append) -> None:
    append(3, 0)
    if isinstance(files, DiskFiles):
        next((files.root / TOPIC / "0").glob("*.arrow")).unlink()
    else:
        store = files._store
        store.delete([one.key for one in store.keys(f"{TOPIC}/0/")])
    with pytest.raises(LogIncompleteError, match="but records were committed to it"):
        check_topic(files, TOPIC)
    (problem,) = verify_topic(files, TOPIC).problems
    assert problem == partition(files).emptied_message
    assert [one.replaces for one in plan_adoption(files, TOPIC, [])] == [0]


# --- writers -----------------------------------------------------------------------------------------------


def test_a_partition_that_is_opened_again_continues_after_its_last_record(open_writer, make_records) -> None:
    writer = open_writer()
    assert (writer.position, writer.end) == (None, 0)
    writer.append(make_records(3))
    writer.append(make_records(2, 3))
    writer.close()
    again = open_writer()
    assert (again.position, again.end) == (checkpoint_of(make_records(1, 4)[0]), 5)
    again.close()


def test_the_position_keeps_the_sub_sequence_number(open_writer) -> None:
    writer = open_writer()
    writer.append([Record("7", 1.0, b"", "k", sub_sequence_number=9)])
    writer.close()
    again = open_writer()
    assert again.position == Checkpoint("7", 9)
    again.close()


def test_a_commit_that_is_asked_for_again_is_made_once(files, open_writer, make_records) -> None:
    """Its answer may have been lost."""
    writer = open_writer()
    laid_out = writer.prepare([columns_of(make_records(3), writer.mapping)])
    for _ in range(2):
        writer.commit(laid_out)
        assert (writer.position, writer.end) == (checkpoint_of(make_records(3)[-1]), 3)
    writer.append(make_records(2, 3))
    writer.close()
    found = verify_topic(files, TOPIC)
    assert (found.records, found.problems) == (5, [])


class Stop(BaseException):
    """A cancellation, as trio raises it."""


def test_who_has_lost_the_shard_does_not_fence_its_next_owner(files, open_writer, append, make_records) -> None:
    def stop() -> None:
        raise Stop

    append(3, 0)
    epoch = inspect_topic(files, TOPIC).partitions[0].epoch
    with pytest.raises(Stop):
        open_writer(check_cancelled=stop)
    assert inspect_topic(files, TOPIC).partitions[0].epoch == epoch
    append(2, 3)  # it has not kept the lock either


def test_that_a_partition_has_records_is_noted_after_a_writer_that_was_killed(
    files, open_writer, make_records, monkeypatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(PartitionWriter, "note", lambda _writer: None)
        writer = open_writer()
        writer.append(make_records(1))
        writer.close()
    assert read_catalog(files, TOPIC).written == frozenset()
    open_writer().close()
    assert read_catalog(files, TOPIC).written == frozenset({0})


# --- maintenance ---------------------------------------------------------------------------------------------


@pytest.fixture
def maintain(files, now) -> Callable[..., MaintenanceReport | None]:
    def maintain(fan_in: int = 100, **rules: float) -> MaintenanceReport | None:
        return LogMaintenance(files, TOPIC, RetentionRules(**rules), fan_in=fan_in).run(now[0])

    return maintain


@pytest.fixture
def grow(append, now, maintain) -> Callable[..., None]:
    """Make segments of two records, a minute each. On an object store, maintenance makes them of commits."""
    ends = itertools.count(0, 2)

    def grow(count: int, fan_in: int = 100) -> None:
        for start in itertools.islice(ends, count):
            append(2, start)
            maintain(fan_in)
            now[0] += 60

    return grow


def offsets(files: LogFiles) -> list[int]:
    found = partition(files)
    batches = found.parts(found.start(), found.end() or 0, allow_gaps=False)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_topic_that_does_not_exist_needs_no_maintenance(files, maintain) -> None:
    assert maintain() is None
    assert files.folders("") == []


def test_compaction_keeps_the_records_and_the_position(files, grow, open_writer, make_records) -> None:
    grow(20, fan_in=4)
    assert inspect_topic(files, TOPIC).partitions[0].segments < 10
    assert (offsets(files), verify_topic(files, TOPIC).problems) == (list(range(40)), [])
    writer = open_writer()
    assert (writer.position, writer.end) == (checkpoint_of(make_records(1, 39)[0]), 40)
    writer.close()


def test_old_segments_expire_and_the_writer_goes_on(files, append, grow, maintain, now) -> None:
    grow(3)
    now[0] += 600
    append(2, 6)
    report = maintain(seconds=300)
    assert (report.expired, report.held_back) == (3, 0)
    assert partition(files).start() == 6
    append(1, 8)
    assert (offsets(files), verify_topic(files, TOPIC).problems) == ([6, 7, 8], [])


def test_the_oldest_segments_expire_above_the_size_limit(files, append, grow, maintain) -> None:
    grow(3)
    append(2, 6)
    size = maintain().size
    report = maintain(size=size - 1)
    assert (report.expired, report.size) == (1, size - report.freed)
    assert offsets(files) == [2, 3, 4, 5, 6, 7]


def test_what_a_reader_wants_stays_and_is_reported(files, append, grow, maintain, now) -> None:
    grow(3)
    now[0] += 600
    append(2, 6)
    commit_reader(files, TOPIC, "slow", {0: 3}, 0.0)
    commit_reader(files, TOPIC, "fast", {0: 8}, 0.0)
    report = maintain(seconds=300)
    assert (report.expired, report.held_by) == (1, {"slow": report.held_back})
    assert (report.lags["slow"], report.lags["fast"]) == (5, 0)
    assert offsets(files) == [2, 3, 4, 5, 6, 7]
    commit_reader(files, TOPIC, "slow", {0: 8}, 0.0)
    assert maintain(seconds=300).expired == 2


def test_a_reader_of_the_newest_records_has_no_negative_lag(files, append, maintain) -> None:
    append(2, 0)
    maintain()
    append(2, 2)
    commit_reader(files, TOPIC, "fast", {0: 4}, 0.0)
    with patch.object(files, "_fold_commits", 100) if isinstance(files, ObjectFiles) else nullcontext():
        assert maintain().lags == {"fast": 0}


def test_one_process_maintains_at_a_time(make_files, append, now) -> None:
    append(1, 0)
    first, second = (LogMaintenance(make_files(), TOPIC, RetentionRules()) for _ in range(2))
    turns: list[object] = []

    def check_cancelled() -> None:
        turns.append(second.run(now[0]) if not turns else None)

    assert first.run(now[0], check_cancelled) is not None
    assert turns
    assert not any(turns)


def test_a_pass_can_be_stopped_between_its_steps_and_goes_on(files, append, grow, now) -> None:
    grow(3)
    append(2, 6)
    maintenance = LogMaintenance(files, TOPIC, RetentionRules(seconds=60), fan_in=2)
    now[0] += 600
    for steps in range(40):
        left = iter(range(steps))

        def check_cancelled(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Stop

        with suppress(Stop):
            maintenance.run(now[0], check_cancelled)
        assert verify_topic(files, TOPIC).problems == []
    assert offsets(files) in ([6, 7], [])
