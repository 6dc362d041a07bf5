"""A log as its readers and operators see it: `efo log`, the Spark source, the pipeline and `efo.read_log` use it.

`open_readable` returns the log of a directory or of an object store. It can be pickled, for Spark's executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from efo.model import Lease
from efo_service.log import catalog as catalogs, consistency, inspection, reader_offsets
from efo_service.log.catalog import Adoption, Catalog, partition_of
from efo_service.log.files import LogFiles
from efo_service.log.inspection import LiveFile, TopicState, Verification
from efo_service.log.reader_offsets import ReaderCommit
from efo_service.object_store.url import StoreUrl


@dataclass(frozen=True)
class ReadableLog:
    """A log, wherever its files are. Its methods raise SinkError and its kinds, as the functions that they call do.

    A `catalog` that a method gets is one that was read: so one plan looks at one state.
    """

    files: LogFiles
    _checked: dict[str, Catalog] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Where the log is, for messages: a path or a URL."""
        return self.files.name

    def where(self, topic: str, partition: int | None = None) -> str:
        """Return where a topic or a partition is, for messages."""
        return f"{self.name}/{topic}" + ("" if partition is None else f"/{partition}")

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return catalogs.topics(self.files)

    def uncatalogued_topics(self) -> list[str]:
        """Return the names of what has partitions, but no catalog."""
        return catalogs.uncatalogued_topics(self.files)

    def catalog(self, topic: str) -> Catalog:
        """Return a topic's catalog. Raises TopicNotFoundError and LogIncompleteError."""
        return catalogs.read_catalog(self.files, topic)

    def checked_catalog(self, topic: str) -> tuple[Catalog, list[str]]:
        """Return a topic's catalog, and a message for each partition with records that it does not name.

        Where a listing costs a request, a catalog that has not changed since it was found to be right is not compared
        again.
        """
        if topic in self._checked and self._checked[topic] == (catalog := self.catalog(topic)):
            return catalog, []
        catalog, problems = consistency.read_checked_catalog(self.files, topic)
        if self.files.has_costly_listings and not problems:
            self._checked[topic] = catalog
        return catalog, problems

    def check(self, topic: str) -> None:
        """Compare the catalog with the partitions. Raises LogIncompleteError and LogOwnerError."""
        consistency.check_topic(self.files, topic)

    def start(self, topic: str, partition: int, catalog: Catalog) -> int:
        """Return the offset of the oldest record of a partition; the end if there is none."""
        return partition_of(self.files, topic, partition, catalog).start()

    def end(self, topic: str, partition: int, catalog: Catalog) -> int | None:
        """Return the offset after the newest record of a partition; None if it has nothing."""
        return partition_of(self.files, topic, partition, catalog).end()

    def emptied_message(self, topic: str, partition: int, catalog: Catalog) -> str:
        """Return the message for a partition that has nothing, and had records."""
        return partition_of(self.files, topic, partition, catalog).emptied_message

    def parts(
        self, topic: str, partition: int, start: int, end: int, catalog: Catalog, *, allow_gaps: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range of offsets, in order, with every byte checked."""
        return partition_of(self.files, topic, partition, catalog).parts(start, end, allow_gaps=allow_gaps)

    def first_offset(self, topic: str, partition: int, milliseconds: int, catalog: Catalog) -> int | None:
        """Return the offset of the first record that arrived at this time or later, None if there is none.

        As a broker does it for Spark's Kafka source. Arrival times are not quite ascending, so all are looked at, from
        the oldest on. `milliseconds`: since the epoch.
        """
        for base, times in partition_of(self.files, topic, partition, catalog).timestamps():
            limit = pa.scalar(min(milliseconds * 1000, 2**63 - 1), times.type)
            index: int = pc.index(pc.greater_equal(times, limit), value=True).as_py()
            if index >= 0:
                return base + index
        return None

    def readers(self, topic: str) -> list[ReaderCommit]:
        """Return the named readers of a topic."""
        return reader_offsets.read_readers(self.files, topic)

    def commit_reader(self, topic: str, name: str, offsets: Mapping[int, int], now: float) -> None:
        """Write durably that a reader is done with all records before these offsets."""
        reader_offsets.commit_reader(self.files, topic, name, offsets, now)

    def remove_reader(self, topic: str, name: str) -> bool:
        """Forget a reader, durably, so that retention waits for it no more. Return whether there was one."""
        return reader_offsets.remove_reader(self.files, topic, name)

    def inspect(self, topic: str) -> TopicState:
        """Return the state of a topic, without reading all of it."""
        return inspection.inspect_topic(self.files, topic)

    def live_files(self, topic: str) -> Iterator[LiveFile]:
        """Yield the files of a topic that have records for readers, by partition and offset."""
        return inspection.live_files(self.files, topic)

    def verify(self, topic: str, on_segment: Callable[[Verification], None]) -> Verification:
        """Read every byte of a topic."""
        return inspection.verify_topic(self.files, topic, on_segment)

    def plan_adoption(self, topic: str, leases: Iterable[Lease]) -> list[Adoption]:
        """Return what `adopt` would do."""
        return consistency.plan_adoption(self.files, topic, leases)

    def adopt(self, topic: str, stream: str, adoptions: Iterable[Adoption]) -> dict[str, int]:
        """Give shards new partitions, durably; return the numbers by shard."""
        return consistency.adopt_into(self.files, topic, stream, adoptions)

    def continue_with(self, topic: str, stream: str, created_at: float) -> None:
        """Let a topic go on with another stream of its name, durably: its partitions are read, and written no more."""
        consistency.continue_with(self.files, topic, stream, created_at)


def open_readable(root: Path | StoreUrl, *, mapped: bool = False) -> ReadableLog:
    """Return a log to read. `mapped`: map files of a disk into memory, see `segments.read_segment`.

    Raises UnavailableError if the client of object stores is not installed.
    """
    if isinstance(root, StoreUrl):
        from efo_service.log.objects.files import ObjectFiles  # noqa: PLC0415 - only if it is used

        return ReadableLog(ObjectFiles(url=root))
    from efo_service.log.disk import DiskFiles  # noqa: PLC0415 - the same

    return ReadableLog(DiskFiles(root, mapped))
