"""Plans what a query reads: the subscribed partitions of the log, where they start and end, and the tasks.

Spark pickles the planner for its executors, which read by it. It keeps no state, but which catalogs were
complete. `read_range` yields Arrow batches of the size that is fastest in Spark.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from efo.errors import ConfigurationError
from efo_service.log.catalog import Catalog, topics, uncatalogued_topics
from efo_service.log.consistency import checked_topic, refuse
from efo_service.log.files import LogFiles
from efo_service.log.reading import first_offset, select, sized
from efo_service.log.topic import Topic, read_topic
from efo_service.relay.errors import LogIncompleteError, TopicNotFoundError
from efo_service.spark.errors import one_line_errors
from efo_service.spark.source.bounds import EARLIEST, LATEST, AtTime, OffsetBound
from efo_service.spark.source.offsets import Range, TopicPartition, split_ranges, task_rows
from efo_service.spark.source.options import Options

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogRanges(InputPartition):
    """The ranges that one task reads."""

    ranges: tuple[Range, ...]


class Planner:
    """The common part of the batch reader and the stream reader."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._complete: dict[str, Catalog] = {}

    def topics(self) -> dict[str, Topic]:
        """Return the subscribed topics, after a comparison of their catalogs with their directories.

        A partition that is not in its catalog raises LogIncompleteError; without fail_on_data_loss it is a warning.
        """
        log, subscription = self.options.log, self.options.subscription
        result: dict[str, Topic] = {}
        for name in subscription.select(topics(log) if subscription.pattern is not None else ()):
            result[name], problems = checked_topic(log, name, self._complete.get(name))
            self._refuse(problems)
            if not problems:
                self._complete[name] = result[name].catalog
        if subscription.pattern is not None:
            lost = subscription.select(uncatalogued_topics(log))
            self._refuse([f"{log.name}/{topic} has partitions, but no catalog: see `efo log verify`" for topic in lost])
        return result

    def _refuse(self, problems: list[str]) -> None:
        if self.options.fail_on_data_loss:
            refuse(problems)
        for problem in problems:
            logger.warning("%s", problem)

    def existing(self, known: Mapping[str, Topic]) -> list[TopicPartition]:
        """Return the subscribed partitions of these topics."""
        subscription = self.options.subscription
        partitions = [
            TopicPartition(name, partition) for name, topic in known.items() for partition in topic.catalog.shards
        ]
        if missing := sorted(subscription.partitions.difference(partitions)):
            raise ConfigurationError(f"the log has no partition {missing[0].partition} of {missing[0].topic}")
        return [partition for partition in partitions if subscription.includes(partition)]

    def latest(self) -> dict[TopicPartition, int]:
        """Return the end of every partition."""
        known = self.topics()
        return {partition: self._end(partition, known) for partition in self.existing(known)}

    def resolve(self, bound: OffsetBound, *, others: int) -> dict[TopicPartition, int]:
        """Return the offsets that a bound means. `others`: for partitions that the bound does not name."""
        known = self.topics()
        existing = self.existing(known)
        named = _named(bound)
        if unknown := sorted(set(named) - set(existing)):
            raise ConfigurationError(f"the log has no partition {unknown[0].partition} of {unknown[0].topic}")
        return {partition: self._offset(partition, bound, others, known) for partition in existing}

    def _offset(self, partition: TopicPartition, bound: OffsetBound, others: int, known: Mapping[str, Topic]) -> int:
        if isinstance(bound, AtTime):
            time = bound.of(partition)
            offset = others if time is None else self._at_time(partition, time, bound, known)
        else:
            offset = bound if isinstance(bound, int) else bound.get(partition, others)
        if offset == LATEST:
            return self._end(partition, known)
        return known[partition.topic].partition(partition.partition).start() if offset == EARLIEST else offset

    def _at_time(self, partition: TopicPartition, time: int, bound: AtTime, known: Mapping[str, Topic]) -> int:
        offset = first_offset(known[partition.topic].partition(partition.partition), time)
        if offset is not None:
            return offset
        end = self._end(partition, known)  # refuses a partition that was emptied
        if not bound.or_latest:
            raise ConfigurationError(
                f"{bound.option}: partition {partition.partition} of {partition.topic} has no record at or after"
                f" {time}: use an earlier time, or set startingOffsetsByTimestampStrategy=latest to start at its end"
            )
        return end

    def _end(self, partition: TopicPartition, known: Mapping[str, Topic]) -> int:
        topic = known[partition.topic]
        files = topic.partition(partition.partition)
        end = files.end()
        if end is None and partition.partition in topic.catalog.written:
            self._refuse([files.emptied_message])
        return 0 if end is None else end

    def tasks(self, whole: Sequence[Range]) -> list[LogRanges]:
        """Split the records of these ranges into tasks."""
        options = self.options
        tasks = split_ranges(whole, task_rows(whole, options.tasks, options.task_rows, cores=os.cpu_count() or 1))
        return [LogRanges(tuple(task)) for task in tasks]

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one task. For an empty read Spark passes a partition without ranges."""
        columns = list(self.options.columns)
        with one_line_errors():
            for task_range in getattr(partition, "ranges", ()):
                for batch in read_range(self.options.log, task_range, allow_gaps=not self.options.fail_on_data_loss):
                    yield select(batch, columns)


class GrowingPlanner(Planner):
    """Plans what a query reads of a log that may not exist yet."""

    def topics(self) -> dict[str, Topic]:
        """Return the stream's topic, none before the relay has written."""
        try:
            return super().topics()
        except TopicNotFoundError:
            return {}


def _named(bound: OffsetBound) -> Mapping[TopicPartition, int]:
    """Return the partitions that a bound names."""
    of_each = bound.times if isinstance(bound, AtTime) else bound
    return {} if isinstance(of_each, int) else of_each


def read_range(log: LogFiles, requested: Range, *, allow_gaps: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in order, after checksum verification.

    `allow_gaps`: skip missing records with a warning, instead of raising SegmentMissingError.
    Raises SegmentMissingError, SegmentCorruptError, LogOwnerError if segments belong to another shard than the catalog
    says, LogVersionError, SinkError.
    """
    topic = read_topic(log, requested.topic)
    where = f"{topic.where}/{requested.partition}"
    if requested.partition not in topic.catalog.shards:
        raise LogIncompleteError(f"{where} is not in the catalog any more: see `efo log verify`")
    rows = 0
    partition = topic.partition(requested.partition)
    for batch in sized(partition.parts(requested.start, requested.end, allow_gaps=allow_gaps)):
        rows += batch.num_rows
        yield batch
    if missing := requested.end - requested.start - rows:
        logger.warning("%s: %d of the records %d to %d are missing", where, missing, *requested[2:])
