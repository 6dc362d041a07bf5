"""The log as its readers see it, while it is written and maintained; inspection, verification, export, adoption."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from efo.model import Checkpoint
from efo_service.log.catalog import read_catalog
from efo_service.log.consistency import adopt_into, check_topic, plan_adoption
from efo_service.log.export import export
from efo_service.log.files import LogFiles
from efo_service.log.inspection import inspect_topic, verify_topic
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.objects import keys
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.objects.turns import SILENT_PASSES
from efo_service.log.reader_offsets import commit_reader
from efo_service.log.reading import first_offset
from efo_service.log.retention import RetentionRules
from efo_service.log.topic import read_topic
from efo_service.object_store.memory import MemoryStore
from efo_service.object_store.probe import probe
from efo_service.object_store.url import parse_url
from efo_service.relay.errors import LogIncompleteError, SegmentMissingError, StoreUnfitError, TopicNotFoundError
from efo_service.spark.source.offsets import Range
from efo_service.spark.source.options import parse_options
from efo_service.spark.source.planner import LogRanges, Planner, read_range
from tests.efo_service.log.objects.logs import SHARD, STREAM, TOPIC, Log, make_records


@pytest.fixture
def files(log) -> LogFiles:
    return ObjectFiles(log.client(), parse_url("s3://logs/efo"))


@pytest.fixture
def planner(files) -> Planner:
    return Planner(replace(parse_options({"path": "s3://logs/efo", "subscribe": TOPIC}), log=files))


def requests_of(files: LogFiles, call) -> list[tuple[str, str]]:
    made = []
    files._store.on_step = lambda step: None if step.is_done else made.append((step.operation, step.key))
    call()
    files._store.on_step = lambda _: None
    return made


def test_a_planner_sees_each_commit_and_its_tasks_read_it(log, planner) -> None:
    writer = log.writer()
    for number in range(1, 70):
        log.append(writer, 2)
        if number % 20 == 0:
            log.fold()
        assert list(planner.latest().values()) == [2 * number]
    [task] = planner.tasks([Range(TOPIC, 0, 3, 137)])
    values = [value for batch in planner.batches(task) for value in batch.column("value").to_pylist()]
    assert values == [b"value-%d" % number for number in range(3, 137)]
    assert isinstance(task, LogRanges)


def test_looking_for_the_end_again_costs_two_small_requests_however_long_the_log_is(log, planner, files) -> None:
    writer = log.writer()
    counts = []
    for _ in range(3):
        for _ in range(100):
            log.append(writer, 1)
        log.fold()
        planner.latest()
        counts.append(requests_of(files, planner.latest))
    commit = [key for operation, key in counts[0] if operation == "head"]
    assert [[operation for operation, _ in made] for made in counts] == [["get", "head"]] * 3
    assert commit == [keys.commit(TOPIC, 0, 101)]


def test_the_first_search_for_the_end_lists_no_commits(log, files, planner) -> None:
    writer = log.writer()
    for _ in range(200):
        log.append(writer, 1)
    made = requests_of(files, planner.latest)
    assert not any(operation == "keys" for operation, _ in made)
    assert len(made) < 25


def test_missing_records_are_never_passed_over(log, files) -> None:
    writer = log.writer()
    log.append(writer, 3)
    log.fold()
    log.append(writer, 2)
    log.expire()
    with pytest.raises(SegmentMissingError, match="offsets 0 to 2 are missing"):
        list(read_range(files, Range(TOPIC, 0, 0, 5), allow_gaps=False))
    rows = sum(batch.num_rows for batch in read_range(files, Range(TOPIC, 0, 0, 5), allow_gaps=True))
    assert rows == 2


def offsets(files: LogFiles, start: int, end: int) -> list[int]:
    found = read_range(files, Range(TOPIC, 0, start, end), allow_gaps=True)
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_segments_that_were_deleted_are_passed_over_only_if_that_is_asked_for(log, files, lost) -> None:
    prepared(log)
    log.append(log.writer(), 1)
    kept = list(range(11))
    for segment in log.partition().read_head().head.segments[:lost]:
        del log.memory.objects[segment.key]
        kept = [at for at in kept if not segment.base <= at < segment.end]
    assert offsets(files, 0, 11) == kept
    if lost:
        with pytest.raises(SegmentMissingError, match="names it: restore it"):
            list(read_range(files, Range(TOPIC, 0, 0, 11), allow_gaps=False))


@pytest.mark.parametrize("start", [0, 1, 5, 6])
def test_a_live_commit_that_was_deleted_is_passed_over_only_if_that_is_asked_for(log, files, start) -> None:
    writer = log.writer()
    for _ in range(7):
        log.append(writer, 1)
    del log.memory.objects[log.commits()[5]]  # the offset 4; no probe for the end meets it
    assert offsets(files, start, 7) == [at for at in range(start, 7) if at != 4]
    if start < 4:
        with pytest.raises(SegmentMissingError, match="something else than efo deleted it"):
            list(read_range(files, Range(TOPIC, 0, start, 7), allow_gaps=False))


def test_the_first_offset_at_a_time(log, files) -> None:
    writer = log.writer()
    for _ in range(3):
        log.append(writer, 2)
    log.fold()
    log.append(writer, 2)
    partition = read_topic(files, TOPIC).partition(0)
    found = [first_offset(partition, 1_700_000_000_000 + at) for at in (-5, 0, 3, 7, 8)]
    assert found == [0, 0, 3, 7, None]


def test_inspection_and_export(log, files) -> None:
    writer = log.writer()
    log.append(writer, 3)
    log.fold()
    log.append(writer, 2)
    commit_reader(files, TOPIC, "billing", {0: 1}, 10.0)
    state = inspect_topic(files, TOPIC)
    [partition] = state.partitions
    assert (partition.start, partition.end, partition.segments, partition.epoch) == (0, 5, 2, 1)
    assert partition.position == make_records(5)[-1].sequence_number
    assert [(reader.name, reader.lag) for reader in state.readers] == [("billing", 4)]
    lines = [json.loads(line) for line in export(files, TOPIC, encoding="utf-8")]
    assert [(line["offset"], line["value"]) for line in lines] == [(at, f"value-{at}") for at in range(5)]
    with pytest.raises(TopicNotFoundError, match="it has: orders"):
        read_catalog(files, "others")


def verified(files: LogFiles) -> tuple[int, list[str]]:
    found = verify_topic(files, TOPIC, lambda _: None)
    return found.records, found.problems


def prepared(log: Log) -> None:
    writer = log.writer()
    for _ in range(2):
        log.append(writer, 3)
        log.fold()
    log.append(writer, 4)


def test_a_whole_log_verifies(log, files) -> None:
    prepared(log)
    assert verified(files) == (10, [])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda objects: _flip(objects, "/segments/"), "is damaged: its records do not have the checksum"),
        (lambda objects: _flip(objects, "/commits/00000000000000000003"), "is damaged: its records do not have"),
        (lambda objects: objects.pop(_key(objects, "/segments/")), "are listed but do not exist: restore them"),
        (lambda objects: objects.pop(_key(objects, "/commits/")), "something else than efo deleted tombstones"),
        (lambda objects: objects.pop(_key(objects, "catalog")), "catalog.json does not exist, but the topic has"),
        (lambda objects: objects.pop(_key(objects, "head.json")), "head.json does not exist, but its partition has"),
        (lambda objects: objects.update({f"{TOPIC}/7/head.json": next(iter(objects.values()))}), "does not name this"),
    ],
)
def test_damage_is_found(log, files, damage, message) -> None:
    prepared(log)
    damage(log.memory.objects)
    _, problems = verified(files)
    assert any(message in problem for problem in problems), problems


def _key(objects, part: str) -> str:
    return min(key for key in objects if part in key)


def _flip(objects, part: str) -> None:
    one = objects[_key(objects, part)]
    one.content = one.content[:-20] + bytes([one.content[-20] ^ 1]) + one.content[-19:]


def test_an_emptied_partition_is_replaced_by_an_adoption(log, files) -> None:
    prepared(log)
    for key in [key for key in log.memory.objects if f"{TOPIC}/0/" in key]:
        del log.memory.objects[key]
    with pytest.raises(LogIncompleteError, match="records were committed to it"):
        check_topic(files, TOPIC)
    planned = plan_adoption(files, TOPIC, [])
    assert [(one.shard_id, one.after, one.replaces) for one in planned] == [(SHARD, Checkpoint.TRIM_HORIZON, 0)]
    assert adopt_into(files, TOPIC, STREAM, planned) == {SHARD: 1}
    check_topic(files, TOPIC)
    assert log.writer().position is None


# --- maintenance -----------------------------------------------------------------------------------------------


def test_maintenance_folds_merges_and_expires_by_the_stores_clock(make_log) -> None:
    now = [1_700_000_000.0]
    log = make_log(MemoryStore(lambda: now[0]))
    maintenance = LogMaintenance(ObjectFiles(log.memory, fold_commits=4), TOPIC, RetentionRules(seconds=7200))
    assert maintenance.run(0.0) is None
    writer = log.writer()
    for _ in range(40):
        for _ in range(4):
            log.append(writer, 1)
        now[0] += 60
        report = maintenance.run(0.0)
    assert report is not None
    assert len(log.partition().read_head().head.segments) < 33
    log.check(160)
    now[0] += 7200
    assert maintenance.run(0.0).expired
    start, end = log.partition().bounds()
    assert start == end == 160
    log.append(writer, 1)
    log.check(161)


def test_one_process_maintains_and_another_takes_over_if_it_stops(log) -> None:
    log.append(log.writer(), 1)
    first, second = (LogMaintenance(ObjectFiles(log.client()), TOPIC, RetentionRules()) for _ in range(2))
    for _ in range(5):
        assert first.run(0.0) is not None
        assert second.run(0.0) is None
    ran = [second.run(0.0) is not None for _ in range(SILENT_PASSES)]
    assert ran == [False] * (SILENT_PASSES - 1) + [True]
    assert second.run(0.0) is not None
    assert first.run(0.0) is None


# --- the probe -------------------------------------------------------------------------------------------------


class Careless(MemoryStore):
    """A store that ignores conditions on one kind of write."""

    ignored = ""

    def create(self, key, content):
        if self.ignored == "create":
            self.objects.pop(key, None)
        return super().create(key, content)

    def replace(self, key, content, version):
        if self.ignored == "replace" and key in self.objects:
            version = self._version(self.objects[key])
        return super().replace(key, content, version)


@pytest.mark.parametrize(("ignored", "message"), [("create", "If-None-Match"), ("replace", "If-Match has no effect")])
def test_a_store_that_ignores_conditions_is_refused(ignored, message) -> None:
    store = Careless()
    store.ignored = ignored
    with pytest.raises(StoreUnfitError, match=message):
        probe(store, keys.PROBES, has_generations=False)
    assert not store.objects
