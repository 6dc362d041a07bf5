"""A log as its readers see it, wherever it is: `efo log`, the Spark source and the pipeline read it by this interface.

`open_readable` returns the log of a directory or of an object store. Both can be pickled, for Spark's executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from efo.model import Lease
from efo_service.log.catalog import Adoption, Catalog
from efo_service.log.inspection import LiveFile, TopicState, Verification
from efo_service.log.reader_offsets import ReaderCommit
from efo_service.relay.object_store.url import StoreUrl

if TYPE_CHECKING:
    import pyarrow as pa


class ReadableLog(Protocol):
    """A log that is read. Its methods raise SinkError and its kinds; see each implementation."""

    @property
    def name(self) -> str:
        """Where the log is, for messages: a path or a URL."""
        ...

    def where(self, topic: str, partition: int | None = None) -> str:
        """Return where a topic or a partition is, for messages."""
        ...

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        ...

    def uncatalogued_topics(self) -> list[str]:
        """Return the names of what has partitions, but no catalog."""
        ...

    def catalog(self, topic: str) -> Catalog:
        """Return a topic's catalog. Raises TopicNotFoundError and LogIncompleteError."""
        ...

    def checked_catalog(self, topic: str) -> tuple[Catalog, list[str]]:
        """Return a topic's catalog, and a message for each partition with records that it does not name."""
        ...

    def check(self, topic: str) -> None:
        """Compare the catalog with the partitions. Raises LogIncompleteError and LogOwnerError."""
        ...

    def start(self, topic: str, partition: int, catalog: Catalog) -> int:
        """Return the offset of the oldest record of a partition; the end if there is none."""
        ...

    def end(self, topic: str, partition: int, catalog: Catalog) -> int | None:
        """Return the offset after the newest record of a partition; None if it has nothing."""
        ...

    def emptied_message(self, topic: str, partition: int) -> str:
        """Return the message for a partition that has nothing, and had records."""
        ...

    def parts(
        self, topic: str, partition: int, start: int, end: int, catalog: Catalog, *, allow_gaps: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range of offsets, in order, with every byte checked."""
        ...

    def first_offset(self, topic: str, partition: int, milliseconds: int, catalog: Catalog) -> int | None:
        """Return the offset of the first record that arrived at this time or later, None if there is none."""
        ...

    def readers(self, topic: str) -> list[ReaderCommit]:
        """Return the named readers of a topic."""
        ...

    def commit_reader(self, topic: str, name: str, offsets: Mapping[int, int], now: float) -> None:
        """Write durably that a reader is done with all records before these offsets."""
        ...

    def remove_reader(self, topic: str, name: str) -> bool:
        """Forget a reader, durably, so that retention waits for it no more. Return whether there was one."""
        ...

    def inspect(self, topic: str) -> TopicState:
        """Return the state of a topic, without reading all of it."""
        ...

    def live_files(self, topic: str) -> Iterator[LiveFile]:
        """Yield the files of a topic that have records for readers, by partition and offset."""
        ...

    def verify(self, topic: str, on_segment: Callable[[Verification], None]) -> Verification:
        """Read every byte of a topic."""
        ...

    def plan_adoption(self, topic: str, leases: Iterable[Lease]) -> list[Adoption]:
        """Return what `adopt` would do."""
        ...

    def adopt(self, topic: str, stream: str, adoptions: Iterable[Adoption]) -> dict[str, int]:
        """Give shards new partitions, durably; return the numbers by shard."""
        ...

    def continue_with(self, topic: str, stream: str, created_at: float) -> None:
        """Let a topic go on with another stream of its name, durably: its partitions are read, and written no more."""
        ...


def open_readable(root: Path | StoreUrl) -> ReadableLog:
    """Return a log to read. Raises UnavailableError if the client of object stores is not installed."""
    if isinstance(root, StoreUrl):
        from efo_service.log.objects.readable import ObjectLog  # noqa: PLC0415 - only if it is used

        return ObjectLog(root)
    from efo_service.log.local_log import LocalLog  # noqa: PLC0415 - the same

    return LocalLog(root)
