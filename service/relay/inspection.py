"""Looks at a topic of the log without changing it: what there is (quick), and whether all of it is sound (reads it)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from efo.model import Checkpoint
from service.relay.catalog import read_catalog, topic_directory
from service.relay.errors import SinkError
from service.relay.fencing import read_epoch
from service.relay.readers import ReaderCommit, read_readers
from service.relay.segments import Segment, all_segments, read_origin, read_segment, split_superseded


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as its names and its newest segment tell it.

    `start`, `end`: the offsets of the oldest record and after the newest. `segments` count, `replaced` wait for their
    removal after a roll-up; `size` is the bytes of both. `position`: the Kinesis position of the newest record.
    `epoch`: how often it was opened for writing. Times are seconds since the epoch.
    """

    partition: int
    shard_id: str
    segments: int
    replaced: int
    size: int
    start: int
    end: int
    position: str | None
    oldest_commit: float | None
    newest_commit: float | None
    epoch: int


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A named reader. `lag`: records that it has not committed yet; `committed_at` None: its file makes no sense."""

    name: str
    lag: int
    committed_at: float | None


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic and what is in it."""

    topic: str
    stream: str
    partitions: tuple[PartitionState, ...]
    readers: tuple[ReaderState, ...]


def inspect_topic(root: Path, topic: str) -> TopicState:
    """Tell what a topic holds. Raises TopicNotFoundError, SegmentCorruptError, LogVersionError, SinkError."""
    catalog = read_catalog(root, topic)
    directory = topic_directory(root, topic)
    partitions = tuple(
        _inspect_partition(directory / str(number), number, shard_id)
        for shard_id, number in sorted(catalog.partitions.items(), key=lambda one: one[1])
    )
    readers = tuple(_reader_state(reader, partitions) for reader in read_readers(root, topic))
    return TopicState(topic, catalog.stream, partitions, readers)


def _inspect_partition(directory: Path, number: int, shard_id: str) -> PartitionState:
    current, superseded = split_superseded(all_segments(directory))
    newest = read_origin(current[-1]) if current else None
    return PartitionState(
        partition=number,
        shard_id=shard_id,
        segments=len(current),
        replaced=len(superseded),
        size=sum(_size(segment) for segment in (*current, *superseded)),
        start=current[0].base if current else 0,
        end=current[-1].end if current else 0,
        position=str(newest.last) if newest else None,
        oldest_commit=read_origin(current[0]).committed_at if current else None,
        newest_commit=newest.committed_at if newest else None,
        epoch=read_epoch(directory),
    )


def _size(segment: Segment) -> int:
    try:
        return segment.path.stat().st_size
    except FileNotFoundError:  # removed since it was listed
        return 0


def _reader_state(reader: ReaderCommit, partitions: tuple[PartitionState, ...]) -> ReaderState:
    lag = sum(at.end - max(at.start, reader.offsets.get(at.partition, 0)) for at in partitions)
    return ReaderState(reader.name, lag, reader.committed_at)


# --- whether it is sound -------------------------------------------------------------------------------


@dataclass(slots=True)
class Verification:
    """What was read, and what is wrong: sentences that say where, what, and what to do."""

    segments: int
    records: int
    size: int
    problems: list[str]


def verify_topic(root: Path, topic: str, show: Callable[[Verification], None] = lambda _: None) -> Verification:
    """Read every byte of a topic; `show` is called after each segment. Raises TopicNotFoundError, LogError.

    Damage is no exception here: it is what was looked for.
    """
    found = Verification(0, 0, 0, [])
    catalog = read_catalog(root, topic)
    for shard_id, number in sorted(catalog.partitions.items(), key=lambda one: one[1]):
        directory = topic_directory(root, topic) / str(number)
        try:
            current, superseded = split_superseded(all_segments(directory))
        except SinkError as error:
            found.problems.append(str(error))
            continue
        found.problems += _gaps(current)
        last: Checkpoint | None = None
        for segment in current:
            last = _verify_segment(segment, catalog.stream, shard_id, last, found)
            show(found)
        for segment in superseded:
            _verify_segment(segment, catalog.stream, shard_id, None, found)
            show(found)
    return found


def _gaps(current: list[Segment]) -> Iterator[str]:
    for before, after in pairwise(current):
        if after.base > before.end:
            yield (
                f"{after.directory}: the offsets {before.end} to {after.base - 1} are missing. Restore their segments;"
                " readers stop there, or pass over them with failOnDataLoss=false"
            )
        if after.base < before.end:
            yield f"{after.path} and {before.path} claim the same offsets: one of them was copied here, move it away"


def _verify_segment(
    segment: Segment, stream: str, shard_id: str, last: Checkpoint | None, found: Verification
) -> Checkpoint | None:
    """Read one segment into what was found; return the position of its last record, or `last` if it has none."""
    try:
        batch, origin = read_segment(segment)
        found.segments += 1
        found.records += batch.num_rows
        found.size += segment.path.stat().st_size
    except (SinkError, FileNotFoundError) as error:
        found.problems.append(str(error))
        return last
    offsets = batch.column("offset")
    if offsets.to_pylist() != list(range(segment.base, segment.end)):
        found.problems.append(f"{segment.path}: its offsets are not {segment.base} to {segment.end - 1} one by one")
    if (origin.stream, origin.shard_id) != (stream, shard_id):
        found.problems.append(
            f"{segment.path} holds records of {origin.stream}/{origin.shard_id}, the catalogue gives its partition to"
            f" {stream}/{shard_id}: one was moved, put it back"
        )
    if last is not None and origin.first <= last:
        found.problems.append(
            f"{segment.path} starts at {origin.first}, and the segment before it ends at {last}: records are twice or"
            " out of order"
        )
    return origin.last
