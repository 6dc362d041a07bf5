"""Plans what a query reads: the subscribed partitions of the log, where they start and end, and the tasks.

Spark pickles the planner for its executors, which read by it. It keeps no state.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from efo.errors import ConfigurationError
from efo_service.log.catalog import Catalog
from efo_service.log.columns.positions import select
from efo_service.log.consistency import refuse
from efo_service.relay.errors import TopicNotFoundError
from efo_service.spark.errors import one_line_errors
from efo_service.spark.source.bounds import EARLIEST, LATEST, AtTime, OffsetBound
from efo_service.spark.source.offsets import Range, TopicPartition, split_ranges, task_rows
from efo_service.spark.source.options import Options
from efo_service.spark.source.reading import read_range

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogRanges(InputPartition):
    """The ranges that one task reads."""

    ranges: tuple[Range, ...]


class Planner:
    """The common part of the batch reader and the stream reader."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def catalogs(self) -> dict[str, Catalog]:
        """Return the catalogs of the subscribed topics, after a comparison with their directories.

        A partition that is not in its catalog raises LogIncompleteError; without fail_on_data_loss it is a warning.
        """
        log, subscription = self.options.log, self.options.subscription
        result: dict[str, Catalog] = {}
        for topic in subscription.select(log.topics() if subscription.pattern is not None else ()):
            result[topic], problems = log.checked_catalog(topic)
            self._refuse(problems)
        if subscription.pattern is not None:
            lost = subscription.select(log.uncatalogued_topics())
            self._refuse([f"{log.where(topic)} has partitions, but no catalog: see `efo log verify`" for topic in lost])
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
        named = _named(bound)
        if unknown := sorted(set(named) - set(existing)):
            raise ConfigurationError(f"the log has no partition {unknown[0].partition} of {unknown[0].topic}")
        return {partition: self._offset(partition, bound, others, catalogs) for partition in existing}

    def _offset(
        self, partition: TopicPartition, bound: OffsetBound, others: int, catalogs: Mapping[str, Catalog]
    ) -> int:
        if isinstance(bound, AtTime):
            time = bound.of(partition)
            offset = others if time is None else self._at_time(partition, time, bound, catalogs)
        else:
            offset = bound if isinstance(bound, int) else bound.get(partition, others)
        if offset == LATEST:
            return self._end(partition, catalogs)
        return self.options.log.start(*partition, catalogs[partition.topic]) if offset == EARLIEST else offset

    def _at_time(self, partition: TopicPartition, time: int, bound: AtTime, catalogs: Mapping[str, Catalog]) -> int:
        offset = self.options.log.first_offset(*partition, time, catalogs[partition.topic])
        if offset is not None:
            return offset
        end = self._end(partition, catalogs)  # refuses a partition that was emptied
        if not bound.or_latest:
            raise ConfigurationError(
                f"{bound.option}: partition {partition.partition} of {partition.topic} has no record at or after"
                f" {time}: use an earlier time, or set startingOffsetsByTimestampStrategy=latest to start at its end"
            )
        return end

    def _end(self, partition: TopicPartition, catalogs: Mapping[str, Catalog]) -> int:
        catalog = catalogs[partition.topic]
        end = self.options.log.end(*partition, catalog)
        if end is None and partition.partition in catalog.written:
            self._refuse([self.options.log.emptied_message(*partition, catalog)])
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

    def catalogs(self) -> dict[str, Catalog]:
        """Return the catalog of the stream's topic, none before the relay has written."""
        try:
            return super().catalogs()
        except TopicNotFoundError:
            return {}


def _named(bound: OffsetBound) -> Mapping[TopicPartition, int]:
    """Return the partitions that a bound names."""
    of_each = bound.times if isinstance(bound, AtTime) else bound
    return {} if isinstance(of_each, int) else of_each
