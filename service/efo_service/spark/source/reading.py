"""Reads ranges of the log as Arrow batches of the size that is fastest in Spark. Runs in executors, without state."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from efo_service.log.files import LogFiles
from efo_service.log.reading import sized
from efo_service.log.topic import read_topic
from efo_service.relay.errors import LogIncompleteError
from efo_service.spark.source.offsets import Range

logger = logging.getLogger(__name__)


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
