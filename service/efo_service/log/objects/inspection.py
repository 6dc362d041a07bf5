"""Inspection of a topic on an object store: `inspect_topic` is quick, `verify_topic` reads and checks every byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from efo.model import Checkpoint
from efo_service.log.inspection import LiveFile, PartitionState, TopicState, Verification, reader_state
from efo_service.log.objects import keys
from efo_service.log.objects.catalog import read_catalog
from efo_service.log.objects.codec import checkpoint
from efo_service.log.objects.consistency import (
    emptied_messages,
    partition_of,
    read_checked_catalog,
    readers_ahead,
)
from efo_service.log.objects.head import Head
from efo_service.log.objects.partition import MAX_READS, Partition, ReadCommit
from efo_service.log.objects.reader_offsets import read_readers
from efo_service.relay.errors import LogIncompleteError, SegmentGoneError, SinkError
from efo_service.relay.object_store.store import Store

_NUMBER: Final = re.compile(r"[0-9]{20}")


def inspect_topic(store: Store, topic: str) -> TopicState:
    """Return the state of a topic. Raises TopicNotFoundError, SegmentCorruptError, LogVersionError and SinkError."""
    catalog, problems = read_checked_catalog(store, topic)
    problems += emptied_messages(store, topic, catalog)
    partitions: list[PartitionState] = []
    for number, shard_id in catalog.shards.items():
        try:
            partitions.append(_inspect(partition_of(store, topic, number, catalog), shard_id))
        except LogIncompleteError as error:
            problems.append(str(error))
    readers = tuple(reader_state(reader, tuple(partitions)) for reader in read_readers(store, topic))
    return TopicState(topic, catalog.stream, tuple(partitions), readers, tuple(problems))


def _inspect(partition: Partition, shard_id: str) -> PartitionState:
    """Return the state of a partition. `size`: of its segments, and of its newest commit for each live one."""
    if partition.read_head() is None:
        return PartitionState(partition.number, shard_id, 0, 0, 0, 0, 0, None, None, None, 0)
    head, newest = partition.live_end()
    live = 0 if newest is None else newest.number + 1 - head.next
    return PartitionState(
        partition=partition.number,
        shard_id=shard_id,
        segments=len(head.segments) + live,
        replaced=0,
        size=sum(segment.size for segment in head.segments) + live * (newest.size if newest else 0),
        start=head.start,
        end=head.base if newest is None else newest.end,
        position=head.last if newest is None else newest.last,
        oldest_commit=head.segments[0].written_at if head.segments else newest.committed_at if newest else None,
        newest_commit=newest.committed_at if newest else head.segments[-1].written_at if head.segments else None,
        epoch=head.epoch if newest is None else newest.epoch,
    )


def live_files(store: Store, topic: str) -> Iterator[LiveFile]:
    """Yield the objects of a topic that have records for readers, by partition and offset. Raises SinkError and kinds.

    The live commits cost a request each. A compaction may replace an object at any time.
    """
    catalog = read_catalog(store, topic)
    for number, shard_id in catalog.shards.items():
        partition = partition_of(store, topic, number, catalog)
        if partition.read_head() is None:
            continue
        head, newest = partition.live_end()
        for one in head.segments:
            name = f"{store.name}/{one.key}"
            yield LiveFile(number, shard_id, one.base, one.end, one.size, name)
        for at in range(head.next, head.next if newest is None else newest.number + 1):
            read = partition.read_commit(at)
            if read.batch.num_rows:
                name = f"{store.name}/{keys.commit(topic, number, at)}"
                yield LiveFile(number, shard_id, read.header.base, read.header.end, read.stored.size, name)


def verify_topic(store: Store, topic: str, on_segment: Callable[[Verification], None] = lambda _: None) -> Verification:
    """Read every byte of a topic; call `on_segment` after each object. Raises TopicNotFoundError and LogError.

    Damage is returned as a problem, not raised, and so is what the catalog, the partitions and the readers prove to be
    missing. Writers and maintenance may run meanwhile.
    """
    found = Verification()
    try:
        catalog, uncatalogued = read_checked_catalog(store, topic)
    except LogIncompleteError as error:
        found.problems.append(str(error))
        return found
    found.problems += uncatalogued
    found.problems += emptied_messages(store, topic, catalog)
    found.problems += readers_ahead(store, topic, catalog)
    for number in catalog.shards:
        try:
            _Verifier(store, partition_of(store, topic, number, catalog), found, on_segment).run()
        except SinkError as error:
            found.problems.append(str(error))
    return found


class _Verifier:
    """Verifies one partition. `_at`: all records before this offset are read. `_last`: the position of the last one."""

    def __init__(
        self, store: Store, partition: Partition, found: Verification, on_segment: Callable[[Verification], None]
    ) -> None:
        self._store = store
        self._partition = partition
        self._found = found
        self._on_segment = on_segment
        self._at = 0
        self._last: Checkpoint | None = None

    def run(self) -> None:
        """Read all segments and live commits; read the head again if one was compacted since."""
        reads_left = MAX_READS
        while reads_left:
            before = self._at
            if self._partition.read_head() is None:
                return
            head, newest = self._partition.live_end()
            try:
                for read in self._objects(head, head.next if newest is None else newest.number + 1):
                    self._add(read)
            except SegmentGoneError as error:
                reads_left = reads_left - 1 if self._at == before else MAX_READS
                if not reads_left:
                    self._found.problems.append(f"{error}, but {self._partition.name}/head.json names it: restore it")
            else:
                self._check_numbers(head)
                return

    def _objects(self, head: Head, end: int) -> Iterator[ReadCommit]:
        for segment in head.segments:
            if segment.end > self._at:
                try:
                    yield self._partition.read_segment(segment)
                except SegmentGoneError:
                    raise
                except SinkError as error:  # damaged: the others are still read
                    self._found.problems.append(str(error))
                    self._at, self._last = segment.end, None
        for number in range(head.next, end):
            try:
                read = self._partition.read_commit(number)
            except SegmentGoneError:
                raise
            except SinkError as error:
                self._found.problems.append(str(error))
                self._at = -1  # where the next one begins is not known
            else:
                if read.header.end > self._at and read.batch.num_rows:
                    yield read

    def _add(self, read: ReadCommit) -> None:
        header, found = read.header, self._found
        name = f"{self._partition.name}: offsets {header.base} to {header.end - 1}"
        known = max(0, self._at - header.base) if self._at >= 0 else 0
        if 0 <= self._at < header.base and self._at:
            found.problems.append(f"{self._partition.name}: offsets {self._at} to {header.base - 1} are missing")
        first = checkpoint(header.first)
        if not known and self._last is not None and first is not None and first <= self._last:
            found.problems.append(
                f"{name}: they start at {header.first}, but the records before end at {self._last}: records are"
                " duplicated or out of order"
            )
        if read.batch.column("offset").to_pylist() != list(range(header.base, header.end)):
            found.problems.append(f"{name}: the column has other offsets")
        topics = pa.compute.unique(read.batch.column("topic")).to_pylist()
        numbers = pa.compute.unique(read.batch.column("partition")).to_pylist()
        if (topics, numbers) != ([self._partition.topic], [self._partition.number]):
            found.problems.append(f"{name}: they were written as partition {numbers} of the topic {topics}")
        found.segments += 1
        found.records += read.batch.num_rows - known
        found.size += read.stored.size
        self._at, self._last = header.end, header.position
        self._on_segment(found)

    def _check_numbers(self, head: Head) -> None:
        """Report each number below the live commits that is free: a stalled writer could commit there.

        It costs a listing: a request for each 1,000 tombstones.
        """
        prefix = f"{keys.partition(self._partition.topic, self._partition.number)}/{keys.COMMITS}/"
        taken = bytearray(head.next)  # of a year with a commit each 5 s: 6 MB
        for one in self._store.keys(prefix):
            name = one.key.rpartition("/")[2]
            if _NUMBER.fullmatch(name) is not None and int(name) < head.next:
                taken[int(name)] = 1
        if (free := taken.find(0)) >= 0:
            self._found.problems.append(
                f"{self._store.name}/{prefix}{free:020} does not exist: something else than efo deleted tombstones, so"
                " that a stalled writer is not refused there. Remove expiration rules of the bucket for the log"
            )
