"""The log's upkeep: small segments rolled up, expired ones removed, readers undisturbed. Blocking.

One pass over a topic, by one process at a time. Each step may be cut short by a crash: the large segment appears by one
rename, and from then on those within it do not count; they are removed some passes later, when no listing from before
can still be in use. The writers go on meanwhile, because a partition's newest segment is never touched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from efo_service.relay.errors import LogOwnerError, SegmentGoneError, SinkError, os_errors
from efo_service.relay.log.catalog import lock, read_catalog, topic_directory, topics
from efo_service.relay.log.compaction_plan import Kept, RetentionRules, Sized, plan_retention, plan_rollup
from efo_service.relay.log.reader_offsets import floor, read_readers
from efo_service.relay.log.segments import (
    Origin,
    Segment,
    all_segments,
    read_origin,
    read_segment,
    split_superseded,
    write_segment,
)

GRACE_SECONDS: Final = 60.0
"""So long what was rolled up stays: listing a directory and opening what it named takes no reader that long."""
_TEMPORARY: Final = "rollup.tmp"


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """What a pass did. Counts of segments, and bytes.

    `parts` became `rolled` segments; `expired` were removed, `freed` bytes with them; `held_back` bytes are due, and
    wait for a reader; `size` is what the topic has after it.
    """

    parts: int
    rolled: int
    expired: int
    freed: int
    held_back: int
    size: int

    @property
    def did_something(self) -> bool:
        """Whether the log is not as it was."""
        return bool(self.rolled or self.expired)


class Upkeep:
    """Keeps one topic up. `grace`: see GRACE_SECONDS. It remembers segments' times from pass to pass."""

    def __init__(self, root: Path, topic: str, rules: RetentionRules, *, grace: float = GRACE_SECONDS) -> None:
        self._root = root
        self._topic = topic
        self._rules = rules
        self._grace = grace
        self._times: dict[Segment, float] = {}

    def run(self, now: float, go_on: Callable[[], object] = lambda: None) -> UpkeepReport | None:
        """Make one pass; None if another process is at it, or if there is no such topic yet.

        `go_on` is called between steps, and may raise to stop. What goes wrong with one partition is raised at the end,
        after all else is done: a full disk must not keep expired segments from going. Raises SegmentCorruptError (what
        is damaged stays as it is), SinkFullError, SinkError.
        """
        directory = topic_directory(self._root, self._topic)
        if self._topic not in topics(self._root):
            return None
        with os_errors("keep up", directory):
            try:
                held = lock(directory / "upkeep.lock", wait=False)
            except BlockingIOError:
                return None
        with held:
            partitions = read_catalog(self._root, self._topic).partitions.values()
            directories = {partition: directory / str(partition) for partition in partitions}
            failures: list[SinkError] = []
            rolled: list[int] = []
            for at in directories.values():
                with _collected(failures):
                    rolled.extend(self._roll_up(at, now, go_on))
            report = self._expire(directories, now, rolled, go_on, failures)
        if failures:
            raise failures[0]
        return report

    def _roll_up(self, directory: Path, now: float, go_on: Callable[[], object]) -> Iterator[int]:
        """Roll up what is due in a partition; yield how many parts each new segment has."""
        current, superseded = split_superseded(all_segments(directory))
        _remove_superseded(current, superseded, before=now - self._grace)
        go_on()
        for group in plan_rollup([_sized(segment) for segment in current[:-1]]):
            roll_up([sized.segment for sized in group])
            go_on()
            yield len(group)

    def _expire(
        self,
        directories: dict[int, Path],
        now: float,
        rolled: list[int],
        go_on: Callable[[], object],
        failures: list[SinkError],
    ) -> UpkeepReport:
        readers = read_readers(self._root, self._topic)
        kept: list[Kept] = []
        total = 0
        within: dict[Segment, list[Segment]] = {}
        for partition, directory in directories.items():
            with _collected(failures):
                current, superseded = split_superseded(all_segments(directory))
                total += sum(_sized(segment).size for segment in (*current[-1:], *superseded))
                for cover, part in _covers(current, superseded):
                    within.setdefault(cover, []).append(part)
                sizes = [_sized(segment) for segment in current[:-1]]
                total += sum(sized.size for sized in sizes)
                # Behind one whose time cannot be read nothing expires.
                timed = (Kept(partition, sized, self._committed_at(sized.segment)) for sized in sizes)
                kept.extend(timed if self._rules.is_set else ())
        self._times = {one.sized.segment: one.committed_at for one in kept}
        floors = {partition: floor(readers, partition) for partition in directories}
        plan = plan_retention(kept, total, self._rules, floors, now)
        for one in plan.expired:
            # First the parts, which would count again without it.
            for segment in (*within.get(one.sized.segment, ()), one.sized.segment):
                _remove(segment)
            go_on()
        freed = sum(one.sized.size for one in plan.expired)
        return UpkeepReport(sum(rolled), len(rolled), len(plan.expired), freed, plan.held_back, total - freed)

    def _committed_at(self, segment: Segment) -> float:
        return self._times.get(segment) or read_origin(segment).committed_at


@contextmanager
def _collected(failures: list[SinkError]) -> Iterator[None]:
    """Keep what goes wrong for later."""
    try:
        yield
    except SinkError as error:
        failures.append(error)


def _sized(segment: Segment) -> Sized:
    with os_errors("look at", segment.path):
        return Sized(segment, segment.path.stat().st_size)


# --- rolling up ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """Who may write a rolled segment: who has the upkeep's lock, as long as all its parts are there."""

    parts: list[Segment]

    @property
    def temporary(self) -> Path:
        return self.parts[0].directory / _TEMPORARY

    def check(self) -> None:
        for part in self.parts:
            if not part.path.exists():
                raise SegmentGoneError(f"{part.path} went away while it was rolled up: is another upkeep running?")

    def fenced(self) -> SinkError:
        return SegmentGoneError(f"{self.temporary} was taken away: is another upkeep running?")


def roll_up(parts: list[Segment]) -> Segment:
    """Make one segment of neighbours, every byte of them checked; they stay until the upkeep removes them.

    Raises LogOwnerError if they are not of one shard, SegmentCorruptError, SegmentGoneError, SinkFullError, SinkError.
    """
    read = [read_segment(part) for part in parts]
    first, last = read[0][1], read[-1][1]
    if len({(origin.stream, origin.shard_id) for _, origin in read}) != 1:
        raise LogOwnerError(f"{parts[0].path} and the segments after it are of several shards: one was moved")
    origin = Origin(first.stream, first.shard_id, first.first, last.last, last.committed_at)
    batch = pa.concat_batches([batch for batch, _ in read])
    return write_segment(parts[0].directory, batch, origin, _Parts(parts))


def _remove_superseded(current: list[Segment], superseded: list[Segment], *, before: float) -> None:
    """Remove what was rolled up before this time."""
    for cover, part in _covers(current, superseded):
        with os_errors("look at", cover.path):
            is_old = cover.path.stat().st_mtime < before
        if is_old:
            _remove(part)


def _covers(current: list[Segment], superseded: list[Segment]) -> Iterator[tuple[Segment, Segment]]:
    """Yield each segment that does not count, after the one in which it lies."""
    bases = [segment.base for segment in current]
    for part in superseded:
        yield current[bisect_right(bases, part.base) - 1], part


def _remove(segment: Segment) -> None:
    with os_errors("remove", segment.path):
        segment.path.unlink(missing_ok=True)
