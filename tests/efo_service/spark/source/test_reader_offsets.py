"""When a query saves its reader offsets, and which. Without Spark."""

from __future__ import annotations

import logging

import pytest

from efo_service.log.disk import DiskFiles
from efo_service.log.reader_offsets import read_readers
from efo_service.relay.errors import SinkFullError
from efo_service.spark.source import data_source
from efo_service.spark.source.data_source import LogStreamReader
from efo_service.spark.source.options import parse_options


@pytest.fixture
def reader(log):
    log.grow(0, 10)
    log.grow(1, 5)
    options = {"path": str(log.root), "subscribe": log.topic, "reader": "billing"}

    def reader(**more: str) -> LogStreamReader:
        return LogStreamReader(parse_options({**options, **more}))

    return reader


def saved(log) -> dict[int, int]:
    (reader,) = read_readers(DiskFiles(log.root), log.topic)
    return dict(reader.offsets)


@pytest.mark.parametrize(("starting", "expected"), [("earliest", {}), ("latest", {0: 10, 1: 5})])
def test_the_first_start_saves_the_starting_offsets(log, reader, starting, expected) -> None:
    """Otherwise retention could delete records that the first batch, the longest of all, still has to read."""
    assert read_readers(DiskFiles(log.root), log.topic) == []
    reader(startingOffsets=starting).initialOffset()
    assert saved(log) == expected


def test_a_restart_within_the_first_batch_does_not_advance_the_saved_offsets(log, reader) -> None:
    """Spark asks for the initial offset again, and resumes the batch as it was planned."""
    reader(startingOffsets="latest").initialOffset()
    log.grow(0, 7)
    log.grow(2, 3)
    reader(startingOffsets="latest").initialOffset()
    assert saved(log) == {0: 10, 1: 5, 2: 0}


def test_a_full_disk_does_not_fail_the_query(log, reader, monkeypatch, caplog) -> None:
    """Retention waits for this query: if it failed, retention could never free space."""
    query = reader()

    def full(*_arguments) -> None:
        raise SinkFullError("no room")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(data_source, "commit_reader", full)
        query.commit({log.topic: {"0": 4}})
    assert "no room" in caplog.text
    query.commit({log.topic: {"0": 7}})
    assert saved(log) == {0: 7}
