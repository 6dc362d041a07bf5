# ruff: noqa: N802 - the names are those of the Python Data Source API
"""The PySpark data source for the embedded log: format("efo"), with the options and schema of Spark's Kafka source.

    spark.readStream.format("efo").option("subscribe", "orders").load("/var/lib/efo/log")

The source plans in one long-lived process per query and reads in executors. It keeps no state: Spark stores the
offsets, and a query resumes exactly at its checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from efo.errors import ConfigurationError
from efo_service.relay.errors import SegmentMissingError, SinkError
from efo_service.relay.log.catalog import Catalog, read_catalog, topics, uncatalogued_topics
from efo_service.relay.log.consistency import emptied_message, read_checked_catalog, refuse
from efo_service.relay.log.reader_offsets import commit_reader, read_readers
from efo_service.relay.log.segments import SCHEMA, last_segment, list_segments
from efo_service.spark.source.offsets import (
    Offsets,
    Range,
    TopicPartition,
    from_json,
    limit_rows,
    ranges,
    split_ranges,
    to_json,
)
from efo_service.spark.source.options import EARLIEST, LATEST, OffsetBound, Options, parse_options
from efo_service.spark.source.reading import partition_directory, read_range

KAFKA_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS_SCHEMA: Final = "headers array<struct<key: string, value: binary>>"
MIN_TASK_ROWS: Final = 8_192
"""Fewer rows are not worth a separate task."""

logger = logging.getLogger(__name__)


class EfoDataSource(DataSource):
    """`format("efo")`. Its options: see efo_service.spark.source.options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = parse_options(options)
        for topic in self._options.subscription.topics:
            read_catalog(self._options.root, topic)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "efo"

    def schema(self) -> str:
        """Return the schema of Spark's Kafka source, as DDL."""
        return f"{KAFKA_SCHEMA}, {HEADERS_SCHEMA}" if self._options.headers else KAFKA_SCHEMA

    def reader(self, schema: StructType) -> LogReader:
        """Return a batch reader."""
        self._check_schema(schema)
        if self._options.max_rows is not None:
            raise ConfigurationError(
                "maxOffsetsPerTrigger is for readStream: use endingOffsets to read a part of the log"
            )
        return LogReader(self._options)

    def streamReader(self, schema: StructType) -> LogStreamReader:
        """Return a stream reader."""
        self._check_schema(schema)
        if self._options.ending is not None:
            raise ConfigurationError("endingOffsets is for read, not for readStream: remove it")
        return LogStreamReader(self._options)

    def _check_schema(self, schema: StructType) -> None:
        columns = SCHEMA.names if self._options.headers else SCHEMA.names[:-1]
        if schema.names != columns:
            raise ConfigurationError(f'format("efo") has the columns {", ".join(columns)}: remove .schema()')


@dataclass(frozen=True)
class LogRanges(InputPartition):
    """The ranges that one task reads."""

    ranges: tuple[Range, ...]


class _Planner:
    """The common part of the batch reader and the stream reader. Spark pickles it for the executors."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def catalogs(self) -> dict[str, Catalog]:
        """Return the catalogs of the subscribed topics, after a comparison with their directories.

        A partition that is not in its catalog raises LogIncompleteError; without fail_on_data_loss it is a warning.
        """
        root, subscription = self.options.root, self.options.subscription
        result: dict[str, Catalog] = {}
        for topic in subscription.select(topics(root)):
            result[topic], problems = read_checked_catalog(root, topic)
            self._refuse(problems)
        if subscription.pattern is not None:
            lost = subscription.select(uncatalogued_topics(root))
            self._refuse([f"{root / topic} has partitions, but no catalog: see `efo log verify`" for topic in lost])
        return result

    def _refuse(self, problems: list[str]) -> None:
        if self.options.fail_on_data_loss:
            refuse(problems)
        for problem in problems:
            logger.warning("%s", problem)

    def existing(self, catalogs: Mapping[str, Catalog]) -> list[TopicPartition]:
        """Return the subscribed partitions of these catalogs."""
        subscription = self.options.subscription
        partitions = [
            TopicPartition(topic, partition) for topic, catalog in catalogs.items() for partition in catalog.shards
        ]
        if missing := sorted(subscription.partitions.difference(partitions)):
            raise ConfigurationError(f"the log has no partition {missing[0].partition} of {missing[0].topic}")
        return [partition for partition in partitions if subscription.includes(partition)]

    def latest(self) -> dict[TopicPartition, int]:
        """Return the end of every partition."""
        catalogs = self.catalogs()
        return {partition: self._end(partition, catalogs) for partition in self.existing(catalogs)}

    def resolve(self, bound: OffsetBound, *, others: int) -> dict[TopicPartition, int]:
        """Return the offsets that a bound means. `others`: for partitions that the bound does not name."""
        catalogs = self.catalogs()
        existing = self.existing(catalogs)
        named: Mapping[TopicPartition, int] = {} if isinstance(bound, int) else bound
        if unknown := sorted(set(named) - set(existing)):
            raise ConfigurationError(f"the log has no partition {unknown[0].partition} of {unknown[0].topic}")
        default = bound if isinstance(bound, int) else others
        return {partition: self._offset(partition, named.get(partition, default), catalogs) for partition in existing}

    def _offset(self, partition: TopicPartition, offset: int, catalogs: Mapping[str, Catalog]) -> int:
        if offset == LATEST:
            return self._end(partition, catalogs)
        return self._start(partition) if offset == EARLIEST else offset

    def _end(self, partition: TopicPartition, catalogs: Mapping[str, Catalog]) -> int:
        directory = partition_directory(self.options.root, *partition)
        last = last_segment(directory)
        if last is None and partition.partition in catalogs[partition.topic].written:
            self._refuse([emptied_message(directory)])
        return last.end if last is not None else 0

    def _start(self, partition: TopicPartition) -> int:
        segments = list_segments(partition_directory(self.options.root, *partition))
        return segments[0].base if segments else 0

    def tasks(self, start: Offsets, end: Offsets) -> list[LogRanges]:
        """Split the records between two offsets into tasks."""
        tasks = split_ranges(ranges(start, end), self.options.tasks, min_records=MIN_TASK_ROWS)
        return [LogRanges(tuple(task)) for task in tasks]

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one task. For an empty read Spark passes a partition without ranges."""
        columns = SCHEMA.names if self.options.headers else SCHEMA.names[:-1]
        for task_range in getattr(partition, "ranges", ()):
            for batch in read_range(self.options.root, task_range, allow_gaps=not self.options.fail_on_data_loss):
                yield batch.select(columns)


