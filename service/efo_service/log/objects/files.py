"""The log on an object store: its documents and partitions. What they are is in efo_service.log.files.

A document is changed by compare-and-set. A partition remembers the newest commit that it has seen, so that looking for
the end again costs one small request where nothing is new. A pickled copy remembers nothing, and opens a store of its
own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Final

import pyarrow as pa

from efo_service.log.files import Content, Fields, Limits, ListedFile, Maintained, Owner, PartitionState, SizedSegment
from efo_service.log.objects import compaction, keys
from efo_service.log.objects.codec import checkpoint
from efo_service.log.objects.documents import update
from efo_service.log.objects.head import HeadSegment, has_run
from efo_service.log.objects.partition import Partition, ReadCommit
from efo_service.log.objects.turns import Turns
from efo_service.log.objects.writer import ObjectAppender, open_appender
from efo_service.object_store.remote import open_store
from efo_service.object_store.repeating import RepeatingStore
from efo_service.object_store.store import Store
from efo_service.object_store.url import StoreUrl
from efo_service.relay.errors import LogIncompleteError, LogOwnerError

_NUMBER: Final = re.compile(r"[0-9]{20}")


class ObjectFiles:
    """A log on an object store; implements LogFiles.

    `store`: None: that of `url`, opened when it is needed. `fold_commits`: see FOLD_COMMITS.
    """

    def __init__(
        self, store: Store | None = None, url: StoreUrl | None = None, *, fold_commits: int = compaction.FOLD_COMMITS
    ) -> None:
        self._opened = store
        self._url = url
        self._fold_commits = fold_commits
        self._turns: dict[str, Turns] = {}
        self._partitions: dict[tuple[str, int, Owner], ObjectPartition] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectFiles, (None, self._url)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectFiles) and other._url is not None and other._url == self._url

    def __hash__(self) -> int:
        return hash(str(self._url))

    @property
    def _store(self) -> Store:
        if self._opened is None:
            assert self._url is not None  # noqa: S101 - one of the two is given
            self._opened = RepeatingStore(open_store(self._url))
        return self._opened

    @property
    def name(self) -> str:
        """The URL."""
        return self._store.name if self._url is None else str(self._url)

    @property
    def restore(self) -> str:
        """How a lost or damaged document comes back."""
        return "restore an earlier version of it"

    @property
    def has_costly_listings(self) -> bool:
        """Each listing is one request or more."""
        return True

    @property
    def limits(self) -> Limits:
        """A commit waits for the network, so there are more; it is compressed, without the interpreter's lock."""
        return Limits(parallel_commits=32, bytes_in_loop=0, compacted_bytes=compaction.SEGMENT_BYTES)

    # --- documents -----------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """Return a document, None if there is none."""
        stored = self._store.get(name)
        return None if stored is None else stored.content

    def exists(self, name: str) -> bool:
        """Return whether there is such a document. It costs a small request."""
        return self._store.head(name, 1) is not None

    def update(self, name: str, change: Callable[[bytes | None], Fields | None]) -> None:
        """Change a document by compare-and-set. Raises StoreUnavailableError, SinkError, and what `change` raises."""
        update(self._store, name, change)

    def put(self, name: str, fields: Fields) -> None:
        """Write a document. Its content is compared and set, too: an answer may be lost."""
        update(self._store, name, lambda _content: fields)

    def remove(self, name: str) -> bool:
        """Remove a document. Return whether there was one."""
        was_there = self._store.get(name) is not None
        if was_there:
            self._store.delete([name])
        return was_there

    def names(self, folder: str) -> list[str]:
        """Return the names of the documents in a folder, sorted. It costs a listing."""
        found = (one.key.rpartition("/")[2] for one in self._store.keys(f"{folder}/"))
        return sorted(name for name in found if name.endswith(".json"))

    def folders(self, folder: str) -> list[str]:
        """Return the names of what has objects below it. It costs a listing."""
        return self._store.folders(f"{folder}/" if folder else "")

    # --- partitions ----------------------------------------------------------------------------------------

    def partition(self, topic: str, number: int, owner: Owner) -> ObjectPartition:
        """Return a partition."""
        key = topic, number, owner
        if key not in self._partitions:
            self._partitions[key] = ObjectPartition(self._store, topic, number, owner, self._fold_commits)
        return self._partitions[key]

    def uncatalogued(self, topic: str, folder: str, partitions: Mapping[str, int]) -> str:  # noqa: ARG002 - the protocol requires it
        """Return the message for a partition that the catalog does not name. Each has objects."""
        return (
            f"{self.name}/{topic}/{folder} has objects, but the catalog does not name this partition: restore the"
            " newest version of catalog.json, add the shard that its head.json"
            " names, or move the objects out of the log"
        )

    def no_topic(self, topic: str, known: Callable[[], list[str]]) -> str:
        """Return the message for a topic that does not exist."""
        return (
            f"the log {self.name} has no topic {topic!r}; it has: {', '.join(known()) or 'none'}; start the relay that"
            " writes it, or check the name"
        )

    @contextmanager
    def turn(self, topic: str, now: float) -> Iterator[float | None]:
        """Take a turn, by the store's clock: see Turns."""
        del now
        yield self._turns.setdefault(topic, Turns(self._store, topic)).take(self.restore)

    def without_writers(self, topic: str, partitions: Iterable[int]) -> AbstractContextManager[object]:  # noqa: ARG002 - the protocol requires it
        """Keep nobody out: an object store has no locks.

        An open writer of an emptied partition goes on in it until its next start; its commits are then in no partition
        of the catalog, which `efo log verify` reports. So an operator stops the relay first.
        """
        return nullcontext()


