"""The log on a disk, as its readers see it: see efo_service.log.readable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from efo.model import Lease
from efo_service.log import adoption, catalog, consistency, inspection, reader_offsets
from efo_service.log.catalog import Adoption, Catalog, topic_directory
from efo_service.log.inspection import LiveFile, TopicState, Verification
from efo_service.log.reader_offsets import ReaderCommit
from efo_service.log.segments import last_segment, list_segments, read_parts
from efo_service.log.times import first_offset


@dataclass(frozen=True)
class LocalLog:
    """A log in a directory. `mapped`: map segments into memory, see `read_segment`."""

    root: Path
    mapped: bool = False

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.root)

    def where(self, topic: str, partition: int | None = None) -> str:
        """Return the directory of a topic or a partition."""
        return str(self.root / topic if partition is None else self._directory(topic, partition))

    def _directory(self, topic: str, partition: int) -> Path:
        return topic_directory(self.root, topic) / str(partition)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return catalog.topics(self.root)

    def uncatalogued_topics(self) -> list[str]:
        """Return the names of what has partitions, but no catalog."""
        return catalog.uncatalogued_topics(self.root)

    def catalog(self, topic: str) -> Catalog:
        """Return a topic's catalog."""
        return catalog.read_catalog(self.root, topic)

    def checked_catalog(self, topic: str) -> tuple[Catalog, list[str]]:
        """Return a topic's catalog, and a message for each partition that it does not name."""
        return consistency.read_checked_catalog(self.root, topic)

    def check(self, topic: str) -> None:
        """Compare the catalog with the partitions."""
        consistency.check_topic(self.root, topic)

    def start(self, topic: str, partition: int, catalog: Catalog) -> int:  # noqa: ARG002 - the protocol requires it
        """Return the offset of the oldest record."""
        segments = list_segments(self._directory(topic, partition))
        return segments[0].base if segments else 0

    def end(self, topic: str, partition: int, catalog: Catalog) -> int | None:  # noqa: ARG002 - the protocol requires it
        """Return the offset after the newest record."""
        last = last_segment(self._directory(topic, partition))
        return None if last is None else last.end

    def emptied_message(self, topic: str, partition: int) -> str:
        """Return the message for a partition that was emptied."""
        return consistency.emptied_message(self._directory(topic, partition))

    def parts(
        self, topic: str, partition: int, start: int, end: int, catalog: Catalog, *, allow_gaps: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range of offsets."""
        owner = (catalog.stream, catalog.shards[partition])
        directory = self._directory(topic, partition)
        for _, batch in read_parts(directory, start, end, owner, allow_gaps=allow_gaps, mapped=self.mapped):
            yield batch

    def first_offset(self, topic: str, partition: int, milliseconds: int, catalog: Catalog) -> int | None:
        """Return the offset of the first record that arrived at this time or later."""
        owner = (catalog.stream, catalog.shards[partition])
        return first_offset(self._directory(topic, partition), milliseconds, owner)

    def readers(self, topic: str) -> list[ReaderCommit]:
        """Return the named readers of a topic."""
        return reader_offsets.read_readers(self.root, topic)

    def commit_reader(self, topic: str, name: str, offsets: Mapping[int, int], now: float) -> None:
        """Write the offsets of a reader."""
        reader_offsets.commit_reader(self.root, topic, name, offsets, now)

    def remove_reader(self, topic: str, name: str) -> bool:
        """Forget a reader."""
        return reader_offsets.remove_reader(self.root, topic, name)

    def inspect(self, topic: str) -> TopicState:
        """Return the state of a topic."""
        return inspection.inspect_topic(self.root, topic)

    def live_files(self, topic: str) -> Iterator[LiveFile]:
        """Yield the current segments."""
        return inspection.live_files(self.root, topic)

    def verify(self, topic: str, on_segment: Callable[[Verification], None]) -> Verification:
        """Read every byte of a topic."""
        return inspection.verify_topic(self.root, topic, on_segment)

    def plan_adoption(self, topic: str, leases: Iterable[Lease]) -> list[Adoption]:
        """Return what `adopt` would do."""
        return adoption.plan_adoption(self.root, topic, leases)

    def adopt(self, topic: str, stream: str, adoptions: Iterable[Adoption]) -> dict[str, int]:
        """Give shards new partitions."""
        return adoption.adopt_into(self.root, topic, stream, adoptions)

    def continue_with(self, topic: str, stream: str, created_at: float) -> None:
        """Let a topic go on with another stream of its name."""
        adoption.continue_with(self.root, topic, stream, created_at)
