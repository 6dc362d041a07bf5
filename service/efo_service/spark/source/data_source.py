# ruff: noqa: N802 - the names are those of the Python Data Source API
"""The PySpark data source for the embedded log: format("efo"), with the options and schema of Spark's Kafka source.

    spark.readStream.format("efo").option("subscribe", "orders").load("/var/lib/efo/log")

The source plans in one long-lived process per query and reads in executors. It keeps no state: Spark stores the
offsets, and a query resumes exactly at its checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from math import inf
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from efo.errors import ConfigurationError, EfoError
from efo_service.log.reader_offsets import commit_reader, read_readers
from efo_service.log.topic import read_topic
from efo_service.relay.errors import SegmentMissingError, SinkError
from efo_service.spark.errors import one_line_errors
from efo_service.spark.source.api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    check_version,
)
from efo_service.spark.source.bounds import EARLIEST, ENDING, LATEST, names_latest
from efo_service.spark.source.checkpoint import checkpoint_offsets
from efo_service.spark.source.log_data_source import LogDataSource
from efo_service.spark.source.log_reader import FilteringLogReader, LogReader
from efo_service.spark.source.offsets import TopicPartition, lag, limit_rows, ranges, to_json
from efo_service.spark.source.options import Options, parse_options
from efo_service.spark.source.planner import Planner
from efo_service.spark.source.shipping import Shipped

logger = logging.getLogger(__name__)

_NO_WRITES: Final = (
    'format("efo") is for reading: the relay alone writes the log, since each record has its position in Kinesis.'
    ' Write to another sink, such as format("kafka") or format("parquet")'
)


class EfoDataSource(LogDataSource):
    """`format("efo")`. Its options: see efo_service.spark.source.options."""

    @cached_property
    def _options(self) -> Options:
        options = parse_options(self.options)
        for topic in options.subscription.topics:
            read_topic(options.log, topic)
        return options

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "efo"

    @one_line_errors()
    def reader(self, schema: StructType) -> LogReader:
        """Return a batch reader."""
        self._check_batch(schema)
        if names_latest(self._options.starting):
            raise ConfigurationError(f"startingOffsets cannot be latest ({LATEST}) for read: it would read nothing")
        check_version(self._options.names)
        return FilteringLogReader(self._options) if self._options.filters else LogReader(self._options)

    def streamReader(self, schema: StructType) -> LogStreamReader:
        """Return a stream reader. Its first call raises what is wrong.

        Spark 4.3 hides an error that is raised here behind one of its own: python_streaming_source_runner stops a
        reader that it does not have.
        """
        try:
            self._check_schema(schema)
            if names := self._options.names.intersection({*ENDING, "pushDownFilters"}):
                raise ConfigurationError(f"{min(names)} is for read, not for readStream: remove it")
            check_version(self._options.names)
            return LogStreamReader(self._options)
        except EfoError as error:
            return LogStreamReader(error)

    @one_line_errors()
    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, FBT001 - Spark's signature
        """Refuse `df.write`."""
        raise ConfigurationError(_NO_WRITES)

    @one_line_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, FBT001 - the same
        """Refuse `df.writeStream`."""
        raise ConfigurationError(_NO_WRITES)


class LogStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as it grows. A query without a checkpoint starts at startingOffsets (default: latest).

    `options`: if they are wrong, the error that the first call raises.
    """

    def __init__(self, options: Options | EfoError, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._available_now_end: dict[TopicPartition, int] | None = None
        self._was_asked = False
        self._first_start: dict[TopicPartition, int] | None = None
        self._clock = clock
        self._triggered_at = -inf

    @cached_property
    def _planner(self) -> Planner:
        if isinstance(self._options, EfoError):
            raise self._options
        return Planner(self._options)

    @one_line_errors()
    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which a query without a checkpoint starts."""
        offsets = to_json(self._start() if self._first_start is None else self._first_start)
        # Otherwise retention could delete records that the first batch still has to read. Spark calls this again when
        # a query restarts within its first batch, which keeps its first start: so committed offsets never advance here.
        self._commit(self._not_beyond_committed(offsets))
        return offsets

    def _start(self) -> dict[TopicPartition, int]:
        starting = self._planner.options.starting
        return self._planner.resolve(LATEST if starting is None else starting, others=EARLIEST)

    def _not_beyond_committed(self, offsets: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        options = self._planner.options
        result: dict[str, dict[str, int]] = {}
        for topic, partitions in offsets.items():
            committed = [reader.offsets for reader in read_readers(options.log, topic) if reader.name == options.reader]
            result[topic] = {
                partition: min([offset, *(before.get(int(partition), 0) for before in committed)])
                for partition, offset in partitions.items()
            }
        return result

    @one_line_errors()
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch: maxOffsetsPerTrigger, otherwise minOffsetsPerTrigger."""
        options = self._planner.options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        return ReadAllAvailable() if options.min_rows is None else ReadMinRows(options.min_rows)

    @one_line_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run: later records are for the next run."""
        self._available_now_end = self._planner.latest()

    @one_line_errors()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the next micro-batch. Spark 4.0 and 4.1 do not say where it starts, and have no limits."""
        if start is None:
            self._is_first_call()
            return to_json(self._planner.latest())
        end = self._planner.latest() if self._available_now_end is None else self._available_now_end
        begin = self._from_checkpoint(start)
        self._refuse_beyond(begin, end)
        end = {tp: max(end.get(tp, 0), begin.get(tp, 0)) for tp in {**begin, **end}}
        if isinstance(limit, ReadMaxRows | ReadMinRows) and self._waits(lag(begin, end)):
            return start
        return to_json(limit_rows(begin, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end)

    def _is_first_call(self) -> bool:
        """Return whether Spark 4.0 or 4.1 asks for an end for the first time.

        It does that before it asks for the start, which must not be after it: so the start is looked for now. A query
        that has a checkpoint does not need it.
        """
        if self._was_asked:
            return False
        self._was_asked = True
        with suppress(EfoError):  # initialOffset raises it, if Spark asks
            self._first_start = self._start()
        return True

    def _refuse_beyond(self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
        """Raise SegmentMissingError if this query has read beyond the end of the log."""
        for tp, offset in begin.items():
            if end.get(tp, 0) < offset and self._planner.options.fail_on_data_loss:
                raise SegmentMissingError(
                    f"partition {tp.partition} of {tp.topic} ends at offset {end.get(tp, 0)}, but this query has read"
                    f" to {offset}: the log was replaced, or the checkpoint is of another source, such as Kafka. Use a"
                    " new checkpoint, or set failOnDataLoss=false to wait"
                )

    def _waits(self, rows: int) -> bool:
        """Return whether these records wait for more (minOffsetsPerTrigger, maxTriggerDelay).

        A run of AvailableNow ends when nothing is read, so it waits for nothing.
        """
        options, now = self._planner.options, self._clock()
        if options.min_rows is None or self._available_now_end is not None:
            return False
        if rows < options.min_rows and now - self._triggered_at < options.trigger_delay:
            return True
        self._triggered_at = now
        return False

    def _from_checkpoint(self, offsets: Any) -> dict[TopicPartition, int]:
        options = self._planner.options
        return checkpoint_offsets(offsets, options.subscription, all_subscribed=options.fail_on_data_loss)

    @one_line_errors()
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the log's end, for the query's progress."""
        return to_json(self._planner.latest())

    @one_line_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of one micro-batch."""
        first, last = self._from_checkpoint(start), self._from_checkpoint(end)
        if any(last.get(tp, 0) < offset for tp, offset in first.items()):  # only where latestOffset knows no start
            self._refuse_beyond(first, self._planner.latest())
        return self._planner.tasks(ranges(first, last))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one task."""
        return self._planner.batches(partition)

    @one_line_errors()
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
            for topic in sorted(self._planner.topics()):
                offsets = {int(partition): offset for partition, offset in end.get(topic, {}).items()}
                commit_reader(options.log, topic, options.reader, offsets, time.time())
