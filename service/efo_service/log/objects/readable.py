"""The log on an object store, as its readers see it: see efo_service.log.readable.

It remembers the newest commit of each partition that it has seen, so that looking for the end again costs one small
request where nothing is new. A pickled copy remembers nothing, and opens a store of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from efo.model import Lease
from efo_service.log.catalog import Adoption, Catalog
from efo_service.log.inspection import LiveFile, TopicState, Verification
from efo_service.log.objects import catalog as catalogs, consistency, inspection, reader_offsets
from efo_service.log.objects.partition import Partition
from efo_service.log.objects.writer import emptied_message
from efo_service.log.reader_offsets import ReaderCommit
from efo_service.log.segments import SCHEMA
from efo_service.relay.object_store.remote import open_store
from efo_service.relay.object_store.repeating import RepeatingStore
from efo_service.relay.object_store.store import Store
from efo_service.relay.object_store.url import StoreUrl


class ObjectLog:
    """A log at a URL. `store`: opened if it is needed and None."""

    def __init__(self, url: StoreUrl, store: Store | None = None) -> None:
        self._url = url
        self._opened = store
        self._checked: dict[str, Catalog] = {}
        self._newest: dict[tuple[str, int], tuple[int, int]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectLog, (self._url,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectLog) and other._url == self._url

    def __hash__(self) -> int:
        return hash(str(self._url))

    @property
    def name(self) -> str:
        """The URL."""
        return str(self._url)

    @property
    def _store(self) -> Store:
        if self._opened is None:
            self._opened = RepeatingStore(open_store(self._url))
        return self._opened

    def where(self, topic: str, partition: int | None = None) -> str:
        """Return the URL of a topic or a partition."""
        return f"{self._url}/{topic}" + ("" if partition is None else f"/{partition}")

    def _partition(self, topic: str, partition: int, catalog: Catalog) -> Partition:
        return consistency.partition_of(self._store, topic, partition, catalog)

    def topics(self) -> list[str]:
        """Return the names of all topics. It costs a listing of the topics, and a request for each."""
        return catalogs.topics(self._store)

    def uncatalogued_topics(self) -> list[str]:
        """Return the names of what has partitions, but no catalog."""
        return catalogs.uncatalogued_topics(self._store)

    def catalog(self, topic: str) -> Catalog:
        """Return a topic's catalog."""
        return catalogs.read_catalog(self._store, topic)

    def checked_catalog(self, topic: str) -> tuple[Catalog, list[str]]:
        """Return a topic's catalog, and a message for each partition that it does not name.

        That costs a listing of the partitions. A catalog that has not changed since is not compared again.
        """
        catalog = self.catalog(topic)
        if self._checked.get(topic) == catalog:
            return catalog, []
        catalog, problems = consistency.read_checked_catalog(self._store, topic)
        if not problems:
            self._checked[topic] = catalog
        return catalog, problems

    def check(self, topic: str) -> None:
        """Compare the catalog with the partitions."""
        consistency.check_topic(self._store, topic)

    def start(self, topic: str, partition: int, catalog: Catalog) -> int:
        """Return the offset of the oldest record."""
        found = self._partition(topic, partition, catalog).read_head()
        return found.head.start if found is not None else 0

    def end(self, topic: str, partition: int, catalog: Catalog) -> int | None:
        """Return the offset after the newest record."""
        log = self._partition(topic, partition, catalog)
        known = self._newest.get((topic, partition))
        if known is not None:
            # A tombstone says as well as its commit where its records ended.
            newest = log.newest(known[0])
        elif log.read_head() is None:
            return None
        else:
            head, newest = log.live_end()
            known = head.next - 1, head.base
        self._newest[topic, partition] = known if newest is None else (newest.number, newest.end)
        return self._newest[topic, partition][1]

    def emptied_message(self, topic: str, partition: int) -> str:
        """Return the message for a partition that was emptied."""
        return emptied_message(self.where(topic, partition))

    def parts(
        self, topic: str, partition: int, start: int, end: int, catalog: Catalog, *, allow_gaps: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range of offsets."""
        return self._partition(topic, partition, catalog).parts(start, end, allow_gaps=allow_gaps)

    def first_offset(self, topic: str, partition: int, milliseconds: int, catalog: Catalog) -> int | None:
        """Return the offset of the first record that arrived at this time or later. It reads from the oldest on."""
        limit = pa.scalar(min(milliseconds * 1000, 2**63 - 1), SCHEMA.field("timestamp").type)
        log = self._partition(topic, partition, catalog)
        for batch in log.parts(*log.bounds(), allow_gaps=True):
            index: int = pc.index(pc.greater_equal(batch.column("timestamp"), limit), value=True).as_py()
            if index >= 0:
                offset: int = batch.column("offset")[index].as_py()
                return offset
        return None

    def readers(self, topic: str) -> list[ReaderCommit]:
        """Return the named readers of a topic."""
        return reader_offsets.read_readers(self._store, topic)

    def commit_reader(self, topic: str, name: str, offsets: Mapping[int, int], now: float) -> None:
        """Write the offsets of a reader."""
        reader_offsets.commit_reader(self._store, topic, name, offsets, now)

    def remove_reader(self, topic: str, name: str) -> bool:
        """Forget a reader."""
        return reader_offsets.remove_reader(self._store, topic, name)

    def inspect(self, topic: str) -> TopicState:
        """Return the state of a topic."""
        return inspection.inspect_topic(self._store, topic)

    def live_files(self, topic: str) -> Iterator[LiveFile]:
        """Yield the objects with records."""
        return inspection.live_files(self._store, topic)

    def verify(self, topic: str, on_segment: Callable[[Verification], None]) -> Verification:
        """Read every byte of a topic."""
        return inspection.verify_topic(self._store, topic, on_segment)

    def plan_adoption(self, topic: str, leases: Iterable[Lease]) -> list[Adoption]:
        """Return what `adopt` would do."""
        return consistency.plan_adoption(self._store, topic, leases)

    def adopt(self, topic: str, stream: str, adoptions: Iterable[Adoption]) -> dict[str, int]:
        """Give shards new partitions."""
        return consistency.adopt_into(self._store, topic, stream, adoptions)

    def continue_with(self, topic: str, stream: str, created_at: float) -> None:
        """Let a topic go on with another stream of its name."""
        catalogs.continue_with(self._store, topic, stream, created_at)
