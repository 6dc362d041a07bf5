"""The position of each record in Kinesis as columns: they are in the headers, and this finds them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from efo_service.relay.mapping import HEADERS, REQUIRED_HEADERS

POSITION: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("shard_id", pa.string()),
        ("sequence_number", pa.string()),
        ("sub_sequence_number", pa.int32()),
    ]
)
"""The columns. Together they identify a record (docs/sinks.md)."""
_HEADER: Final = dict(zip(POSITION.names, HEADERS[:REQUIRED_HEADERS], strict=True))


def select(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return these columns of a batch of the log, in this order; among them may be those of POSITION."""
    if not any(name in _HEADER for name in names):
        return batch.select(names)
    headers = batch.column("headers")
    rows, pairs = pc.list_parent_indices(headers), pc.list_flatten(headers)
    columns = [_position(name, rows, pairs, len(batch)) if name in _HEADER else batch.column(name) for name in names]
    return pa.record_batch(columns, names=list(names))


def _position(name: str, rows: Any, pairs: Any, count: int) -> Any:
    """Return a column. A row without the header has null; of two headers with one name, the first counts."""
    found = pc.equal(pairs.field("key"), _HEADER[name])
    index = pc.index_in(pa.arange(0, count), value_set=pc.filter(rows, found).cast(pa.int64()))
    texts = pc.filter(pairs.field("value"), found).take(index)
    return texts.cast(pa.string()).cast(POSITION.field(name).type)
