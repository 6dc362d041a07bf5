"""The source's planning compares the catalog with the directories. It needs no session."""

import json
import logging

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import BinaryType, StructField, StructType

from efo.errors import ConfigurationError
from efo_service.log.segments import list_segments
from efo_service.relay.errors import LogIncompleteError, LogOwnerError, SegmentMissingError
from efo_service.spark.source import api
from efo_service.spark.source.api import check_version
from efo_service.spark.source.data_source import EfoDataSource, LogStreamReader
from efo_service.spark.source.log_reader import FilteringLogReader, LogReader
from efo_service.spark.source.options import COLUMNS, parse_options


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


START = 1_700_000_000
"""Seconds since the epoch at which the records of `grow` begin, a millisecond apart."""
MILLIS = START * 1000


def options_of(log, **options):
    return parse_options({"path": str(log.root), "subscribe": log.topic, **options})


def read_by(log, **options):
    """Return the ranges of a batch query: partition, start, end."""
    tasks = LogReader(options_of(log, **options)).partitions()
    return [(one.partition, one.start, one.end) for task in tasks for one in task.ranges]


def test_a_batch_starts_and_ends_at_times(log) -> None:
    log.grow(0, 10)
    log.grow(0, 10, at=START + 10)
    log.grow(1, 5, at=START + 10.002)
    assert read_by(log, startingTimestamp=str(MILLIS + 4)) == [(0, 4, 20), (1, 0, 5)]
    assert read_by(log, startingTimestamp=str(MILLIS + 10_003), endingTimestamp=str(MILLIS + 10_006)) == [
        (0, 13, 16),
        (1, 1, 4),
    ]
    assert read_by(log, endingTimestamp=str(MILLIS + 99_999)) == [(0, 0, 20), (1, 0, 5)]  # none later: the latest
    times = json.dumps({log.topic: {"0": MILLIS + 4}})
    assert read_by(log, startingOffsetsByTimestamp=times) == [(0, 4, 20), (1, 0, 5)]
    assert read_by(log, endingOffsetsByTimestamp=times) == [(0, 0, 4), (1, 0, 5)]


def test_the_first_record_at_a_time_counts_also_where_times_are_not_ascending(log) -> None:
    log.put(0, [b"late"], at=START + 9)
    log.grow(0, 5)
    assert read_by(log, startingTimestamp=str(MILLIS + 3)) == [(0, 0, 6)]
    assert read_by(log, startingTimestamp=str(MILLIS + 9_000)) == [(0, 0, 6)]


