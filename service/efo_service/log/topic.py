"""A topic of the log as its readers and operators see it: `efo log`, the Spark source and `efo.read_log` ask it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from efo_service.log.catalog import Catalog, read_catalog
from efo_service.log.files import LogFiles, PartitionFiles
from efo_service.object_store.url import StoreUrl


@dataclass(frozen=True)
class Topic:
    """A topic of the log `files`, and its catalog, which was read once: so one plan looks at one state."""

    files: LogFiles
    name: str
    catalog: Catalog

    @property
    def where(self) -> str:
        """Where the topic is, for messages."""
        return f"{self.files.name}/{self.name}"

    def partition(self, number: int) -> PartitionFiles:
        """Return a partition of the catalog."""
        return self.files.partition(self.name, number, self.catalog.owner(number))


def read_topic(files: LogFiles, name: str) -> Topic:
    """Return a topic with its catalog of now. Raises as `read_catalog` does."""
    return Topic(files, name, read_catalog(files, name))


def log_files(root: Path | StoreUrl, *, mapped: bool = False) -> LogFiles:
    """Return a log to read. `mapped`: map files of a disk into memory, see `segments.read_segment`.

    Raises UnavailableError if the client of object stores is not installed.
    """
    if isinstance(root, StoreUrl):
        from efo_service.log.objects.files import ObjectFiles  # noqa: PLC0415 - only if it is used

        return ObjectFiles(url=root)
    from efo_service.log.disk import DiskFiles  # noqa: PLC0415 - the same

    return DiskFiles(root, mapped)