class LogReader(DataSourceReader):
    """Reads the log once, from startingOffsets (default: earliest) to endingOffsets (default: latest)."""

    def __init__(self, options: Options) -> None:
        self._planner = _Planner(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks."""
        options = self._planner.options
        starting = EARLIEST if options.starting is None else options.starting
        ending = LATEST if options.ending is None else options.ending
        start = self._planner.resolve(starting, others=EARLIEST)
        return self._planner.tasks(start, self._planner.resolve(ending, others=LATEST))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one task."""
        return self._planner.batches(partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as it grows. A query without a checkpoint starts at startingOffsets (default: latest)."""

    def __init__(self, options: Options) -> None:
        self._planner = _Planner(options)
        self._available_now_end: dict[TopicPartition, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which a query without a checkpoint starts."""
        starting = self._planner.options.starting
        offsets = to_json(self._planner.resolve(LATEST if starting is None else starting, others=EARLIEST))
        # Otherwise retention could delete records that the first batch still has to read. Spark calls this again when
        # a query restarts within its first batch, which keeps its first start: so committed offsets never advance here.
        self._commit(self._not_beyond_committed(offsets))
        return offsets

    def _not_beyond_committed(self, offsets: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        options = self._planner.options
        result: dict[str, dict[str, int]] = {}
        for topic, partitions in offsets.items():
            committed = [
                reader.offsets for reader in read_readers(options.root, topic) if reader.name == options.reader
            ]
            result[topic] = {
                partition: min([offset, *(before.get(int(partition), 0) for before in committed)])
                for partition, offset in partitions.items()
            }
        return result

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch: maxOffsetsPerTrigger."""
        rows = self._planner.options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run: later records are for the next run."""
        self._available_now_end = self._planner.latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch."""
        begin = from_json(start)
        end = self._planner.latest() if self._available_now_end is None else self._available_now_end
        for tp, offset in begin.items():
            if end.get(tp, 0) < offset and self._planner.options.fail_on_data_loss:
                raise SegmentMissingError(
                    f"partition {tp.partition} of {tp.topic} ends at offset {end.get(tp, 0)}, but this query has read"
                    f" to {offset}: the log was replaced. Use a new checkpoint, or set failOnDataLoss=false to wait"
                )
        end = {tp: max(end.get(tp, 0), begin.get(tp, 0)) for tp in {**begin, **end}}
        return to_json(limit_rows(begin, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the log's end, for the query's progress."""
        return to_json(self._planner.latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of one micro-batch."""
        return self._planner.tasks(from_json(start), from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one task."""
        return self._planner.batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Save the reader offsets below which this query will not read again, if it has a reader name.

        Spark stores the query's own offsets. It calls this with a batch's end when it plans the next batch, and not for
        the last batch of an AvailableNow run. So the reader offsets are a lower bound, which is enough for retention.
        A failure is only logged: on a full disk, retention can free space only if this query continues.
        """
        try:
            self._commit(end)
        except SinkError as error:
            logger.warning("cannot save the reader offsets for the log's retention: %s", error)

    def _commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        options = self._planner.options
        if options.reader is not None:
            for topic in sorted(self._planner.catalogs()):
                offsets = {int(partition): offset for partition, offset in end.get(topic, {}).items()}
                commit_reader(options.root, topic, options.reader, offsets, time.time())
