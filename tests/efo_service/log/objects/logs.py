"""A log in memory with one shard, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from efo.model import Checkpoint, Record
from efo_service.log.columns.layout import columns_of
from efo_service.log.objects.compaction import Compactor
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.objects.partition import Partition
from efo_service.log.partition_writer import PartitionWriter, open_partition
from efo_service.object_store.memory import MemoryStore
from efo_service.object_store.store import Store

STREAM, SHARD, TOPIC = "orders", "shardId-000000000000", "orders"
FIRST = 49590338271490256608559692538361571095921575989136588898


def make_records(count: int, start: int = 0) -> tuple[Record, ...]:
    return tuple(
        Record(
            sequence_number=str(FIRST + number),
            approximate_arrival_timestamp=1_700_000_000 + number / 1000,
            data=b"value-%d" % number,
            partition_key=f"key-{number % 7}",
        )
        for number in range(start, start + count)
    )


def prepare(writer: PartitionWriter, records: Sequence[Record]) -> Any:
    """Let a writer prepare a commit of these records."""
    return writer.prepare([columns_of(records, writer.mapping)])


def number_of(position: Checkpoint | None) -> int:
    """The number of the record after this position."""
    return 0 if position is None else int(position.sequence_number) - FIRST + 1


class Log:
    """A log in memory with one shard, as the tests use it."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.memory = store or MemoryStore()
        self.writers: list[PartitionWriter] = []

    def client(self) -> MemoryStore:
        return self.memory.client()

    def writer(self, store: Store | None = None, *, stream: str = STREAM, shard_id: str = SHARD) -> PartitionWriter:
        return open_partition(ObjectFiles(store or self.memory), TOPIC, stream, shard_id, lambda: 1_800_000_000.25)

    def append(self, writer: PartitionWriter, count: int) -> None:
        """Commit the next records of the shard after the writer's position."""
        writer.append(make_records(count, number_of(writer.position)))

    def partition(self, store: Store | None = None) -> Partition:
        return Partition(store or self.memory, TOPIC, 0, (STREAM, SHARD))

    def compactor(self, store: Store | None = None) -> Compactor:
        return Compactor(store or self.memory, self.partition(store))

    def fold(self, store: Store | None = None) -> None:
        read = self.partition(store).read_head()
        assert read is not None
        compactor = self.compactor(store)
        compactor.tombstone(read.head)
        compactor.fold(read)

    def merge(self, store: Store | None = None) -> None:
        """Merge all segments, and clean up."""
        compactor = self.compactor(store)
        read = self.partition(store).read_head()
        if read is not None and len(read.head.segments) > 1:
            compactor.merge(read, read.head.segments)
        compactor.remove_orphans()

    def expire(self, store: Store | None = None) -> None:
        """Let all segments expire."""
        read = self.partition(store).read_head()
        if read is not None and read.head.segments:
            self.compactor(store).expire(read, len(read.head.segments))

    def values(self, start: int | None = None) -> list[tuple[int, bytes]]:
        """The offsets and values that a reader gets, from the oldest record or from `start` on."""
        partition = self.partition()
        first, end = partition.bounds()
        return [
            (row["offset"], row["value"])
            for batch in partition.parts(first if start is None else start, end)
            for row in batch.to_pylist()
        ]

    def check(self, count: int | None = None) -> int:
        """Check that each record is there once, at its own offset, from the oldest one on. Return the end."""
        start, end = self.partition().bounds()
        assert self.values() == [(number, b"value-%d" % number) for number in range(start, end)]
        assert count is None or end == count
        return end

    def commits(self) -> list[str]:
        return sorted(key for key in self.memory.objects if "/commits/" in key)
