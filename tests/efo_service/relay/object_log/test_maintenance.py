"""Maintenance and readers of a log on an object store that is damaged, or that others change meanwhile."""

from __future__ import annotations

import pytest

from efo_service.relay.errors import LogIncompleteError
from efo_service.relay.log.retention import RetentionRules
from efo_service.relay.object_log import keys
from efo_service.relay.object_log.consistency import check_topic
from efo_service.relay.object_log.maintenance import Maintenance
from tests.efo_service.relay.object_log.logs import STREAM, TOPIC, Log

HEAD = keys.head(TOPIC, 0)


def segments(log: Log) -> list[str]:
    return sorted(key for key in log.memory.objects if "/segments/" in key)


def maintain(log: Log, **rules: float) -> None:
    log.memory.objects.pop(keys.maintenance(TOPIC), None)  # it is its turn
    Maintenance(log.memory, TOPIC, RetentionRules(**rules), fold_commits=1).run()


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
        lambda: check_topic(log.memory, TOPIC, STREAM),
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
