"""The seam below the log: where its documents and the files of its partitions are.

What the log is, is the same everywhere: a catalog, partitions, reader offsets (efo_service.log.catalog, consistency,
inspection, topic). What a disk (efo_service.log.disk) and an object store (efo_service.log.objects.files) do in
different ways is here. The seam is at partitions, not at keys: an object store never deletes the key of a commit, so
that a stalled writer is refused for ever; a disk with such tombstones would have millions of them, and has a lock and
an epoch instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from efo.model import Checkpoint
from efo.third_party_errors import reason_of
from efo_service.relay.errors import LogError, LogVersionError
from efo_service.relay.files import parse_json, whole_number

if TYPE_CHECKING:
    import pyarrow as pa

Fields = Mapping[str, Any]


def never() -> None:
    """Is never cancelled."""


Owner = tuple[str, str]
"""The stream and the shard of a partition, by the catalog."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition, from the names of its files and its newest segment.

    `start`: the offset of the oldest record. `end`: the offset after the newest one. `segments`: number of current
    segments. `replaced`: number of superseded segments, which a later maintenance pass removes. `size`: bytes of both.
    `position`: the Kinesis position of the newest record. `epoch`: how often the partition was opened for writing.
    `oldest_commit`, `newest_commit`: seconds since the epoch.
    """

    partition: int
    shard_id: str
    segments: int = 0
    replaced: int = 0
    size: int = 0
    start: int = 0
    end: int = 0
    position: str | None = None
    oldest_commit: float | None = None
    newest_commit: float | None = None
    epoch: int = 0


class Content(NamedTuple):
    """A file's records, with every byte checked: the offsets `base` to `end` - 1.

    `first`, `last`: their Kinesis positions, None if there are none. `size`: bytes of the file.
    """

    base: int
    end: int
    first: Checkpoint | None
    last: Checkpoint | None
    batch: pa.RecordBatch
    size: int


class ListedFile(NamedTuple):
    """A file of a partition. `name`: its path or URL.

    `read`: returns its content; raises SegmentGoneError if it was compacted or has expired since it was listed, and
    SinkError. `base`, `end`: its offsets, None if only its content says them. `size`: its bytes, 0 if that is not
    known. `is_superseded`: its records are in a larger file.
    """

    name: str
    read: Callable[[], Content]
    base: int | None = None
    end: int | None = None
    size: int = 0
    is_superseded: bool = False


class Span(Protocol):
    """A segment as its partition knows it: the offsets `base` to `end` - 1. Equal ones are the same segment."""

    @property
    def base(self) -> int: ...  # noqa: D102 - see above
    @property
    def end(self) -> int: ...  # noqa: D102 - see above
    def __hash__(self) -> int: ...


class SizedSegment(NamedTuple):
    """A segment, its bytes, and the bytes of its records in memory, 0 if they are not compressed."""

    segment: Any
    size: int
    memory: int = 0

    @property
    def weight(self) -> int:
        """How many bytes who reads it needs in memory."""
        return self.memory or self.size


class Maintained(NamedTuple):
    """A partition as maintenance sees it.

    `segments`: those that may be replaced or expire, in order. `kept`: the bytes of what must stay. `current`: how many
    segments there are. `oldest`: the first of them. `start`, `end`: the offsets of the oldest record and after the
    newest one.
    """

    segments: Sequence[SizedSegment]
    kept: int
    current: int
    start: int
    end: int
    oldest: Span | None


class Documents(Protocol):
    """The small JSON files of a log, by their names below its root. All methods raise SinkError and its kinds."""

    def read(self, name: str) -> bytes | None:
        """Return a document, None if there is none."""
        ...

    def exists(self, name: str) -> bool:
        """Return whether there is such a document."""
        ...

    def update(self, name: str, change: Callable[[bytes | None], Fields | None]) -> None:
        """Change a document that several processes change, durably.

        `change` gets what is there, and returns the new fields; None if there is nothing to do. It may be called again,
        and must then have the same effect as if it was called once.
        """
        ...

    def put(self, name: str, fields: Fields) -> None:
        """Write a document that only one process writes, durably."""
        ...

    def remove(self, name: str) -> bool:
        """Remove a document, durably. Return whether there was one."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of the documents in a folder, without it, sorted; none if it does not exist."""
        ...


