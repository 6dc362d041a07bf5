"""Reading a topic of the log as Arrow record batches, without Spark: for `efo.read_log` and `efo log export`.

Segments are chosen by their names when they are read, so that a compaction meanwhile changes nothing: each record is
read once. What retention removes before it is read is an error, unless a named reader holds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from efo.errors import ConfigurationError
from efo_service.log.consistency import check_topic, checked_topic
from efo_service.log.files import LogFiles, PartitionFiles
from efo_service.log.reader_offsets import check_reader, commit_reader, read_readers
from efo_service.log.segments import SCHEMA
from efo_service.log.topic import Topic, read_topic
from efo_service.relay.mapping import HEADERS, REQUIRED_HEADERS

BATCH_ROWS: Final = 16_384
"""Most rows of a batch: Spark is fastest with 8,000 to 16,000."""
BATCH_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of a batch that is merged from small segments. A batch from one segment may be larger."""

Bound = int | datetime | Mapping[int, int] | None
"""Where to start or end: an offset of each partition, offsets by partition, or a time for all; None: all there is."""
OnGap = Callable[[str], None]


class Selection(NamedTuple):
    """Which records of a topic. `partitions`: None for all."""

    partitions: Sequence[int] | None = None
    start: Bound = None
    end: Bound = None


class PartitionRange(NamedTuple):
    """The offsets `start` to `end` - 1 of a partition. `is_emptied`: it had records, and has nothing any more."""

    partition: int
    start: int
    end: int
    is_emptied: bool = False


def read_records(
    files: LogFiles,
    name: str,
    selection: Selection,
    columns: Sequence[str] | None,
    reader: str | None,
    on_gap: OnGap | None,
) -> pa.RecordBatchReader:
    """Return the records of a topic: see `efo.read_log`."""
    names = _checked_columns(columns)
    if reader is not None:
        batches = _read_as(check_reader(reader), files, name, selection, on_gap)
    else:
        batches = read(*plan(files, name, selection, on_gap), on_gap)
    fields = [(SCHEMA if name in SCHEMA.names else POSITION).field(name) for name in names]
    return pa.RecordBatchReader.from_batches(pa.schema(fields), (select(batch, names) for batch in sized(batches)))


def _checked_columns(columns: Sequence[str] | None) -> list[str]:
    if isinstance(columns, str):
        raise ConfigurationError(f"columns is a list of names, such as [{columns!r}]")
    names = SCHEMA.names if columns is None else list(columns)
    known = [*SCHEMA.names, *POSITION.names]
    if unknown := [name for name in names if name not in known]:
        raise ConfigurationError(f"the log has no column {unknown[0]!r}; it has: {', '.join(known)}")
    return names


# --- which offsets -----------------------------------------------------------------------------------------


def plan(
    files: LogFiles, name: str, selection: Selection, on_gap: OnGap | None = None
) -> tuple[Topic, list[PartitionRange]]:
    """Return the topic, and what to read of each partition, by their numbers.

    `on_gap`: called for each partition that is not in the catalog, instead of raising LogIncompleteError.
    Raises ConfigurationError, TopicNotFoundError and SinkError.
    """
    if on_gap is None:
        check_topic(files, name)
        topic = read_topic(files, name)
    else:
        topic, problems = checked_topic(files, name)
        for problem in problems:
            on_gap(problem)
    known = sorted(topic.catalog.shards)
    start, end = selection.start, selection.end
    chosen = known if selection.partitions is None else sorted(set(selection.partitions))
    for option, bound in (("start", start), ("end", end)):
        _check_bound(option, bound, chosen)
    if unknown := [number for number in chosen if number not in known]:
        raise ConfigurationError(f"topic {name} has no partition {unknown[0]}; it has: {', '.join(map(str, known))}")
    ranges: list[PartitionRange] = []
    for number in chosen:
        partition = topic.partition(number)
        newest = partition.end()
        if newest is None:
            ranges.append(PartitionRange(number, 0, 0, is_emptied=number in topic.catalog.written))
            continue
        first, last = _offset(partition, number, start), _offset(partition, number, end)
        if first is None:
            first = newest if isinstance(start, datetime) else partition.start()
        ranges.append(PartitionRange(number, first, newest if last is None else min(last, newest)))
    return topic, ranges


