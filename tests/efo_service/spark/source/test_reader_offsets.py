"""When a query tells the log how far it is, without Spark: before it reads anything, and as far as it can."""

from __future__ import annotations

import logging

import pytest

from efo_service.relay.errors import SinkFullError
from efo_service.relay.log.reader_offsets import read_readers
from efo_service.spark.source import data_source as source
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


def told(log) -> dict[int, int]:
    (reader,) = read_readers(log.root, log.topic)
    return dict(reader.offsets)


@pytest.mark.parametrize(("starting", "expected"), [("earliest", {}), ("latest", {0: 10, 1: 5})])
def test_its_first_start_tells_where_it_begins(log, reader, starting, expected) -> None:
    """Or retention could take what its first batch, the longest of all, is still to read."""
    assert read_readers(log.root, log.topic) == []
    reader(startingOffsets=starting).initialOffset()
    assert told(log) == expected


def test_a_second_start_within_the_first_batch_tells_nothing_further(log, reader) -> None:
    """Spark asks again where to begin, and goes on with the batch as it was planned."""
    reader(startingOffsets="latest").initialOffset()
    log.grow(0, 7)
    log.grow(2, 3)
    reader(startingOffsets="latest").initialOffset()
    assert told(log) == {0: 10, 1: 5, 2: 0}


def test_a_full_disk_does_not_end_it(log, reader, monkeypatch, caplog) -> None:
    """Retention waits for this very query: it would never make room."""
    query = reader()

    def full(*_arguments) -> None:
        raise SinkFullError("no room")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(source, "commit_reader", full)
        query.commit({log.topic: {"0": 4}})
    assert "no room" in caplog.text
    query.commit({log.topic: {"0": 7}})
    assert told(log) == {0: 7}