class ObjectPartition(Partition):
    """A partition on an object store; implements PartitionFiles.

    `_newest`: the number of the newest commit that was seen, and the offset at its end.
    """

    def __init__(self, store: Store, topic: str, number: int, owner: Owner, fold_commits: int) -> None:
        super().__init__(store, topic, number, owner)
        self._newest: tuple[int, int] | None = None
        self._fold_commits = fold_commits
        self._compactor = compaction.Compactor(store, self)

    @property
    def emptied_message(self) -> str:
        """The message for a partition without objects that had records."""
        return (
            f"{self.name} has no objects, but records were committed to it: restore them. Without a copy, stop the"
            " relay and run `efo log adopt`: the shard then continues in a new partition"
        )

    def has_records(self) -> bool:
        """Return whether there is a head. One that is lost or of another partition is a problem of its own."""
        with suppress(LogIncompleteError, LogOwnerError):
            return self.read_head() is not None
        return True

    def start(self) -> int:
        """Return the offset of the oldest record."""
        found = self.read_head()
        return found.head.start if found is not None else 0

    def end(self) -> int | None:
        """Return the offset after the newest record."""
        known = self._newest
        if known is not None:
            # A tombstone says as well as its commit where its records ended.
            newest = self.newest(known[0])
        elif self.read_head() is None:
            return None
        else:
            head, newest = self.live_end()
            known = head.next - 1, head.base
        self._newest = known if newest is None else (newest.number, newest.end)
        return self._newest[1]

    def timestamps(self) -> Iterator[tuple[int, pa.Array]]:
        """Yield the arrival times. All of the records are read."""
        for batch in self.parts(*self.bounds(), allow_gaps=True):
            yield batch.column("offset")[0].as_py(), batch.column("timestamp")

    def check(self) -> None:
        """Read the head, and look for the end: so an old copy of a head is found."""
        self.bounds()

    def state(self) -> PartitionState:
        """Return the state of the partition. `size`: of its segments, and of its newest commit for each live one."""
        number, shard_id = self.number, self.owner[1]
        if self.read_head() is None:
            return PartitionState(number, shard_id)
        head, newest = self.live_end()
        live = 0 if newest is None else newest.number + 1 - head.next
        return PartitionState(
            partition=number,
            shard_id=shard_id,
            segments=len(head.segments) + live,
            size=sum(segment.size for segment in head.segments) + live * (newest.size if newest else 0),
            start=head.start,
            end=head.base if newest is None else newest.end,
            position=head.last if newest is None else newest.last,
            oldest_commit=head.segments[0].written_at if head.segments else newest.committed_at if newest else None,
            newest_commit=newest.committed_at if newest else head.segments[-1].written_at if head.segments else None,
            epoch=head.epoch if newest is None else newest.epoch,
        )

    def files(self) -> Iterator[ListedFile]:
        """Yield the segments that the head names, then the live commits."""
        if self.read_head() is None:
            return
        head, newest = self.live_end()
        for segment in head.segments:
            name = f"{self._store.name}/{segment.key}"
            read = partial(self.read_segment, segment)
            yield ListedFile(name, partial(_content, read), segment.base, segment.end, segment.size)
        for number in range(head.next, head.next if newest is None else newest.number + 1):
            yield ListedFile(self.commit_name(number), partial(_content, partial(self.read_commit, number)))

    def findings(self) -> Iterator[str]:
        """Yield the first number below the live commits that is free: a stalled writer could commit there.

        It costs a listing: a request for each 1,000 tombstones.
        """
        if (found := self.read_head()) is None:
            return
        prefix = f"{keys.partition(self.topic, self.number)}/{keys.COMMITS}/"
        taken = bytearray(found.head.next)  # of a year with a commit each 5 s: 6 MB
        for one in self._store.keys(prefix):
            name = one.key.rpartition("/")[2]
            if _NUMBER.fullmatch(name) is not None and int(name) < len(taken):
                taken[int(name)] = 1
        if (free := taken.find(0)) >= 0:
            yield (
                f"{self._store.name}/{prefix}{free:020} does not exist: something else than efo deleted tombstones, so"
                " that a stalled writer is not refused there. Remove expiration rules of the bucket for the log"
            )

    def open(
        self, clock: Callable[[], float], check_cancelled: Callable[[], object], *, was_written: bool
    ) -> ObjectAppender:
        """Begin an epoch, which takes a number. `clock`: nothing depends on it but what is shown."""
        if was_written and self.read_head() is None:
            raise LogIncompleteError(self.emptied_message)
        return open_appender(self._store, self, clock, check_cancelled)

    # --- maintenance: only the head decides what there is ---------------------------------------------------

    def sweep(self, now: float, check_cancelled: Callable[[], object]) -> tuple[int, int]:
        """Fold the live commits if there are many or old ones, and clean up what a crash has left."""
        return self._compactor.sweep(now, self._fold_commits, check_cancelled)

    def maintained(self) -> Maintained:
        """Return the segments of the head. The live commits after it are not counted: they cost a request each."""
        if (read := self.read_head()) is None:
            return Maintained((), 0, 0, 0, 0, None)
        head = read.head
        sized = [SizedSegment(segment, segment.size, segment.memory) for segment in head.segments]
        oldest = head.segments[0] if head.segments else None
        return Maintained(sized, 0, len(sized), head.start, head.base, oldest)

    def replace(self, parts: Sequence[HeadSegment]) -> bool:
        """Merge neighbours."""
        read = self.read_head()
        return read is not None and has_run(read.head, parts) and self._compactor.merge(read, parts)

    def expire(self, segments: Sequence[HeadSegment], check_cancelled: Callable[[], object]) -> bool:
        """Take segments out of the head, all at once, and delete them."""
        check_cancelled()
        count, read = len(segments), self.read_head()
        return (
            read is not None and read.head.segments[:count] == tuple(segments) and self._compactor.expire(read, count)
        )

    def committed_at(self, segment: HeadSegment) -> float:
        """Return the store's time."""
        return segment.written_at


def _content(read: Callable[[], ReadCommit]) -> Content:
    header, batch, stored = read()
    return Content(header.base, header.end, checkpoint(header.first), header.position, batch, stored.size)
