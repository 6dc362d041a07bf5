"""Compaction: neighbouring small segments become one larger, compressed segment. Blocking, but for the plan.

A commit makes a segment however small it is, and each segment costs: a name to list, a file to open, five pages that
do not depend on its size. `plan_compaction` puts neighbours together in tiers, as a log-structured merge does: FAN_IN
small segments of a tier make one of the next tier, and a compressed segment of COMPACTED_BYTES is never compacted
again. So a record is rewritten three times at most, and a partition has about a hundred small segments at most, at any
commit rate. What is not compressed does not wait for others once it has the size of the last tier.

A crash may come between any two steps. The compacted segment appears by one rename. From then on its parts are
superseded: `put_aside` gives them another name, for readers that take every `*.arrow`, and `remove_superseded` deletes
them once no reader can still have one open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import pyarrow as pa

from efo_service.log.disk_writer import segment_content, write_segment
from efo_service.log.files import SizedSegment
from efo_service.log.segments import Origin, Segment, read_segment
from efo_service.relay.errors import LogOwnerError, SegmentGoneError, SinkError, os_errors

KIB: Final = 1024
MIB: Final = 1024 * KIB
COMPACTED_BYTES: Final = 16 * MIB
"""Segments of this size or more are left alone, in bytes of their records in memory. Two smaller parts make less than
32 MiB, so that is the maximum."""
FAN_IN: Final = 32
TIERS: Final = (64 * KIB, MIB)
"""The upper bounds of the tiers below COMPACTED_BYTES. The last tier reaches COMPACTED_BYTES before FAN_IN."""
MAX_PARTS: Final = 1024
"""The maximum number of parts that one compaction reads into memory."""
_TEMPORARY: Final = "rollup.tmp"


# --- the plan: pure --------------------------------------------------------------------------------------


def plan_compaction(
    segments: Sequence[SizedSegment], fan_in: int = FAN_IN, compacted_bytes: int = COMPACTED_BYTES
) -> list[list[SizedSegment]]:
    """Return the groups of neighbours of which each is to become one segment.

    `segments`: the current segments of a partition, in order, without the newest one, which belongs to the writer.
    `fan_in`: how many members of a tier make one of the next tier. `compacted_bytes`: segments of this size or more are
    left alone, once they are compressed.
    """
    runs = _small_runs(segments, compacted_bytes)
    large = [[sized] for sized in segments if sized.weight >= compacted_bytes and not sized.memory]
    return large + [group for run in runs for group in _plan_run(run, fan_in, compacted_bytes)]


def _small_runs(segments: Iterable[SizedSegment], compacted_bytes: int) -> Iterator[list[SizedSegment]]:
    """Yield the longest runs of small segments without a gap between their offsets."""
    run: list[SizedSegment] = []
    for sized in segments:
        is_small = sized.weight < compacted_bytes
        if run and not (is_small and run[-1].segment.end == sized.segment.base):
            yield run
            run = []
        if is_small:
            run.append(sized)
    yield run


def _plan_run(run: list[SizedSegment], fan_in: int, compacted_bytes: int) -> Iterator[list[SizedSegment]]:
    rest: list[SizedSegment] = []
    size = 0
    for sized in run:
        rest.append(sized)
        size += sized.weight
        if size >= compacted_bytes or len(rest) == MAX_PARTS:
            yield rest
            rest, size = [], 0
    lower = 0
    for upper in TIERS:
        if groups := list(_tier(rest, lower, upper, fan_in)):
            yield from groups
            return
        lower = upper
    for memory, neighbours in groupby(rest, key=lambda sized: bool(sized.memory)):
        group = list(neighbours)
        if not memory and sum(sized.size for sized in group) >= lower:
            yield group


def _tier(run: Iterable[SizedSegment], lower: int, upper: int, fan_in: int) -> Iterator[list[SizedSegment]]:
    """Yield groups of neighbours below `upper` bytes that start and end with a member of the tier, of `fan_in` or more.

    Smaller segments between two members join the group. They are no members: otherwise a large segment would be
    rewritten for each few small ones.
    """
    group: list[SizedSegment] = []
    members = last = 0
    for sized in (*run, None):
        if sized is None or sized.weight >= upper:
            if members >= fan_in:
                yield group[:last]
            group, members, last = [], 0, 0
        elif sized.weight >= lower:
            group.append(sized)
            members += 1
            last = len(group)
        elif group:
            group.append(sized)


# --- the work ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """The right to write a compacted segment: held while the maintenance lock is held and all parts exist."""

    parts: Sequence[Segment]

    @property
    def temporary(self) -> Path:
        return self.parts[0].directory / _TEMPORARY

    def check(self) -> None:
        for part in self.parts:
            if not part.path.exists():
                raise SegmentGoneError(f"{part.path} was removed during its compaction: does another process compact?")

    def fenced(self) -> SinkError:
        return SegmentGoneError(f"{self.temporary} was removed: does another process compact?")


def compact(parts: Sequence[Segment]) -> Segment:
    """Write one compressed segment of these neighbours, with every byte of them checked. The parts stay.

    The segment of a single part has the same offsets: which of the two is read does not matter, as they hold the same.

    Raises LogOwnerError if they belong to several shards, SegmentCorruptError, SegmentGoneError, SinkFullError and
    SinkError.
    """
    read = [read_segment(part) for part in parts]
    first, last = read[0][1], read[-1][1]
    if len({(origin.stream, origin.shard_id) for _, origin in read}) != 1:
        raise LogOwnerError(f"{parts[0].path} and the segments after it belong to several shards: one file was moved")
    origin = Origin(first.stream, first.shard_id, first.first, last.last, last.committed_at)
    batch = pa.concat_batches([batch for batch, _ in read])
    return write_segment(parts[0].directory, segment_content(batch, origin, is_compressed=True), _Parts(parts))


def put_aside(part: Segment) -> None:
    """Give a superseded segment the name that says so. A reader that has it open, or mapped, keeps it.

    The name is not synced: after a power failure the next pass does it again. Raises SinkError.
    """
    if not part.is_put_aside:
        with os_errors("rename", part.path):
            part.path.rename(part._replace(is_put_aside=True).path)


def remove_superseded(current: Sequence[Segment], superseded: Sequence[Segment], *, before: float) -> None:
    """Remove the parts of segments that were compacted before this time (seconds since the epoch); put others aside.

    Parts of a segment that has expired are removed too: after a power failure they may be there again.
    """
    for part in superseded:
        if current and part.end <= current[0].base:
            remove(part)
    for cover, part in covered_parts(current, superseded):
        with os_errors("look at", cover.path):
            is_old = cover.path.stat().st_mtime < before
        if is_old:
            remove(part)
        else:
            put_aside(part)


def covered_parts(current: Sequence[Segment], superseded: Iterable[Segment]) -> Iterator[tuple[Segment, Segment]]:
    """Yield each superseded segment after the current segment that contains it, if that is still there."""
    bases = [segment.base for segment in current]
    for part in superseded:
        index = bisect_right(bases, part.base) - 1
        if index >= 0 and part.end <= current[index].end:
            yield current[index], part


def remove(segment: Segment) -> None:
    """Delete a segment's file, if it is there. Raises SinkError."""
    with os_errors("remove", segment.path):
        segment.path.unlink(missing_ok=True)
