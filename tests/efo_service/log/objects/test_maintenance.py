"""Maintenance and readers of a log on an object store that is damaged, or that others change meanwhile."""

from __future__ import annotations

from itertools import pairwise

import pytest

from efo_service.log.consistency import check_topic
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.objects import compaction, keys
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.retention import RetentionRules
from efo_service.object_store.memory import MemoryStore, StoreStep
from efo_service.relay.errors import LogIncompleteError, SegmentCorruptError
from tests.efo_service.log.objects.logs import STREAM, TOPIC, Log

HEAD = keys.head(TOPIC, 0)


def segments(log: Log) -> list[str]:
    return sorted(key for key in log.memory.objects if "/segments/" in key)


def maintain(log: Log, **rules: float) -> None:
    log.memory.objects.pop(keys.maintenance(TOPIC), None)  # it is its turn
    LogMaintenance(ObjectFiles(log.memory, fold_commits=1), TOPIC, RetentionRules(**rules)).run(0.0)


def put_back(log: Log, content: bytes) -> None:
    """Restore a version of the head, as another object: with a version of its own."""
    log.memory.objects[HEAD] = type(log.memory.objects[HEAD])(content, 10_000 + log.memory.requests, log.memory.clock())


@pytest.mark.parametrize("live", [0, 2])
def test_an_old_copy_of_a_head_is_refused_by_all_and_costs_nothing(log, live) -> None:
    """Commits that were made after the tombstones do not hide that the head is an old one."""
    writer = log.writer()
    log.append(writer, 3)
    log.fold()
    old = log.memory.objects[HEAD].content
    log.append(writer, 5)
    log.fold()
    if live:
        log.append(writer, live)
    newest, before = log.memory.objects[HEAD].content, segments(log)
    put_back(log, old)
    for call in (
        lambda: maintain(log),
        lambda: maintain(log, seconds=0.0),
        lambda: log.compactor().remove_orphans(),
        lambda: check_topic(ObjectFiles(log.memory), TOPIC, STREAM),
        log.writer,
        log.partition().bounds,
    ):
        with pytest.raises(LogIncompleteError, match="it is an old copy"):
            call()
    assert segments(log) == before
    put_back(log, newest)
    log.check(8 + live)


def test_a_head_of_before_a_merge_does_not_make_its_segment_an_orphan(log) -> None:
    writer = log.writer()
    for _ in range(2):
        log.append(writer, 3)
        log.fold()
    old = log.memory.objects[HEAD].content
    log.merge()
    newest = log.memory.objects[HEAD].content
    put_back(log, old)
    with pytest.raises(LogIncompleteError, match="which does not exist: either it is an old copy"):
        maintain(log)
    put_back(log, newest)
    log.check(6)


class Stop(BaseException):
    """A cancellation, as trio raises it."""


def damage(log: Log, key: str) -> None:
    one = log.memory.objects[key]
    one.content = one.content[:-3] + b"xxx"


def test_a_fold_that_fails_leaves_no_segments(log, monkeypatch) -> None:
    monkeypatch.setattr(compaction, "SEGMENT_BYTES", 1)
    writer = log.writer()
    for _ in range(5):
        log.append(writer, 3)
    damage(log, log.commits()[-1])
    for _ in range(3):
        with pytest.raises(SegmentCorruptError):
            maintain(log)
        assert segments(log) == []
    # A store that is away cannot delete them either: the failure is reported, and the next process cleans up.
    store = log.client()
    store.fault = lambda operation, _key: "refused" if operation == "delete" else None
    with pytest.raises(SegmentCorruptError):
        log.fold(store)


def test_what_cannot_be_merged_still_expires() -> None:
    now = [1_700_000_000.0]
    log = Log(MemoryStore(lambda: now[0]))
    writer = log.writer()
    for _ in range(40):
        log.append(writer, 1)
        log.fold()
    damage(log, segments(log)[5])
    now[0] += 7200
    with pytest.raises(SegmentCorruptError):
        maintain(log, seconds=3600.0)
    assert len(segments(log)) <= 1
    assert log.check() == 40


def test_a_pass_can_be_stopped_at_each_commit_and_goes_on(log, monkeypatch) -> None:
    """It is stopped at each of its chances. Between two of them are few requests, however many commits there are."""
    monkeypatch.setattr(compaction, "SEGMENT_BYTES", 2000)
    writer = log.writer()
    for _ in range(25):
        log.append(writer, 1)
    store, marks = log.client(), [0]
    stop_after = 0

    def check_cancelled() -> None:
        marks.append(store.requests)
        if len(marks) > stop_after + 1:
            raise Stop

    while True:
        stop_after, marks[:] = stop_after + 1, [store.requests]
        log.memory.objects.pop(keys.maintenance(TOPIC), None)
        try:
            LogMaintenance(ObjectFiles(store, fold_commits=1), TOPIC, RetentionRules()).run(0.0, check_cancelled)
        except Stop:
            assert max(after - before for before, after in pairwise(marks)) < 20
            log.check(25)
        else:
            break
    assert stop_after > 25
    assert all(log.partition().header(number).kind == "tombstone" for number in range(26))
    read = log.partition().read_head()
    assert read is not None
    assert segments(log) == sorted(segment.key for segment in read.head.segments)


def test_a_fold_takes_a_limited_number_of_commits_and_a_pass_all(log, monkeypatch) -> None:
    monkeypatch.setattr(compaction, "MAX_FOLD", 10)
    writer = log.writer()
    for _ in range(34):
        log.append(writer, 1)
    heads = []
    log.memory.on_step = lambda step: (
        heads.append(step) if step == StoreStep(step.number, "replace", HEAD, is_done=False) else None
    )
    maintain(log)
    assert len(heads) >= 4
    assert log.commits()[-1].endswith("34")
    assert log.partition().live_end()[1] is None
    log.check(34)
