"""The log on a disk: its documents and partitions. What they are is in efo_service.log.files.

A document that several processes change is replaced under a lock, and one of a single writer without: so a reader never
sees an incomplete file. The names of directories are synced too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from efo_service.log.catalog import check_topic_name
from efo_service.log.fencing import read_epoch, removed_on_error
from efo_service.log.files import Content, Fields, ListedFile, Owner, PartitionState
from efo_service.log.segments import (
    MAX_LISTINGS,
    Segment,
    all_segments,
    check_owner,
    has_segments,
    last_segment,
    list_segments,
    read_origin,
    read_parts,
    read_segment,
    read_timestamps,
    split_superseded,
)
from efo_service.relay.errors import LogOwnerError, SegmentGoneError, SinkError, SinkLockedError, os_errors
from efo_service.relay.files import read_regular
from efo_service.relay.storage import lock, names, sync, sync_directory

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DiskFiles:
    """A log in a directory; implements LogFiles. `mapped`: map segments into memory, see `read_segment`."""

    root: Path
    mapped: bool = False

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.root)

    @property
    def restore(self) -> str:
        """How a lost or damaged document comes back."""
        return "restore it from a copy"

    @property
    def has_costly_listings(self) -> bool:
        """A listing of a directory costs nothing."""
        return False

    # --- documents -----------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """Return a document, None if there is none."""
        path = self.root / name
        with os_errors("read", path):
            return read_regular(path) if path.exists() else None

    def exists(self, name: str) -> bool:
        """Return whether there is such a document."""
        with os_errors("look at", self.root / name):
            return (self.root / name).exists()

    def update(self, name: str, change: Callable[[bytes | None], Fields | None]) -> None:
        """Change a document under its lock. Raises SinkFullError, SinkError, and what `change` raises."""
        path = self.root / name
        with os_errors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with lock(path.with_suffix(".lock")):
                fields = change(read_regular(path) if path.exists() else None)
                if fields is None:
                    return
                temporary = path.with_suffix(".tmp")
                with temporary.open("w") as file:
                    json.dump(fields, file, indent=1)
                    sync(file)
                temporary.rename(path)
                sync_directory(path.parent)
                sync_directory(path.parent.parent)

    def put(self, name: str, fields: Fields) -> None:
        """Write a document, as private as the topic: the process of a query has another umask than the relay."""
        path = self.root / name
        temporary = path.with_name(f"{path.stem}.{os.getpid()}.tmp")
        with os_errors("write", path):
            mode = path.parent.parent.stat().st_mode & 0o770
            path.parent.mkdir(mode=mode, exist_ok=True)
            with removed_on_error(temporary):
                with open(temporary, "w", opener=partial(os.open, mode=mode & 0o660)) as file:
                    json.dump(fields, file)
                    sync(file)
                temporary.rename(path)
            sync_directory(path.parent)

    def remove(self, name: str) -> bool:
        """Remove a document, durably. Return whether there was one."""
        path = self.root / name
        with os_errors("remove", path):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
            sync_directory(path.parent)
        return True

    def names(self, folder: str) -> list[str]:
        """Return the names of the documents in a folder, sorted."""
        return sorted(name for name in self.folders(folder) if name.endswith(".json"))

    def folders(self, folder: str) -> list[str]:
        """Return all names in a folder, of files too: to look at each would cost a call."""
        directory = self.root / folder if folder else self.root
        with os_errors("list", directory):
            return sorted(names(directory)) if directory.is_dir() else []

    # --- partitions ----------------------------------------------------------------------------------------

    def partition(self, topic: str, number: int, owner: Owner) -> DiskPartition:
        """Return a partition, to read."""
        return DiskPartition(self.root / topic / str(number), number, owner, self.mapped)

    def uncatalogued(self, topic: str, folder: str, partitions: Mapping[str, int]) -> str | None:
        """Return the message for a directory that the catalog does not name, None if it has no segments."""
        directory = self.root / topic / folder
        if not has_segments(directory):
            return None
        what = f"{directory} has segments, but the catalog does not name this partition"
        shard_id = _shard_of(directory)
        if shard_id is None:
            return f"{what}: restore catalog.json from a copy"
        if shard_id in partitions:
            return (
                f"{what}: its shard {shard_id} has the partition {partitions[shard_id]}. Keep the segments of"
                " one of the two, and move the others out of the log"
            )
        return f'{what}: restore catalog.json from a copy, or add "{shard_id}": {folder} to its partitions'

    def no_topic(self, topic: str, known: Callable[[], list[str]]) -> str:
        """Return the message for a topic that is not there: what is there instead, and what to do."""
        root = self.root
        missing = f"the log {root} has no topic {topic!r}"
        with os_errors("look at", root):
            if not root.exists():
                below = (
                    ""
                    if root.is_absolute()
                    else f" in {Path.cwd()}, where a relative path begins: give an absolute one"
                )
                where = f"this machine has no such directory{below}"
                return f"{missing}: {where}; start the relay that writes it, or check the path"
            if not root.is_dir():
                return f"{missing}: it is a file, and a log is a directory; check the path"
            if (root / "catalog.json").exists():
                return f"{missing}: it is itself a topic of the log {root.parent}; use that path"
        if not (others := ", ".join(known())):
            return (
                f"{missing}, nor any other: it is no log, or empty; start the relay that writes it, or check the path"
            )
        return f"{missing}; it has: {others}; start the relay that writes it, or check the name"

    @contextmanager
    def without_writers(self, topic: str, partitions: Iterable[int]) -> Iterator[None]:
        """Lock these partitions. Raises SinkLockedError if a writer has one of them open."""
        with ExitStack() as locks:
            for number in partitions:
                directory = self.root / topic / str(number)
                if not directory.exists():
                    continue
                with os_errors("open", directory):
                    try:
                        locks.enter_context(lock(directory / "writer.lock", wait=False))
                    except BlockingIOError as error:
                        raise SinkLockedError(f"{directory} is open in a writer: stop the relay first") from error
            yield


def _shard_of(directory: Path) -> str | None:
    """Return the shard that a partition's newest segment names, None if it is damaged."""
    with suppress(SinkError):
        segment = last_segment(directory)
        return None if segment is None else read_origin(segment).shard_id
    return None


