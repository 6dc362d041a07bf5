"""Inspection of a topic without changing it: `inspect_topic` is quick, `verify_topic` reads and checks every byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from efo.model import Checkpoint
from efo_service.log.catalog import read_catalog, topic_directory
from efo_service.log.consistency import emptied_messages, read_checked_catalog, readers_ahead
from efo_service.log.fencing import read_epoch
from efo_service.log.reader_offsets import ReaderCommit, read_readers
from efo_service.log.segments import (
    MAX_LISTINGS,
    Origin,
    Segment,
    all_segments,
    check_owner,
    read_origin,
    read_segment,
    split_superseded,
)
from efo_service.relay.errors import LogIncompleteError, LogOwnerError, SegmentGoneError, SinkError, os_errors


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition, from its file names and its newest segment.

    `start`: the offset of the oldest record. `end`: the offset after the newest one. `segments`: number of current
    segments. `replaced`: number of superseded segments, which a later maintenance pass removes. `size`: bytes of both.
    `position`: the Kinesis position of the newest record. `epoch`: how often the partition was opened for writing.
    `oldest_commit`, `newest_commit`: seconds since the epoch.
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
class LiveFile:
    """A file with records that readers get: `start` to `end` - 1 are their offsets, `name` is its path or URL."""

    partition: int
    shard_id: str
    start: int
    end: int
    size: int
    name: str


def live_files(root: Path, topic: str) -> Iterator[LiveFile]:
    """Yield the current segments of a topic, by partition and offset. Raises TopicNotFoundError and SinkError.

    A compaction may supersede one at any time: its name is gone then, and whoever wanted it lists again.
    """
    for number, shard_id in read_catalog(root, topic).shards.items():
        for segment in split_superseded(all_segments(topic_directory(root, topic) / str(number)))[0]:
            yield LiveFile(number, shard_id, segment.base, segment.end, _size(segment), str(segment.path))


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A named reader. `lag`: how many records it has not committed. `committed_at`: None if its file is invalid."""

    name: str
    lag: int
    committed_at: float | None


@dataclass(frozen=True, slots=True)
class TopicState:
    """The state of a topic, its partitions and its readers. `problems`: what its catalog and directories contradict."""

    topic: str
    stream: str
    partitions: tuple[PartitionState, ...]
    readers: tuple[ReaderState, ...]
    problems: tuple[str, ...]


def inspect_topic(root: Path, topic: str) -> TopicState:
    """Return the state of a topic. Raises TopicNotFoundError, SegmentCorruptError, LogVersionError and SinkError."""
    catalog, problems = read_checked_catalog(root, topic)
    problems += emptied_messages(root, topic, catalog)
    directory = topic_directory(root, topic)
    partitions = tuple(
        _inspect_partition(directory / str(number), number, shard_id) for number, shard_id in catalog.shards.items()
    )
    readers = tuple(reader_state(reader, partitions) for reader in read_readers(root, topic))
    return TopicState(topic, catalog.stream, partitions, readers, tuple(problems))


def _inspect_partition(directory: Path, number: int, shard_id: str) -> PartitionState:
    for _ in range(MAX_LISTINGS - 1):
        with suppress(SegmentGoneError):
            return _inspect_partition_once(directory, number, shard_id)
    return _inspect_partition_once(directory, number, shard_id)


def _inspect_partition_once(directory: Path, number: int, shard_id: str) -> PartitionState:
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
    with os_errors("look at", segment.path):
        try:
            return segment.path.stat().st_size
        except FileNotFoundError:  # removed since it was listed
            return 0


def reader_state(reader: ReaderCommit, partitions: tuple[PartitionState, ...]) -> ReaderState:
    """Return how far a reader is behind these partitions."""
    lag = sum(at.end - max(at.start, reader.offsets.get(at.partition, 0)) for at in partitions)
    return ReaderState(reader.name, lag, reader.committed_at)


# --- verification --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Verification:
    """The result of a verification. `problems`: messages that say what is wrong, where, and what to do.

    `segments`, `records` and `size` (bytes) are what readers get. `superseded`: segments that were compacted, whose
    records are counted in what replaces them; `superseded_size`: their bytes.
    """

    segments: int = 0
    records: int = 0
    size: int = 0
    superseded: int = 0
    superseded_size: int = 0
    problems: list[str] = field(default_factory=list)


