"""Finds the first record of a partition that arrived at or after a time, as a broker does for Spark's Kafka source."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from efo_service.log.segments import MAX_LISTINGS, SCHEMA, check_owner, list_segments, read_timestamps
from efo_service.relay.errors import SegmentGoneError

_MICROSECONDS = SCHEMA.field("timestamp").type


def first_offset(directory: Path, milliseconds: int, owner: tuple[str, str]) -> int | None:
    """Return the offset of the first record with a timestamp of at least this; None if there is none.

    `milliseconds`: since the epoch. `owner`: the stream and the shard of the partition, by the catalog. Arrival times
    are not quite ascending, so the segments are read from the oldest on, of each this column alone.
    Raises SegmentCorruptError, LogOwnerError, LogVersionError, SinkError, and SegmentGoneError after MAX_LISTINGS
    listings that a compaction overtook.
    """
    limit = pa.scalar(min(milliseconds * 1000, 2**63 - 1), _MICROSECONDS)
    for listing in range(1, MAX_LISTINGS + 1):
        try:
            for segment in list_segments(directory):
                times, origin = read_timestamps(segment)
                check_owner(segment, origin, owner)
                index: int = pc.index(pc.greater_equal(times, limit), value=True).as_py()
                if index >= 0:
                    return segment.base + index
        except SegmentGoneError:
            if listing == MAX_LISTINGS:
                raise
        else:
            return None
    raise AssertionError