_NO_EPOCH = (
    "{} has segments, but no valid file epoch, which is older than each of them: a copy was restored in part. Compare"
    " it with the copy; the relay writes the file again when it opens the partition"
)


@dataclass(frozen=True, slots=True)
class DiskPartition:
    """A partition in a directory; implements PartitionFiles.

    A reader needs no lock: what it has listed may be compacted meanwhile, and then it lists again.
    """

    directory: Path
    number: int
    owner: Owner
    mapped: bool = False

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.directory)

    @property
    def emptied_message(self) -> str:
        """The message for a directory without segments that had records."""
        return emptied_message(self.directory)

    def has_records(self) -> bool:
        """Return whether there is any segment, whatever its name."""
        return has_segments(self.directory)

    def start(self) -> int:
        """Return the offset of the oldest record."""
        segments = list_segments(self.directory)
        return segments[0].base if segments else 0

    def end(self) -> int | None:
        """Return the offset after the newest record."""
        last = last_segment(self.directory)
        return None if last is None else last.end

    def parts(self, start: int, end: int, *, allow_gaps: bool) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range of offsets."""
        for _, batch in read_parts(self.directory, start, end, self.owner, allow_gaps=allow_gaps, mapped=self.mapped):
            yield batch

    def timestamps(self) -> Iterator[tuple[int, pa.Array]]:
        """Yield the arrival times: of each segment this column alone, without its checksum."""
        for listing in range(1, MAX_LISTINGS + 1):
            try:
                for segment in list_segments(self.directory):
                    times, origin = read_timestamps(segment)
                    check_owner(segment, origin, self.owner)
                    yield segment.base, times
            except SegmentGoneError:
                if listing == MAX_LISTINGS:
                    raise
            else:
                return

    def check(self) -> None:
        """Raise LogOwnerError if the directory was moved. Damage is left to those who read the whole segment."""
        try:
            if (segment := last_segment(self.directory)) is not None:
                try:
                    check_owner(segment, read_origin(segment), self.owner)
                except LogOwnerError:
                    read_segment(segment)  # damage may name another owner
                    raise
        except LogOwnerError:
            raise
        except SinkError:
            return

    def state(self) -> PartitionState:
        """Return the state of the partition. Raises SegmentGoneError after MAX_LISTINGS listings."""
        for _ in range(MAX_LISTINGS - 1):
            with suppress(SegmentGoneError):
                return self._state()
        return self._state()

    def _state(self) -> PartitionState:
        current, superseded = split_superseded(all_segments(self.directory))
        newest = read_origin(current[-1]) if current else None
        return PartitionState(
            partition=self.number,
            shard_id=self.owner[1],
            segments=len(current),
            replaced=len(superseded),
            size=sum(_size(segment) for segment in (*current, *superseded)),
            start=current[0].base if current else 0,
            end=current[-1].end if current else 0,
            position=str(newest.last) if newest else None,
            oldest_commit=read_origin(current[0]).committed_at if current else None,
            newest_commit=newest.committed_at if newest else None,
            epoch=read_epoch(self.directory),
        )

    def files(self) -> Iterator[ListedFile]:
        """Yield the current segments, then the superseded ones."""
        current, superseded = split_superseded(all_segments(self.directory))
        for segments, is_superseded in ((current, False), (superseded, True)):
            for one in segments:
                read = partial(self._content, one)
                yield ListedFile(str(one.path), read, one.base, one.end, _size(one), is_superseded)

    def _content(self, segment: Segment) -> Content:
        batch, origin = read_segment(segment)
        check_owner(segment, origin, self.owner)
        return Content(segment.base, segment.end, origin.first, origin.last, batch, _size(segment))

    def findings(self) -> Iterator[str]:
        """Yield segments with the same offsets, and a lost epoch."""
        current, _ = split_superseded(all_segments(self.directory))
        for before, after in pairwise(current):
            if after.base < before.end:
                yield f"{after.path} and {before.path} have the same offsets: one of them was copied here, move it away"
        if current and not read_epoch(self.directory):
            yield _NO_EPOCH.format(self.directory)


def topic_directory(root: Path, topic: str) -> Path:
    """Return the directory of a topic. Raises ConfigurationError if the topic's name is invalid."""
    return root / check_topic_name(topic)


def emptied_message(directory: Path) -> str:
    """Return the message for the directory of a partition without segments that had records."""
    return (
        f"{directory} has no segment, but records were committed to it: restore"
        " its segments from a copy. Without a copy, stop the relay and run `efo log adopt`: the shard then continues"
        " in a new partition"
    )


def _size(segment: Segment) -> int:
    with os_errors("look at", segment.path):
        try:
            return segment.path.stat().st_size
        except FileNotFoundError:  # removed since it was listed
            return 0
