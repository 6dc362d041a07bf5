"""`efo.read_log`. It is importable without pyarrow, so that what is missing is reported when it is called."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from efo.errors import ConfigurationError, MissingExtraError
from efo_service.object_store.url import log_root

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


def read_log(
    path: str | os.PathLike[str],
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start: int | datetime | Mapping[int, int] | None = None,
    end: int | datetime | Mapping[int, int] | None = None,
    columns: Sequence[str] | None = None,
    reader: str | None = None,
    allow_gaps: bool = False,
    store_options: Mapping[str, str | int | float | bool] | None = None,
) -> pa.RecordBatchReader:
    """Read the records that a topic of the log holds now: by partition, each in the order of its offsets.

    `path`: the log's root, a directory or a URL such as s3://bucket/prefix (with `store_options`, as in [relay]).
    `partitions`: these alone. `start`, `end`: the first offset, and the one after the last: of each partition, or by
    partition; or times, with a timezone: from the first record that arrived at or after `start`, to before the first
    that arrived at or after `end`. `columns`: these alone, in this order; by name also stream, shard_id,
    sequence_number and sub_sequence_number, which are in the headers.
    `reader`: a name. Retention keeps what this reader has not read, and without `start` it goes on where it ended: a
    partition that was read to its end is committed when the next batch is asked for.
    `allow_gaps`: pass over records that are missing, with a warning in the log of this module for each gap.

    Returns an iterator of record batches that knows its schema. pandas, Polars and DuckDB take it as it is
    (docs/readers.md). Its ends are those of the moment of the call. A compaction meanwhile changes nothing; what
    retention removes before it is read raises SegmentMissingError.
    Raises ConfigurationError, TopicNotFoundError and LogIncompleteError at the call, and MissingExtraError without
    pyarrow; while it is read, SegmentMissingError, SegmentCorruptError, LogOwnerError, LogVersionError and SinkError.
    """
    try:
        from efo_service.log.reading import Selection, read_records  # noqa: PLC0415 - an extra
        from efo_service.log.topic import log_files  # noqa: PLC0415 - the same
    except ImportError as error:
        raise MissingExtraError("efo.read_log needs pyarrow: pip install 'efo[arrow]'") from error
    root = log_root(os.fspath(path), store_options)
    if isinstance(root, Path) and not root.is_dir():
        raise ConfigurationError(f"{root} is not a directory: give the root of a log, as [relay] directory names it")
    files = log_files(root.absolute() if isinstance(root, Path) else root)
    selection = Selection(None if partitions is None else list(partitions), start, end)
    return read_records(files, topic, selection, columns, reader, _warn if allow_gaps else None)


def _warn(gap: str) -> None:
    logger.warning("%s", gap)
