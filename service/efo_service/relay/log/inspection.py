"""Looks at a topic of the log without changing it: what there is (quick), and whether all of it is sound (reads it)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from efo.model import Checkpoint
from efo_service.relay.errors import SegmentGoneError, SinkError
from efo_service.relay.log.catalog import read_catalog, topic_directory
from efo_service.relay.log.fencing import read_epoch
from efo_service.relay.log.reader_offsets import ReaderCommit, read_readers
from efo_service.relay.log.segments import (
    LOOKS,
    Origin,
    Segment,
    all_segments,
    read_origin,
    read_segment,
    split_superseded,
)


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
    for _ in range(LOOKS - 1):
        with suppress(SegmentGoneError):
            return _look_at_partition(directory, number, shard_id)
    return _look_at_partition(directory, number, shard_id)


def _look_at_partition(directory: Path, number: int, shard_id: str) -> PartitionState:
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

    Damage is no exception here: it is what was looked for. The log may be written and kept up meanwhile.
    """
    found = Verification(0, 0, 0, [])
    catalog = read_catalog(root, topic)
    for shard_id, number in sorted(catalog.partitions.items(), key=lambda one: one[1]):
        directory = topic_directory(root, topic) / str(number)
        try:
            _Verifier(directory, catalog.stream, shard_id, found, show).run()
        except SinkError as error:
            found.problems.append(str(error))
    return found


class _Verifier:
    """Reads one partition. `at`: all segments up to this offset were read; `last`: the position of its last record."""

    def __init__(
        self, directory: Path, stream: str, shard_id: str, found: Verification, show: Callable[[Verification], None]
    ) -> None:
        self._directory = directory
        self._stream = stream
        self._shard_id = shard_id
        self._found = found
        self._show = show
        self._at = 0
        self._last: Checkpoint | None = None

    def run(self) -> None:
        """Read what there is; again where it was rolled up or has expired since it was listed."""
        looks = LOOKS
        while looks:
            before = self._at
            with suppress(SegmentGoneError):
                current, superseded = split_superseded(all_segments(self._directory))
                for segment in current:
                    if segment.end > self._at:
                        self._read(segment)
                self._found.problems += _gaps(current)
                for segment in superseded:
                    with suppress(SegmentGoneError):  # it was waiting for that
                        self._verify(segment, None)
                return
            looks = looks - 1 if self._at == before else LOOKS
        self._found.problems.append(f"{self._directory}: what is listed after the offset {self._at} cannot be found")

    def _read(self, segment: Segment) -> None:
        # One that was rolled up meanwhile may begin with records that were read already: they are counted once.
        known = max(0, self._at - segment.base)
        origin = self._verify(segment, None if known else self._last)
        self._found.records -= known if origin is not None else 0
        self._at = segment.end
        self._last = self._last if origin is None else origin.last

    def _verify(self, segment: Segment, last: Checkpoint | None) -> Origin | None:
        """Read a segment, which comes after `last`, into what was found; return its origin. Raises SegmentGoneError."""
        found = self._found
        try:
            batch, origin = read_segment(segment)
        except SegmentGoneError:
            raise
        except SinkError as error:
            found.problems.append(str(error))
            return None
        found.segments += 1
        found.records += batch.num_rows
        found.size += _size(segment)
        found.problems += _problems(segment, batch, origin, last, f"{self._stream}/{self._shard_id}")
        self._show(found)
        return origin


def _problems(
    segment: Segment, batch: pa.RecordBatch, origin: Origin, last: Checkpoint | None, owner: str
) -> Iterator[str]:
    if batch.column("offset").to_pylist() != list(range(segment.base, segment.end)):
        yield f"{segment.path}: its offsets are not {segment.base} to {segment.end - 1} one by one"
    if f"{origin.stream}/{origin.shard_id}" != owner:
        yield (
            f"{segment.path} holds records of {origin.stream}/{origin.shard_id}, the catalogue gives its partition to"
            f" {owner}: one was moved, put it back"
        )
    if last is not None and origin.first <= last:
        yield (
            f"{segment.path} starts at {origin.first}, and the segment before it ends at {last}: records are twice or"
            " out of order"
        )


def _gaps(current: list[Segment]) -> Iterator[str]:
    for before, after in pairwise(current):
        if after.base > before.end:
            yield (
                f"{after.directory}: the offsets {before.end} to {after.base - 1} are missing. Restore their segments;"
                " readers stop there, or pass over them with failOnDataLoss=false"
            )
        if after.base < before.end:
            yield f"{after.path} and {before.path} claim the same offsets: one of them was copied here, move it away"
