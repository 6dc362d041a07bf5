"""A partition on a disk: its segments, to read, to append to and to maintain.

A reader needs no lock: what it has listed may be compacted meanwhile, and then it lists again. A writer has the lock
and the newest epoch of the partition (efo_service.log.fencing), and each of its commits is one rename.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from efo_service.log.compaction import compact, covered_parts, put_aside, remove, remove_superseded
from efo_service.log.disk_writer import DiskAppender
from efo_service.log.fencing import begin_epoch, read_epoch
from efo_service.log.files import Content, ListedFile, Maintained, Owner, PartitionState, SizedSegment
from efo_service.log.segments import (
    MAX_LISTINGS,
    Segment,
    all_segments,
    check_owner,
    has_segments,
    last_segment,
    list_segments,
    memory_of,
    read_origin,
    read_parts,
    read_segment,
    read_timestamps,
    split_superseded,
)
from efo_service.relay.errors import (
    LogOwnerError,
    SegmentGoneError,
    SinkError,
    SinkLockedError,
    os_errors,
)
from efo_service.relay.storage import lock, sync_directory

if TYPE_CHECKING:
    import pyarrow as pa


GRACE_SECONDS: Final = 60.0
"""How long superseded segments stay, under a name of their own: on a shared file system, a reader may map one."""
_NO_EPOCH: Final = (
    "{} has segments, but no valid file epoch, which is older than each of them: a copy was restored in part. Compare"
    " it with the copy; the relay writes the file again when it opens the partition"
)


@dataclass(frozen=True, slots=True)
class DiskPartition:
    """A partition in a directory; implements PartitionFiles. `mapped`, `grace`: see DiskFiles.

    Its newest segment is never touched but by its writer, and superseded ones stay for `grace` seconds.
    """

    directory: Path
    number: int
    owner: Owner
    mapped: bool = False
    grace: float = GRACE_SECONDS
    _memory: dict[Segment, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.directory)

    @property
    def emptied_message(self) -> str:
        """The message for a directory without segments that had records."""
        return (
            f"{self.directory} has no segment, but records were committed to it: restore its segments from a copy."
            " Without a copy, stop the relay and run `efo log adopt`: the shard then continues in a new partition"
        )

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
        current, superseded = self._listed()
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
        current, superseded = self._listed()
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
        current, _ = self._listed()
        for before, after in pairwise(current):
            if after.base < before.end:
                yield f"{after.path} and {before.path} have the same offsets: one of them was copied here, move it away"
        if current and not read_epoch(self.directory):
            yield _NO_EPOCH.format(self.directory)

    # --- writing -------------------------------------------------------------------------------------------

    def open(
        self, clock: Callable[[], float], check_cancelled: Callable[[], object], *, was_written: bool
    ) -> DiskAppender:
        """Lock the partition, begin an epoch, and recover. `clock` is not needed. Raises SinkLockedError and others."""
        del clock
        directory, shard_id = self.directory, self.owner[1]
        with os_errors("open", directory):
            directory.mkdir(exist_ok=True)
            sync_directory(directory.parent)
        in_use = (
            f"{directory} is open in another writer: {shard_id} has two workers, or a stopping worker has not finished"
            " its last commit"
        )
        held = lock_for_writing(directory, in_use)
        try:
            check_cancelled()
            opened = DiskAppender(begin_epoch(directory), self.owner, held)
            opened.recover(self.emptied_message if was_written else None)
        except BaseException:
            held.close()
            raise
        return opened

    # --- maintenance ---------------------------------------------------------------------------------------

    def sweep(self, now: float, check_cancelled: Callable[[], object]) -> tuple[int, int]:
        """Remove what was compacted `grace` seconds ago. All commits are segments."""
        del check_cancelled
        remove_superseded(*self._listed(), before=now - self.grace)
        return 0, 0

    def maintained(self) -> Maintained:
        """Return all segments but the newest one, which belongs to the writer."""
        current, superseded = self._listed()
        known = dict(self._memory)
        self._memory.clear()
        for segment in current[:-1]:
            self._memory[segment] = known[segment] if segment in known else memory_of(segment)
        return Maintained(
            segments=[SizedSegment(segment, _size(segment), self._memory[segment]) for segment in current[:-1]],
            kept=sum(_size(segment) for segment in (*current[-1:], *superseded)),
            current=len(current),
            start=current[0].base if current else 0,
            end=current[-1].end if current else 0,
            oldest=current[0] if current else None,
        )

    def replace(self, parts: Sequence[Segment]) -> bool:
        """Compact neighbours, and give them the name of superseded ones."""
        whole = compact(parts)
        for part in parts:
            if part != whole:
                put_aside(part)
        return True

    def expire(self, segments: Sequence[Segment], check_cancelled: Callable[[], object]) -> bool:
        """Remove segments, and of each its superseded parts first: without it they would count again."""
        parts: dict[Segment, list[Segment]] = {}
        for cover, part in covered_parts(*self._listed()):
            parts.setdefault(cover, []).append(part)
        for segment in segments:
            for one in (*parts.get(segment, ()), segment):
                remove(one)
            check_cancelled()
        return True

    def committed_at(self, segment: Segment) -> float:
        """Read it from the file's footer."""
        return read_origin(segment).committed_at

    def _listed(self) -> tuple[list[Segment], list[Segment]]:
        return split_superseded(all_segments(self.directory))


def lock_for_writing(directory: Path, in_use: str) -> IO[bytes]:
    """Return the lock of a partition's writer. Raises SinkLockedError with the message `in_use`, and SinkError."""
    with os_errors("open", directory):
        try:
            return lock(directory / "writer.lock", wait=False)
        except BlockingIOError as error:
            raise SinkLockedError(in_use) from error


def _size(segment: Segment) -> int:
    with os_errors("look at", segment.path):
        try:
            return segment.path.stat().st_size
        except FileNotFoundError:  # removed since it was listed
            return 0
