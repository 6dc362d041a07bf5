"""Reads ranges of the log as Arrow batches of the size that is fastest in Spark. Runs in executors, without state."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from efo_service.relay.errors import LogIncompleteError
from efo_service.relay.readable import ReadableLog
from efo_service.spark.source.offsets import Range

BATCH_ROWS: Final = 16_384
"""Most rows of a batch: Spark is fastest with 8,000 to 16,000."""
BATCH_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of a batch that is merged from small segments. A batch from one segment may be larger."""

logger = logging.getLogger(__name__)


def read_range(log: ReadableLog, requested: Range, *, allow_gaps: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in order, after checksum verification.

    `allow_gaps`: skip missing records with a warning, instead of raising SegmentMissingError.
    Raises SegmentMissingError, SegmentCorruptError, LogOwnerError if segments belong to another shard than the catalog
    says, LogVersionError, SinkError.
    """
    where = log.where(requested.topic, requested.partition)
    catalog = log.catalog(requested.topic)
    if requested.partition not in catalog.shards:
        raise LogIncompleteError(f"{where} is not in the catalog any more: see `efo log verify`")
    rows = 0
    for batch in _merge(_split(log.parts(*requested, catalog, allow_gaps=allow_gaps))):
        rows += batch.num_rows
        yield batch
    if missing := requested.end - requested.start - rows:
        logger.warning("%s: %d of the records %d to %d are missing", where, missing, *requested[2:])


def _split(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in parts:
        for first in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)


def _merge(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge small batches: each batch has a fixed cost in Spark, however small it is."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for part in parts:
        if pending and (rows + part.num_rows > BATCH_ROWS or size + part.nbytes > BATCH_BYTES):
            yield _concatenate(pending)
            pending, rows, size = [], 0, 0
        pending.append(part)
        rows += part.num_rows
        size += part.nbytes
    if pending:
        yield _concatenate(pending)


def _concatenate(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
