"""Maintenance of a topic: compaction, then retention. One pass at a time, by one process at a time. Blocking.

Writers and readers go on meanwhile: a partition's newest segment is never touched, and superseded segments stay for
GRACE_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypedDict

from efo_service.log.catalog import read_catalog, topics
from efo_service.log.compaction import (
    FAN_IN,
    compact,
    covered_parts,
    plan_compaction,
    put_aside,
    remove,
    remove_superseded,
)
from efo_service.log.disk import DiskFiles, topic_directory
from efo_service.log.reader_offsets import ReaderCommit, floor, read_readers
from efo_service.log.retention import Candidate, Retention, RetentionRules, plan_retention
from efo_service.log.segments import Segment, SizedSegment, all_segments, memory_of, read_origin, split_superseded
from efo_service.relay.errors import SinkError, os_errors
from efo_service.relay.storage import lock

GRACE_SECONDS: Final = 60.0
"""How long superseded segments stay, under a name of their own: on a shared file system, a reader may map one."""


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What a pass did. Counts are of segments, sizes in bytes.

    `parts` were compacted into `compacted` segments; `expired` were removed, which freed `freed` bytes; `held_back`
    bytes have expired and wait for a reader; `size` is the topic's size after the pass, in `segments` that are current.
    `oldest_commit`: of the oldest of them, in seconds since the epoch. By the name of each reader: `held_by` has the
    bytes that wait for it, `lags` the records that it has not committed, `committed` when it committed last.
    """

    parts: int
    compacted: int
    expired: int
    freed: int
    held_back: int
    size: int
    segments: int = 0
    oldest_commit: float | None = None
    held_by: Mapping[str, int] = field(default_factory=dict)
    lags: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def has_changed_log(self) -> bool:
        """Whether the pass changed the log."""
        return bool(self.compacted or self.expired)