def test_a_start_after_the_last_record_is_an_error_unless_the_strategy_is_latest(log) -> None:
    log.grow(0, 10)
    late = {"startingTimestamp": str(MILLIS + 10)}
    with pytest.raises(ConfigurationError, match=f"partition 0 of {log.topic} has no record at or after {MILLIS + 10}"):
        read_by(log, **late)
    assert read_by(log, **late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(ConfigurationError, match="the log has no partition 7"):
        read_by(log, startingOffsetsByTimestamp=json.dumps({log.topic: {"7": MILLIS}}))
    stream = LogStreamReader(options_of(log, **late, startingOffsetsByTimestampStrategy="latest"))
    assert stream.initialOffset() == {log.topic: {"0": 10}}


def test_a_time_is_not_looked_up_in_a_segment_of_another_shard(log) -> None:
    log.grow(0, 10)
    log.grow(1, 10)
    ((first,), (second,)) = (list_segments(log.root / log.topic / number) for number in "01")
    second.path.write_bytes(first.path.read_bytes())
    with pytest.raises(LogOwnerError):
        read_by(log, startingTimestamp=str(MILLIS))


def test_a_time_in_an_emptied_partition_is_not_its_end(log) -> None:
    log.grow(0, 10)
    log.grow(1, 10)
    empty_partition(log)
    with pytest.raises(LogIncompleteError, match="has no segment"):
        read_by(log, startingTimestamp=str(MILLIS), startingOffsetsByTimestampStrategy="latest")


def test_a_batch_that_starts_beyond_its_end_is_refused(log) -> None:
    log.grow(0, 10)
    start, end = (json.dumps({log.topic: {"0": offset}}) for offset in (7, 6))
    with pytest.raises(ConfigurationError, match=r"partition 0 of .* starts at offset 7, beyond its end 6"):
        read_by(log, startingOffsets=start, endingOffsets=end)
    with pytest.raises(ConfigurationError, match="starts at offset 11, beyond its end 10"):
        read_by(log, startingOffsets=json.dumps({log.topic: {"0": 11}}))
    assert read_by(log, startingOffsets=start, endingOffsets=start) == []


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, [[(0, 0, 10), (1, 0, 10)]]),
        ({"minPartitions": "4"}, [[(0, 0, 5)], [(0, 5, 10)], [(1, 0, 5)], [(1, 5, 10)]]),
        ({"maxRecordsPerPartition": "8"}, [[(0, 0, 8)], [(0, 8, 10), (1, 0, 6)], [(1, 6, 10)]]),
    ],
)
def test_a_query_chooses_its_tasks(log, options, tasks) -> None:
    log.grow(0, 10)
    log.grow(1, 10)
    planned = LogReader(options_of(log, **options)).partitions()
    assert [[(one.partition, one.start, one.end) for one in task.ranges] for task in planned] == tasks


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("partition",), 1)], [(1, 0, 10)]),
        ([In(("partition",), (0, 7))], [(0, 0, 10)]),
        ([In(("partition",), (7, None))], []),
        ([In(("offset",), (None,))], [(0, 0, 10), (1, 0, 10)]),
        ([GreaterThanOrEqual(("offset",), 4), LessThan(("offset",), 6)], [(0, 4, 7), (1, 4, 7)]),
        ([GreaterThan(("offset",), 9)], [(0, 9, 10), (1, 9, 10)]),
        ([LessThanOrEqual(("offset",), -1)], []),
        ([EqualNullSafe(("topic",), "orders"), GreaterThan(("partition",), 0)], [(0, 0, 10), (1, 0, 10)]),
        ([EqualTo(("topic",), "other")], []),
        ([EqualTo(("key",), b"x"), IsNotNull(("offset",))], [(0, 0, 10), (1, 0, 10)]),
    ],
)
def test_filters_leave_out_what_they_cannot_select_and_spark_evaluates_them_too(log, filters, expected) -> None:
    log.grow(0, 10)
    log.grow(1, 10)
    reader = FilteringLogReader(options_of(log, pushDownFilters="true"))
    assert list(reader.pushFilters(filters)) == filters
    assert [(one.partition, one.start, one.end) for task in reader.partitions() for one in task.ranges] == expected


class Stream:
    """A stream reader with a manual clock."""

    def __init__(self, log, **options) -> None:
        self.now = 1000.0
        self.reader = LogStreamReader(options_of(log, startingOffsets="earliest", **options), lambda: self.now)
        self.limit = self.reader.getDefaultReadLimit()
        self.at = self.reader.initialOffset()

    def next(self) -> int | None:
        """Return the end of the next micro-batch in partition 0; None if there is none."""
        before, self.at = self.at, self.reader.latestOffset(self.at, self.limit)
        return None if self.at == before else next(iter(self.at.values()))["0"]


def test_few_records_wait_for_more_until_the_delay_is_over(log) -> None:
    log.grow(0, 3)
    stream = Stream(log, minOffsetsPerTrigger="5", maxTriggerDelay="30s")
    assert stream.next() == 3  # the first batch waits for nothing
    log.grow(0, 4)
    assert stream.next() is None
    stream.now += 29.9
    assert stream.next() is None
    stream.now += 0.1
    assert stream.next() == 7
    log.grow(0, 5)
    assert stream.next() == 12


