# ruff: noqa: N802 - the names are those of the Python Data Source API
"""The PySpark data source over the embedded log: format("efo"), with the names and the schema of Kafka's.

    spark.readStream.format("efo").option("subscribe", "orders").load("/var/lib/efo/log")

The source plans in one long-lived process per query and reads in executors. Offsets are Spark's to keep: the
source has no state of its own, so a query goes on exactly where its checkpoint says.
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
from efo_service.relay.log.catalog import read_catalog, topics
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
from efo_service.spark.source.options import EARLIEST, LATEST, Edge, Options, parse_options
from efo_service.spark.source.reading import partition_directory, read_range

KAFKA_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS_SCHEMA: Final = "headers array<struct<key: string, value: binary>>"
LEAST_ROWS: Final = 8_192
"""The least rows that are worth a task of their own."""

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
        """Return what reads a batch."""
        self._check(schema)
        if self._options.max_rows is not None:
            raise ConfigurationError("maxOffsetsPerTrigger is for readStream; to read a part use endingOffsets")
        return LogReader(self._options)

    def streamReader(self, schema: StructType) -> LogStreamReader:
        """Return what reads a stream."""
        self._check(schema)
        if self._options.ending is not None:
            raise ConfigurationError("endingOffsets is for read, not for readStream")
        return LogStreamReader(self._options)

    def _check(self, schema: StructType) -> None:
        wanted = SCHEMA.names if self._options.headers else SCHEMA.names[:-1]
        if schema.names != wanted:
            raise ConfigurationError(f'format("efo") has the columns {", ".join(wanted)}: do not give .schema()')


@dataclass(frozen=True)
class LogRanges(InputPartition):
    """What one task reads."""

    ranges: tuple[Range, ...]


class _Planner:
    """What the readers of batches and of streams have in common. It is pickled to the executors."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def known(self) -> list[TopicPartition]:
        """Return the partitions that the topics have now."""
        subscription, root = self.options.subscription, self.options.root
        partitions = [
            TopicPartition(topic, partition)
            for topic in subscription.choose(topics(root))
            for partition in read_catalog(root, topic).partitions.values()
        ]
        if missing := sorted(subscription.partitions.difference(partitions)):
            raise ConfigurationError(f"the log has no partition {missing[0].partition} of {missing[0].topic}")
        return [at for at in partitions if subscription.has(at)]

    def latest(self) -> dict[TopicPartition, int]:
        """Return the end of every partition."""
        return {at: self._end(at) for at in self.known()}

    def resolve(self, edge: Edge, *, others: int) -> dict[TopicPartition, int]:
        """Return the offsets that an option means; `others` is for the partitions that it does not name."""
        known = self.known()
        named: Mapping[TopicPartition, int] = {} if isinstance(edge, int) else edge
        if strangers := sorted(set(named) - set(known)):
            raise ConfigurationError(f"the log has no partition {strangers[0].partition} of {strangers[0].topic}")
        default = edge if isinstance(edge, int) else others
        return {at: self._offset(at, named.get(at, default)) for at in known}

    def _offset(self, at: TopicPartition, meaning: int) -> int:
        if meaning == LATEST:
            return self._end(at)
        return self._start(at) if meaning == EARLIEST else meaning

    def _end(self, at: TopicPartition) -> int:
        last = last_segment(partition_directory(self.options.root, *at))
        return last.end if last is not None else 0

    def _start(self, at: TopicPartition) -> int:
        segments = list_segments(partition_directory(self.options.root, *at))
        return segments[0].base if segments else 0

    def tasks(self, start: Offsets, end: Offsets) -> list[LogRanges]:
        """Cut what is between two offsets into tasks."""
        parts = split_ranges(ranges(start, end), self.options.tasks, least=LEAST_ROWS)
        return [LogRanges(tuple(part)) for part in parts]

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's part. An empty read comes as a partition without ranges."""
        columns = SCHEMA.names if self.options.headers else SCHEMA.names[:-1]
        for wanted in getattr(partition, "ranges", ()):
            for batch in read_range(self.options.root, wanted, holes=not self.options.fail_on_data_loss):
                yield batch.select(columns)


class LogReader(DataSourceReader):
    """Reads the log once, from startingOffsets (earliest) to endingOffsets (latest)."""

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
        """Read one task's part."""
        return self._planner.batches(partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as it grows, from startingOffsets (latest) of a query's first start on."""

    def __init__(self, options: Options) -> None:
        self._planner = _Planner(options)
        self._target: dict[TopicPartition, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query starts that has no checkpoint yet."""
        starting = self._planner.options.starting
        offsets = to_json(self._planner.resolve(LATEST if starting is None else starting, others=EARLIEST))
        # Or retention could take what the first batch is still to read. Spark asks again when it is started again
        # within its first batch, which then keeps its own start: so never further than what was told already.
        self._commit(self._not_beyond_told(offsets))
        return offsets

    def _not_beyond_told(self, offsets: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        options = self._planner.options
        least: dict[str, dict[str, int]] = {}
        for topic, partitions in offsets.items():
            told = [one.offsets for one in read_readers(options.root, topic) if one.name == options.reader]
            least[topic] = {
                at: min([offset, *(one.get(int(at), 0) for one in told)]) for at, offset in partitions.items()
            }
        return least

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return maxOffsetsPerTrigger."""
        rows = self._planner.options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end: what comes later is for the next run."""
        self._target = self._planner.latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch."""
        begin = from_json(start)
        end = self._planner.latest() if self._target is None else self._target
        for at, offset in begin.items():
            if end.get(at, 0) < offset and self._planner.options.fail_on_data_loss:
                raise SegmentMissingError(
                    f"partition {at.partition} of {at.topic} ends at {end.get(at, 0)}, and this query has read to"
                    f" {offset}: the log was replaced. Use a new checkpoint, or failOnDataLoss=false to wait"
                )
        end = {at: max(end.get(at, 0), begin.get(at, 0)) for at in {**begin, **end}}
        return to_json(limit_rows(begin, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the log's end, for the query's progress."""
        return to_json(self._planner.latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of one micro-batch."""
        return self._planner.tasks(from_json(start), from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's part."""
        return self._planner.batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the log what this query will not ask for again, if it has a name there.

        Spark keeps the offsets. It calls this with a batch's end when it plans the next one, and not for the last
        batch of an AvailableNow run: a lower bound, which is all that retention needs. Therefore it may fail, on a full
        disk for one, which only goes on when this query does.
        """
        try:
            self._commit(end)
        except SinkError as error:
            logger.warning("retention is not told how far this query is: %s", error)

    def _commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        options = self._planner.options
        if options.reader is not None:
            for topic in sorted({at.topic for at in self._planner.known()}):
                offsets = {int(partition): offset for partition, offset in end.get(topic, {}).items()}
                commit_reader(options.root, topic, options.reader, offsets, time.time())