class LogMaintenance:
    """Maintains one topic. `grace`: see GRACE_SECONDS. It keeps what it reads of segments from pass to pass.

    `fan_in`: see `plan_compaction`.
    """

    def __init__(
        self, root: Path, topic: str, rules: RetentionRules, *, grace: float = GRACE_SECONDS, fan_in: int = FAN_IN
    ) -> None:
        self._root = root
        self._files = DiskFiles(root)
        self._topic = topic
        self._rules = rules
        self._grace = grace
        self._fan_in = fan_in
        self._commit_times: dict[Segment, float] = {}
        self._oldest: dict[int, tuple[Segment, float]] = {}
        self._memory: dict[Path, Mapping[Segment, int]] = {}

    def run(self, now: float, check_cancelled: Callable[[], object] = lambda: None) -> MaintenanceReport | None:
        """Make one pass. Returns None if another process makes one, or if there is no such topic yet.

        `now`: seconds since the epoch. `check_cancelled` is called between steps, and may raise to stop the pass. The
        first failure of a partition is raised after all other partitions are done: a full disk must not keep expired
        segments from being removed. Raises SegmentCorruptError (what is damaged stays as it is), SinkFullError and
        SinkError.
        """
        directory = topic_directory(self._root, self._topic)
        if self._topic not in topics(self._files):
            return None
        with os_errors("maintain", directory):
            try:
                held = lock(directory / "upkeep.lock", wait=False)
            except BlockingIOError:
                return None
        with held:
            partitions = read_catalog(self._files, self._topic).shards
            directories = {partition: directory / str(partition) for partition in partitions}
            failures: list[SinkError] = []
            parts: list[int] = []
            for partition_directory in directories.values():
                with _collected(failures):
                    parts.extend(self._compact(partition_directory, now, check_cancelled))
            report = self._expire(directories, now, parts, check_cancelled, failures)
        if failures:
            raise failures[0]
        return report

    def _compact(self, directory: Path, now: float, check_cancelled: Callable[[], object]) -> Iterator[int]:
        """Compact what is due in a partition; yield the number of parts of each new segment."""
        current, superseded = split_superseded(all_segments(directory))
        remove_superseded(current, superseded, before=now - self._grace)
        check_cancelled()
        known = self._memory.get(directory, {})
        memory = {segment: known.get(segment) or memory_of(segment) for segment in current[:-1]}
        self._memory[directory] = memory
        weighed = [_sized(segment)._replace(memory=memory[segment]) for segment in current[:-1]]
        for group in plan_compaction(weighed, self._fan_in):
            whole = compact([sized.segment for sized in group])
            for sized in group:
                if sized.segment != whole:
                    put_aside(sized.segment)
            check_cancelled()
            yield len(group)

    def _expire(
        self,
        directories: dict[int, Path],
        now: float,
        parts: list[int],
        check_cancelled: Callable[[], object],
        failures: list[SinkError],
    ) -> MaintenanceReport:
        readers = read_readers(self._files, self._topic)
        candidates: list[Candidate] = []
        total = 0
        bounds: dict[int, tuple[int, int]] = {}
        oldest: list[float] = []
        segments = 0
        superseded_parts: dict[Segment, list[Segment]] = {}
        for partition, directory in directories.items():
            with _collected(failures):
                current, superseded = split_superseded(all_segments(directory))
                total += sum(_sized(segment).size for segment in (*current[-1:], *superseded))
                for cover, part in covered_parts(current, superseded):
                    superseded_parts.setdefault(cover, []).append(part)
                if current:
                    bounds[partition] = current[0].base, current[-1].end
                    with suppress(SinkError):  # damage that matters is found where it is read
                        oldest.append(self._oldest_commit(partition, current[0]))
                segments += len(current)
                sizes = [_sized(segment) for segment in current[:-1]]
                total += sum(sized.size for sized in sizes)
                # If the commit time of one segment cannot be read, none after it expires.
                timed = (Candidate(partition, sized, self._committed_at(sized.segment)) for sized in sizes)
                candidates.extend(timed if self._rules.is_set else ())
        self._commit_times = {one.sized.segment: one.committed_at for one in candidates}
        floors = {partition: floor(readers, partition) for partition in directories}
        plan = plan_retention(candidates, total, self._rules, floors, now)
        for one in plan.expired:
            # Its superseded parts first: without it they would count again.
            for segment in (*superseded_parts.get(one.sized.segment, ()), one.sized.segment):
                remove(segment)
            check_cancelled()
        freed = sum(one.sized.size for one in plan.expired)
        return MaintenanceReport(
            sum(parts), len(parts), len(plan.expired), freed, plan.held_back, total - freed,
            segments=segments - len(plan.expired), oldest_commit=min(oldest, default=None),
            **of_readers(readers, plan, bounds),
        )  # fmt: skip

    def _committed_at(self, segment: Segment) -> float:
        return self._commit_times.get(segment) or read_origin(segment).committed_at

    def _oldest_commit(self, partition: int, segment: Segment) -> float:
        known = self._oldest.get(partition)
        if known is None or known[0] != segment:
            known = self._oldest[partition] = segment, read_origin(segment).committed_at
        return known[1]


class OfReaders(TypedDict):
    """What a report has of the readers."""

    held_by: Mapping[str, int]
    lags: Mapping[str, int]
    committed: Mapping[str, float | None]


def of_readers(readers: Sequence[ReaderCommit], plan: Retention, bounds: Mapping[int, tuple[int, int]]) -> OfReaders:
    """Return what a report has of the readers. `bounds`: the first offset and the end of each partition."""
    offsets = {reader.name: reader.offsets for reader in readers}
    lags = {
        name: sum(end - max(start, known.get(partition, 0)) for partition, (start, end) in bounds.items())
        for name, known in offsets.items()
    }
    return {
        "held_by": plan.held_by(offsets),
        "lags": lags,
        "committed": {reader.name: reader.committed_at for reader in readers},
    }


@contextmanager
def _collected(failures: list[SinkError]) -> Iterator[None]:
    """Keep a failure for later."""
    try:
        yield
    except SinkError as error:
        failures.append(error)


def _sized(segment: Segment) -> SizedSegment:
    with os_errors("look at", segment.path):
        return SizedSegment(segment, segment.path.stat().st_size)