def verify_topic(root: Path, topic: str, on_segment: Callable[[Verification], None] = lambda _: None) -> Verification:
    """Read every byte of a topic; call `on_segment` after each segment. Raises TopicNotFoundError and LogError.

    Damage is returned as a problem, not raised, and so is what the catalog, the directories and the readers prove to be
    missing. Writers and maintenance may run meanwhile.
    """
    found = Verification()
    try:
        catalog, uncatalogued = read_checked_catalog(root, topic)
    except LogIncompleteError as error:
        found.problems.append(str(error))
        return found
    found.problems += uncatalogued
    found.problems += emptied_messages(root, topic, catalog)
    try:
        found.problems += readers_ahead(root, topic)
    except SinkError as error:
        found.problems.append(str(error))
    for number, shard_id in catalog.shards.items():
        directory = topic_directory(root, topic) / str(number)
        try:
            _Verifier(directory, catalog.stream, shard_id, found, on_segment).run()
        except SinkError as error:
            found.problems.append(str(error))
    return found


_NO_EPOCH = (
    "{} has segments, but no valid file epoch, which is older than each of them: a copy was restored in part. Compare"
    " it with the copy; the relay writes the file again when it opens the partition"
)


class _Verifier:
    """Verifies one partition. `_at`: all records before this offset are read. `_last`: the position of the last one."""

    def __init__(
        self,
        directory: Path,
        stream: str,
        shard_id: str,
        found: Verification,
        on_segment: Callable[[Verification], None],
    ) -> None:
        self._directory = directory
        self._stream = stream
        self._shard_id = shard_id
        self._found = found
        self._on_segment = on_segment
        self._at = 0
        self._last: Checkpoint | None = None

    def run(self) -> None:
        """Read all segments; list them again if one was compacted or has expired since it was listed."""
        listings_left = MAX_LISTINGS
        while listings_left:
            before = self._at
            with suppress(SegmentGoneError):
                current, superseded = split_superseded(all_segments(self._directory))
                for segment in current:
                    if segment.end > self._at:
                        self._read(segment)
                self._found.problems += _gaps(current)
                if current and not read_epoch(self._directory):
                    self._found.problems.append(_NO_EPOCH.format(self._directory))
                for segment in superseded:
                    with suppress(SegmentGoneError):  # maintenance may remove it at any time
                        self._verify(segment, None, is_superseded=True)
                return
            listings_left = listings_left - 1 if self._at == before else MAX_LISTINGS
        self._found.problems.append(f"{self._directory}: segments after offset {self._at} are listed but do not exist")

    def _read(self, segment: Segment) -> None:
        # A segment that was compacted meanwhile may begin with records that are already read: count them once.
        known = max(0, self._at - segment.base)
        origin = self._verify(segment, None if known else self._last)
        self._found.records -= known if origin is not None else 0
        self._at = segment.end
        self._last = self._last if origin is None else origin.last

    def _verify(self, segment: Segment, last: Checkpoint | None, *, is_superseded: bool = False) -> Origin | None:
        """Read the segment after the position `last`, add it to the result, and return its origin, None if damaged.

        Raises SegmentGoneError.
        """
        found = self._found
        try:
            batch, origin = read_segment(segment)
        except SegmentGoneError:
            raise
        except SinkError as error:
            found.problems.append(str(error))
            return None
        if is_superseded:
            found.superseded += 1
            found.superseded_size += _size(segment)
        else:
            found.segments += 1
            found.records += batch.num_rows
            found.size += _size(segment)
        found.problems += _problems(segment, batch, origin, last, (self._stream, self._shard_id))
        self._on_segment(found)
        return origin


def _problems(
    segment: Segment, batch: pa.RecordBatch, origin: Origin, last: Checkpoint | None, owner: tuple[str, str]
) -> Iterator[str]:
    if batch.column("offset").to_pylist() != list(range(segment.base, segment.end)):
        yield f"{segment.path}: its offsets are not exactly {segment.base} to {segment.end - 1}"
    try:
        check_owner(segment, origin, owner)
    except LogOwnerError as error:
        yield str(error)
        return
    topic, partition = ([*pc.unique(batch.column(name)).to_pylist()] for name in ("topic", "partition"))
    if (topic, partition) != ([segment.directory.parent.name], [int(segment.directory.name)]):
        yield f"{segment.path} was written as partition {partition} of the topic {topic}: it was moved, put it back"
    if last is not None and origin.first <= last:
        yield (
            f"{segment.path} starts at {origin.first}, but the previous segment ends at {last}: records are duplicated"
            " or out of order"
        )


def _gaps(current: list[Segment]) -> Iterator[str]:
    for before, after in pairwise(current):
        if after.base > before.end:
            yield (
                f"{after.directory}: offsets {before.end} to {after.base - 1} are missing: restore their segments, or"
                " read without them with failOnDataLoss=false"
            )
        if after.base < before.end:
            yield f"{after.path} and {before.path} have the same offsets: one of them was copied here, move it away"