def _check_bound(name: str, bound: object, chosen: Sequence[int]) -> None:
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            raise ConfigurationError(f"{name} is a time without a timezone: add one, such as datetime.UTC")
        return
    offsets = bound.values() if isinstance(bound, Mapping) else () if bound is None else (bound,)
    if not all(type(offset) is int and offset >= 0 for offset in offsets):
        raise ConfigurationError(f"{name} is an offset, 0 or more, a datetime, or a mapping of partitions to offsets")
    if isinstance(bound, Mapping) and (others := sorted(set(bound) - set(chosen))):
        raise ConfigurationError(f"{name} names the partition {others[0]}, which is not among those that are read")


def _offset(partition: PartitionFiles, number: int, bound: Bound) -> int | None:
    if isinstance(bound, datetime):
        return first_offset(partition, max(0, ceil(bound.timestamp() * 1000)))
    return bound.get(number) if isinstance(bound, Mapping) else bound


def first_offset(partition: PartitionFiles, milliseconds: int) -> int | None:
    """Return the offset of the first record that arrived at this time or later, None if there is none.

    As a broker does it for Spark's Kafka source. Arrival times are not quite ascending, so all are looked at, from
    the oldest on. `milliseconds`: since the epoch. Raises SinkError and its kinds.
    """
    for base, times in partition.timestamps():
        limit = pa.scalar(min(milliseconds * 1000, 2**63 - 1), times.type)
        index: int = pc.index(pc.greater_equal(times, limit), value=True).as_py()
        if index >= 0:
            return base + index
    return None


# --- their records -----------------------------------------------------------------------------------------


def read(topic: Topic, ranges: Iterable[PartitionRange], on_gap: OnGap | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the records of these ranges, in their order, with every byte checked.

    `on_gap`: pass over records that are missing, and call it with a message for each gap, instead of raising
    SegmentMissingError.
    """
    for number, start, end, is_emptied in ranges:
        if is_emptied:
            if on_gap is not None:
                on_gap(topic.partition(number).emptied_message)
            continue
        at, where = start, f"{topic.where}/{number}"
        for batch in topic.partition(number).parts(start, end, allow_gaps=on_gap is not None):
            if batch.num_rows:
                first = batch.column("offset")[0].as_py()
                _tell_gap(on_gap, where, at, first)
                at = first + batch.num_rows
            yield batch
        _tell_gap(on_gap, where, at, end)


def _tell_gap(on_gap: OnGap | None, where: str, start: int, end: int) -> None:
    if on_gap is not None and start < end:
        on_gap(f"{where}: the offsets {start} to {end - 1} are missing")


def _read_as(
    reader: str, files: LogFiles, name: str, selection: Selection, on_gap: OnGap | None
) -> Iterator[pa.RecordBatch]:
    """Return the records for a named reader, and commit what it has read."""
    if selection.partitions is not None:
        raise ConfigurationError("a named reader reads all partitions: leave out partitions, or reader")
    known = next((one.offsets for one in read_readers(files, name) if one.name == reader), {})
    if selection.start is None:
        shards = read_topic(files, name).catalog.shards
        selection = selection._replace(start={number: known[number] for number in known if number in shards})
    # From this commit on, retention waits. What it has removed since the first plan is not in the second one.
    offsets = {one.partition: one.start for one in plan(files, name, selection, on_gap)[1]}
    commit_reader(files, name, reader, offsets, time.time())
    topic, ranges = plan(files, name, selection, on_gap)

    def records() -> Iterator[pa.RecordBatch]:
        for one in ranges:
            yield from read(topic, [one], on_gap)
            offsets[one.partition] = max(one.start, one.end)
            commit_reader(files, name, reader, offsets, time.time())

    return records()


# --- batches of a useful size ------------------------------------------------------------------------------


def sized(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split large batches, and merge small ones: each has a fixed cost for whoever takes it, however small it is."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for part in _split(parts):
        if pending and (rows + part.num_rows > BATCH_ROWS or size + part.nbytes > BATCH_BYTES):
            yield _concatenate(pending)
            pending, rows, size = [], 0, 0
        pending.append(part)
        rows += part.num_rows
        size += part.nbytes
    if pending:
        yield _concatenate(pending)


def _split(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in parts:
        for first in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)


def _concatenate(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


# --- the position of each record in Kinesis as columns: it is in the headers -----------------------------------

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
