"""Reads ranges of the log as Arrow batches of the size that Spark likes. Runs in executors: keeps no state."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from efo_service.relay.log.catalog import topic_directory
from efo_service.relay.log.segments import Segment, read_parts
from efo_service.spark.source.offsets import Range

BATCH_ROWS: Final = 16_384
"""The most rows of a batch: Spark is at its fastest from 8 to 16 thousand."""
BATCH_BYTES: Final = 16 * 1024 * 1024
"""The most bytes for which small segments are put together (a single segment may have more)."""

logger = logging.getLogger(__name__)


def partition_directory(root: Path, topic: str, partition: int) -> Path:
    """Return where a partition's segments are."""
    return topic_directory(root, topic) / str(partition)


def read_range(root: Path, wanted: Range, *, holes: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order, every byte checked.

    Where `holes` are allowed, what is missing is logged and left out. Raises SegmentMissingError,
    SegmentCorruptError, LogVersionError, SinkError.
    """
    directory = partition_directory(root, wanted.topic, wanted.partition)
    rows = 0
    for batch in _join(_cut(read_parts(directory, wanted.start, wanted.end, holes=holes, mapped=True))):
        rows += batch.num_rows
        yield batch
    if missing := wanted.end - wanted.start - rows:
        logger.warning("%s: %d of the records %d to %d are missing", directory, missing, *wanted[2:])


def _cut(parts: Iterator[tuple[Segment, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    for _, batch in parts:
        for first in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)


def _join(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together: a batch has its price in Spark, however small it is."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for part in parts:
        if waiting and (rows + part.num_rows > BATCH_ROWS or size + part.nbytes > BATCH_BYTES):
            yield _concatenate(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(part)
        rows += part.num_rows
        size += part.nbytes
    if waiting:
        yield _concatenate(waiting)


def _concatenate(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
