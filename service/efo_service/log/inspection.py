"""Inspection of a topic without changing it: `inspect_topic` is quick, `verify_topic` reads and checks every byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import pyarrow.compute as pc

from efo.model import Checkpoint
from efo_service.log.consistency import checked_topic, emptied_messages, readers_ahead
from efo_service.log.files import Content, ListedFile, LogFiles, PartitionFiles, PartitionState
from efo_service.log.reader_offsets import ReaderCommit, read_readers
from efo_service.log.topic import read_topic
from efo_service.relay.errors import LogIncompleteError, SegmentGoneError, SinkError

MAX_READS: Final = 5
"""How often the files of a partition are listed without progress, if some of them are gone."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file with records that readers get: `start` to `end` - 1 are their offsets, `name` is its path or URL."""

    partition: int
    shard_id: str
    start: int
    end: int
    size: int
    name: str


def live_files(files: LogFiles, name: str) -> Iterator[LiveFile]:
    """Yield the current files of a topic, by partition and offset. Raises TopicNotFoundError and SinkError.

    A compaction may supersede one at any time: its name is gone then, and whoever wanted it lists again.
    """
    topic = read_topic(files, name)
    for number, shard_id in topic.catalog.shards.items():
        for one in topic.partition(number).files():
            if one.base is not None and one.end is not None:
                if not one.is_superseded:
                    yield LiveFile(number, shard_id, one.base, one.end, one.size, one.name)
            elif (content := one.read()).batch.num_rows:
                yield LiveFile(number, shard_id, content.base, content.end, content.size, one.name)


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A named reader. `lag`: how many records it has not committed. `committed_at`: None if its file is invalid."""

    name: str
    lag: int
    committed_at: float | None


@dataclass(frozen=True, slots=True)
class TopicState:
    """The state of a topic, its partitions and its readers. `problems`: what its catalog and partitions contradict."""

    topic: str
    stream: str
    partitions: tuple[PartitionState, ...]
    readers: tuple[ReaderState, ...]
    problems: tuple[str, ...]


def inspect_topic(files: LogFiles, name: str) -> TopicState:
    """Return the state of a topic. Raises TopicNotFoundError, SegmentCorruptError, LogVersionError and SinkError."""
    topic, problems = checked_topic(files, name)
    problems += emptied_messages(topic)
    partitions: list[PartitionState] = []
    for number in topic.catalog.shards:
        try:
            partitions.append(topic.partition(number).state())
        except LogIncompleteError as error:
            problems.append(str(error))
    readers = tuple(_reader_state(reader, partitions) for reader in read_readers(files, name))
    return TopicState(name, topic.catalog.stream, tuple(partitions), readers, tuple(problems))


def _reader_state(reader: ReaderCommit, partitions: list[PartitionState]) -> ReaderState:
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


def verify_topic(
    files: LogFiles, name: str, on_segment: Callable[[Verification], None] = lambda _: None
) -> Verification:
    """Read every byte of a topic; call `on_segment` after each file. Raises TopicNotFoundError and LogError.

    Damage is returned as a problem, not raised, and so is what the catalog, the partitions and the readers prove to be
    missing. Writers and maintenance may run meanwhile.
    """
    found = Verification()
    try:
        topic, uncatalogued = checked_topic(files, name)
    except LogIncompleteError as error:
        found.problems.append(str(error))
        return found
    found.problems += uncatalogued
    found.problems += emptied_messages(topic)
    try:
        found.problems += readers_ahead(topic)
    except SinkError as error:
        found.problems.append(str(error))
    for number in topic.catalog.shards:
        try:
            _Verifier(topic.partition(number), (name, number), found, on_segment).run()
        except SinkError as error:
            found.problems.append(str(error))
    return found


class _Verifier:
    """Verifies one partition. `place`: its topic and its number.

    `_at`: all records before this offset are read. `_last`: the position of the last one. `_gaps`: what is missing
    between the files of one listing, of which `_listed` is the offset that the next one must have; None: not known.
    """

    def __init__(
        self,
        files: PartitionFiles,
        place: tuple[str, int],
        found: Verification,
        on_segment: Callable[[Verification], None],
    ) -> None:
        self._files = files
        self._place = place
        self._found = found
        self._on_segment = on_segment
        self._at = 0
        self._last: Checkpoint | None = None
        self._listed: int | None = None
        self._gaps: list[str] = []

    def run(self) -> None:
        """Read all files; list them again if one was compacted or has expired since it was listed."""
        reads_left = MAX_READS
        while True:
            before = self._at
            self._listed, self._gaps = None, []
            try:
                for one in self._files.files():
                    self._read(one)
            except SegmentGoneError as error:
                reads_left = reads_left - 1 if self._at == before else MAX_READS
                if not reads_left:
                    self._found.problems.append(
                        f"{self._files.name}: files after offset {self._at} are listed but do not exist: restore them"
                        f" ({error})"
                    )
                    return
            else:
                self._found.problems += self._gaps
                self._found.problems += self._files.findings()
                return

    def _read(self, one: ListedFile) -> None:
        if one.is_superseded:
            with suppress(SegmentGoneError):  # maintenance may remove it at any time
                self._check(one, None)
            return
        content = self._check(one, self._last) if one.end is None or one.end > self._at else None
        base, end = (one.base, one.end) if content is None else (content.base, content.end)
        if self._listed is not None and base is not None and base > self._listed:
            self._gaps.append(
                f"{self._files.name}: offsets {self._listed} to {base - 1} are missing: restore their segments, or"
                " read without them with failOnDataLoss=false"
            )
        self._listed = end
        if end is not None and end > self._at:
            self._at = end
            self._last = self._last if content is None else content.last

    def _check(self, one: ListedFile, last: Checkpoint | None) -> Content | None:
        """Read a file after the position `last`, and add it to the result. Return None if it is damaged.

        Raises SegmentGoneError.
        """
        found = self._found
        try:
            content = one.read()
        except SegmentGoneError:
            raise
        except SinkError as error:
            found.problems.append(str(error))
            return None
        # A file that was compacted meanwhile may begin with records that are already read: count them once.
        known = max(0, self._at - content.base)
        if one.is_superseded:
            found.superseded += 1
            found.superseded_size += content.size
        elif content.end > self._at and content.batch.num_rows:
            found.segments += 1
            found.records += content.batch.num_rows - known
            found.size += content.size
        else:
            return content
        found.problems += self._problems(one, content, None if known else last)
        self._on_segment(found)
        return content

    def _problems(self, one: ListedFile, content: Content, last: Checkpoint | None) -> Iterator[str]:
        batch = content.batch
        if batch.column("offset").to_pylist() != list(range(content.base, content.end)):
            yield f"{one.name}: its offsets are not exactly {content.base} to {content.end - 1}"
        topics, numbers = ([*pc.unique(batch.column(name)).to_pylist()] for name in ("topic", "partition"))
        if (topics, numbers) != ([self._place[0]], [self._place[1]]):
            yield f"{one.name} was written as partition {numbers} of the topic {topics}: it was moved, put it back"
        if last is not None and content.first is not None and content.first <= last:
            yield (
                f"{one.name} starts at {content.first}, but the previous one ends at {last}: records are duplicated"
                " or out of order"
            )
