"""The source's planning compares the catalog with the directories. It needs no session."""

import json
import logging

import pytest

from efo_service.relay.errors import LogIncompleteError
from efo_service.relay.log.segments import list_segments
from efo_service.spark.source.data_source import LogReader, LogStreamReader
from efo_service.spark.source.options import parse_options


@pytest.fixture
def options(log):
    """Return the options of a log of two partitions of ten records. `fail`: failOnDataLoss."""
    log.grow(0, 10)
    log.grow(1, 10)
    return lambda fail="true": parse_options({"path": str(log.root), "subscribe": log.topic, "failOnDataLoss": fail})


def lose_partition(log) -> None:
    path = log.root / log.topic / "catalog.json"
    catalog = json.loads(path.read_text())
    del catalog["partitions"]["shardId-000000000001"]
    path.write_text(json.dumps(catalog))


def empty_partition(log) -> None:
    for segment in list_segments(log.root / log.topic / "1"):
        segment.path.unlink()


@pytest.mark.parametrize(
    ("lose", "message"), [(lose_partition, "does not name this partition"), (empty_partition, "has no segment")]
)
def test_a_lost_partition_is_an_error_or_a_warning(log, options, lose, message, caplog) -> None:
    lose(log)
    with pytest.raises(LogIncompleteError, match=message):
        LogReader(options()).partitions()
    with pytest.raises(LogIncompleteError, match=message):
        LogStreamReader(options()).reportLatestOffset()
    with caplog.at_level(logging.WARNING):
        (task,) = LogReader(options("false")).partitions()
    assert [(one.partition, one.end) for one in task.ranges] == [(0, 10)]
    assert message in caplog.text


def test_a_pattern_does_not_pass_over_a_topic_without_a_catalog(log, options, caplog) -> None:
    (log.root / log.topic / "catalog.json").rename(log.root / "kept")
    by_pattern = {"path": str(log.root), "subscribePattern": "ord.*"}
    with pytest.raises(LogIncompleteError, match="has partitions, but no catalog"):
        LogReader(parse_options(by_pattern)).partitions()
    assert list(LogReader(parse_options({**by_pattern, "failOnDataLoss": "false"})).partitions()) == []
    assert list(LogReader(parse_options({**by_pattern, "subscribePattern": "other"})).partitions()) == []


def test_an_intact_log_is_planned_without_a_warning(options, caplog) -> None:
    (task,) = LogReader(options()).partitions()
    assert [(one.partition, one.end) for one in task.ranges] == [(0, 10), (1, 10)]
    assert caplog.text == ""