def test_both_limits_of_a_micro_batch_hold(log) -> None:
    log.grow(0, 3)
    stream = Stream(log, minOffsetsPerTrigger="2", maxOffsetsPerTrigger="2")
    assert [stream.next(), stream.next()] == [2, None]
    log.grow(0, 4)
    assert [stream.next(), stream.next(), stream.next()] == [4, 6, None]


def test_a_run_of_what_is_there_now_waits_for_nothing(log) -> None:
    log.grow(0, 3)
    stream = Stream(log, minOffsetsPerTrigger="5")
    assert stream.next() == 3
    log.grow(0, 1)
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.next() == 4


# --- Spark 4.0 and 4.1 ------------------------------------------------------------------------------------------


def test_a_spark_without_limits_asks_for_the_end_first_and_gets_a_start_that_is_not_after_it(log) -> None:
    log.grow(0, 3)
    reader = LogStreamReader(options_of(log))  # from the latest record
    end = reader.latestOffset()
    log.grow(0, 4)
    assert (end, reader.initialOffset()) == ({"orders": {"0": 3}}, {"orders": {"0": 3}})
    assert reader.latestOffset() == {"orders": {"0": 7}}
    (task,) = reader.partitions(end, reader.latestOffset())
    assert [(one.start, one.end) for one in task.ranges] == [(3, 7)]


def test_a_first_batch_that_is_planned_again_after_a_restart_is_empty_and_no_loss(log) -> None:
    """The start is the latest offset of then, and the end is what Spark has stored."""
    log.grow(0, 3)
    end = LogStreamReader(options_of(log)).latestOffset()
    log.grow(0, 4)
    again = LogStreamReader(options_of(log))
    assert list(again.partitions(again.initialOffset(), end)) == []


def test_a_log_that_was_replaced_is_an_error_where_only_the_planning_knows_the_start(log) -> None:
    log.grow(0, 3)
    reader = LogStreamReader(options_of(log))
    with pytest.raises(SegmentMissingError, match="ends at offset 3, but this query has read to 9"):
        reader.partitions({"orders": {"0": 9}}, reader.latestOffset())
    lenient = LogStreamReader(options_of(log, failOnDataLoss="false"))
    assert list(lenient.partitions({"orders": {"0": 9}}, lenient.latestOffset())) == []


@pytest.mark.parametrize(
    ("option", "value", "version", "needed"),
    [
        ("maxOffsetsPerTrigger", "5", "4.1.4", "4.2"),
        ("minOffsetsPerTrigger", "5", "4.0.0", "4.2"),
        ("maxTriggerDelay", "5s", "4.1.0.dev1", "4.2"),
        ("pushDownFilters", "true", "4.0.5", "4.1"),
    ],
)
def test_an_option_that_this_spark_cannot_do_is_refused_by_its_name(option, value, version, needed) -> None:
    with pytest.raises(
        ConfigurationError, match=f"{option} needs Spark {needed} or newer, but this is Spark {version}"
    ):
        check_version(frozenset({option, "subscribe"}), version)
    check_version(frozenset({"subscribe", "startingOffsets"}), version)
    check_version(frozenset({option}), "4.10.0")


def test_the_readers_ask_for_the_version(log, monkeypatch) -> None:
    monkeypatch.setattr(api.check_version, "__defaults__", ("4.0.5",))
    log.grow(0, 3)
    where = {"path": str(log.root), "subscribe": log.topic}
    schema = StructType([StructField(name, BinaryType()) for name in COLUMNS if name != "headers"])
    with pytest.raises(ConfigurationError, match=r"pushDownFilters needs Spark 4\.1"):
        EfoDataSource({**where, "pushDownFilters": "true"}).reader(schema)
    with pytest.raises(ConfigurationError, match=r"maxOffsetsPerTrigger needs Spark 4\.2"):
        EfoDataSource({**where, "maxOffsetsPerTrigger": "3"}).streamReader(schema).latestOffset()
