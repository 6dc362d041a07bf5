# ruff: noqa: N802 - the names are those of the Python Data Source API
"""Batch queries of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from efo.errors import ConfigurationError
from efo_service.spark.errors import one_line_errors
from efo_service.spark.source.bounds import EARLIEST, LATEST
from efo_service.spark.source.offsets import Range, ranges
from efo_service.spark.source.options import Options
from efo_service.spark.source.planner import Planner
from efo_service.spark.source.shipping import Shipped

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class LogReader(Shipped, DataSourceReader):
    """Reads the log once, from startingOffsets (default: earliest) to endingOffsets (default: latest)."""

    def __init__(self, options: Options, plan: Callable[[Options], Planner] = Planner) -> None:
        self._planner = plan(options)

    @one_line_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks. Raises ConfigurationError for a start beyond the end, as Spark's Kafka source."""
        options = self._planner.options
        starting = EARLIEST if options.starting is None else options.starting
        ending = LATEST if options.ending is None else options.ending
        start = self._planner.resolve(starting, others=EARLIEST)
        end = self._planner.resolve(ending, others=LATEST)
        for tp in sorted(end):
            if start[tp] > end[tp]:
                raise ConfigurationError(
                    f"partition {tp.partition} of {tp.topic} starts at offset {start[tp]}, beyond its end {end[tp]}"
                )
        return self._planner.tasks(self._narrowed(ranges(start, end)))

    def _narrowed(self, whole: list[Range]) -> list[Range]:
        return whole

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one task."""
        return self._planner.batches(partition)


class FilteringLogReader(LogReader):
    """Reads the log once, without records that the query's filters leave out.

    It is a class of its own since Spark fails a query whose reader has this method, unless the session has
    `spark.sql.python.filterPushdown.enabled`. Spark 4.0 has no filters: there it is not used.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._filters: tuple[Filter, ...] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters that can leave out records. Spark evaluates all of them, too."""
        from efo_service.spark.source.filters import is_useful  # noqa: PLC0415 - Spark 4.0 cannot import it

        self._filters = tuple(filter(is_useful, filters))
        return filters

    def _narrowed(self, whole: list[Range]) -> list[Range]:
        from efo_service.spark.source.filters import narrowed  # noqa: PLC0415 - the same

        return narrowed(whole, self._filters)