class Appender(Protocol):
    """A partition that is open for writing. Only one thread at a time uses it."""

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position of the last durable record (rule R12), None if there is none."""
        ...

    @property
    def end(self) -> int:
        """The offset of the next record."""
        ...

    def lay_out(self, batch: pa.RecordBatch, first: Checkpoint, last: Checkpoint, now: float) -> Any:
        """Return the next commit for `append`, without I/O.

        `batch`: records from `end` on. `first`, `last`: their Kinesis positions. `now`: seconds since the epoch.
        """
        ...

    def append(self, laid_out: Any) -> None:
        """Make a commit durable, records and position in one step.

        After an error whose `reopens` is false, call it again with the same commit: it is then made once, also if the
        first call has made it. Raises SinkFencedError if another writer has opened the partition since, and SinkError.
        """
        ...

    def close(self) -> None:
        """Release the partition."""
        ...


class PartitionFiles(Protocol):
    """The files of one partition. All methods raise SinkError and its kinds."""

    @property
    def name(self) -> str:
        """Where the partition is, for messages: a path or a URL."""
        ...

    @property
    def emptied_message(self) -> str:
        """The message for a partition that has nothing, and had records."""
        ...

    def has_records(self) -> bool:
        """Return whether there is any file that may have records, valid or not."""
        ...

    def start(self) -> int:
        """Return the offset of the oldest record; the end if there is none."""
        ...

    def end(self) -> int | None:
        """Return the offset after the newest record; None if the partition has nothing."""
        ...

    def parts(self, start: int, end: int, *, allow_gaps: bool) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range of offsets, in order, with every byte checked."""
        ...

    def timestamps(self) -> Iterator[tuple[int, pa.Array]]:
        """Yield the arrival times of the records, after the offset of the first of them. It may begin again."""
        ...

    def check(self) -> None:
        """Compare the newest records with the catalog, without reading all. Raises LogOwnerError and others."""
        ...

    def state(self) -> PartitionState:
        """Return the state of the partition, without reading all of it."""
        ...

    def files(self) -> Iterator[ListedFile]:
        """Yield the current files in the order of their offsets, then the superseded ones."""
        ...

    def findings(self) -> Iterator[str]:
        """Yield what is wrong with the files beside their contents, in messages."""
        ...

    def open(self, clock: Callable[[], float], check_cancelled: Callable[[], object], *, was_written: bool) -> Appender:
        """Open the partition for writing: fence all earlier writers, and recover, with every byte of the newest file.

        `clock`: seconds since the epoch. `check_cancelled` is called before others are fenced, and may raise: who has
        lost the shard must not fence its next owner. `was_written`: whether the catalog says that it has records.
        Raises LogIncompleteError if it had and has none, SinkLockedError if another writer has it open,
        SegmentCorruptError, LogOwnerError, LogVersionError and others.
        """
        ...

    # --- maintenance: only in the turn of this process (LogFiles) ------------------------------------------

    def sweep(self, now: float, check_cancelled: Callable[[], object]) -> tuple[int, int]:
        """Remove what was replaced and nobody reads any more, and make segments of commits that are none.

        Return how many commits became how many segments. `now`: that of the turn.
        """
        ...

    def maintained(self) -> Maintained:
        """Return what there is."""
        ...

    def replace(self, parts: Sequence[Any]) -> bool:
        """Make neighbouring segments one, durably, with every byte checked. Return False if another process was faster.

        Who reads them meanwhile gets their records.
        """
        ...

    def expire(self, segments: Sequence[Any], check_cancelled: Callable[[], object]) -> bool:
        """Remove the oldest segments, in order. Return False if another process was faster."""
        ...

    def committed_at(self, segment: Any) -> float:
        """Return when the last record of a segment was committed, in seconds since the epoch."""
        ...


class Limits(NamedTuple):
    """What suits a kind of storage.

    `parallel_commits`: how many shards may commit at once. `bytes_in_loop`: a commit of up to so many bytes is laid out
    by the event loop: in a thread, which needs the interpreter's lock for it, it slows the reading down by more than it
    takes. `compacted_bytes`: segments of this size or more are not compacted again.
    """

    parallel_commits: int
    bytes_in_loop: int
    compacted_bytes: int


class LogFiles(Documents, Protocol):
    """A log: its documents and its partitions. Its implementations can be pickled, for Spark's executors."""

    @property
    def name(self) -> str:
        """Where the log is, for messages: a path or a URL."""
        ...

    @property
    def restore(self) -> str:
        """How a lost or damaged document comes back, for messages: 'restore it from ...'."""
        ...

    @property
    def has_costly_listings(self) -> bool:
        """Whether a listing costs money: a request."""
        ...

    @property
    def limits(self) -> Limits:
        """What suits this kind of storage."""
        ...

    def folders(self, folder: str) -> list[str]:
        """Return the names of what may be a folder in a folder ('' is the root); none if it does not exist."""
        ...

    def partition(self, topic: str, number: int, owner: Owner) -> PartitionFiles:
        """Return a partition."""
        ...

    def uncatalogued(self, topic: str, folder: str, partitions: Mapping[str, int]) -> str | None:
        """Return the message for a partition's folder that the catalog does not name; None if it has no records.

        `partitions`: those that the catalog names, by shard.
        """
        ...

    def no_topic(self, topic: str, known: Callable[[], list[str]]) -> str:
        """Return the message for a topic that does not exist. `known`: returns those that do."""
        ...

    def turn(self, topic: str, now: float) -> AbstractContextManager[float | None]:
        """Return a context in which this process maintains a topic. It has the time now, None if another process does.

        `now`: seconds since the epoch, by this process.
        """
        ...

    def without_writers(self, topic: str, partitions: Iterable[int]) -> AbstractContextManager[object]:
        """Return a context in which no writer has these partitions open. Entering raises SinkLockedError."""
        ...


def parse_fields(content: bytes, name: str, restore: str, newest: int) -> Fields:
    """Return the fields of a document. `newest`: its newest format. Raises LogVersionError and LogError."""
    try:
        fields = parse_json(content)
        version = whole_number(fields["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(f"{name} is not valid ({reason_of(error)}): {restore}") from error
    if version > newest:
        raise LogVersionError(f"{name} has format version {version}, but this efo supports up to {newest}: upgrade efo")
    checked: Fields = fields
    return checked
