"""Maintenance of a topic: compaction, then retention. One pass at a time, by one process at a time. Blocking.

Writers and readers go on meanwhile. What a disk and an object store do in different ways is in the second half of
PartitionFiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from efo_service.log.catalog import is_topic, read_catalog
from efo_service.log.compaction import FAN_IN, plan_compaction
from efo_service.log.files import LogFiles, Maintained, PartitionFiles, Span, never
from efo_service.log.reader_offsets import floor, read_readers
from efo_service.log.retention import Candidate, RetentionRules, plan_retention
from efo_service.relay.errors import LogIncompleteError, SinkError


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What a pass did. Counts are of segments, sizes in bytes.

    `parts` were compacted into `compacted` segments; `expired` were removed, which freed `freed` bytes; `held_back`
    bytes have expired and wait for a reader; `size` is the topic's size after the pass, in `segments` that are current.
    On an object store these two do not include commits that are not in segments yet: they cost a request each.
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
    """Maintains one topic. `fan_in`: see `plan_compaction`. It keeps what it reads of segments from pass to pass."""

    def __init__(self, files: LogFiles, topic: str, rules: RetentionRules, *, fan_in: int = FAN_IN) -> None:
        self._files = files
        self._topic = topic
        self._rules = rules
        self._fan_in = fan_in
        self._partitions: dict[int, PartitionFiles] = {}
        self._commit_times: dict[Span, float] = {}

    def run(self, now: float, check_cancelled: Callable[[], object] = never) -> MaintenanceReport | None:
        """Make one pass. Returns None if another process makes one, or if there is no such topic yet.

        `now`: seconds since the epoch. `check_cancelled` is called between steps, and may raise to stop the pass. The
        first failure of a partition is raised after all other partitions are done: a full disk must not keep expired
        segments from being removed. Raises SegmentCorruptError (what is damaged stays as it is), SinkFullError,
        StoreUnavailableError and SinkError.
        """
        if not is_topic(self._files, self._topic):
            return None
        with self._files.turn(self._topic, now) as turn:
            return None if turn is None else self._pass(turn, check_cancelled)

    def _pass(self, now: float, check_cancelled: Callable[[], object]) -> MaintenanceReport:
        catalog = read_catalog(self._files, self._topic)
        failures: list[SinkError] = []
        counts: list[tuple[int, int]] = []
        found: dict[int, Maintained] = {}
        for number in catalog.shards:
            check_cancelled()
            if number not in self._partitions:
                self._partitions[number] = self._files.partition(self._topic, number, catalog.owner(number))
            try:
                for count in self._compact(self._partitions[number], now, check_cancelled):
                    counts.append(count)  # noqa: PERF402 - what was done before a failure counts
            except LogIncompleteError as error:  # what an old copy names must stay as it is
                failures.append(error)
                continue
            except SinkError as error:  # a segment that cannot be read can still expire
                failures.append(error)
            with _collected(failures):
                found[number] = self._partitions[number].maintained()
        report = self._expire(found, now, counts, check_cancelled, failures)
        if failures:
            raise failures[0]
        return report

    def _compact(
        self, files: PartitionFiles, now: float, check_cancelled: Callable[[], object]
    ) -> Iterator[tuple[int, int]]:
        """Compact what is due in a partition; yield how many parts became how many segments."""
        yield files.sweep(now, check_cancelled)
        check_cancelled()
        for group in plan_compaction(files.maintained().segments, self._fan_in, self._files.limits.compacted_bytes):
            if not files.replace([sized.segment for sized in group]):
                return
            yield len(group), 1
            check_cancelled()

    def _expire(
        self,
        found: Mapping[int, Maintained],
        now: float,
        counts: Sequence[tuple[int, int]],
        check_cancelled: Callable[[], object],
        failures: list[SinkError],
    ) -> MaintenanceReport:
        readers = read_readers(self._files, self._topic)
        total = sum(one.kept + sum(sized.size for sized in one.segments) for one in found.values())
        oldest = self._read_commit_times(found, failures)
        candidates = [
            Candidate(number, sized, self._commit_times[sized.segment])
            for number, one in found.items()
            for sized in (one.segments if self._rules.is_set else ())
            if sized.segment in self._commit_times
        ]
        floors = {number: floor(readers, number) for number in found}
        plan = plan_retention(candidates, total, self._rules, floors, now)
        expired = freed = 0
        for number in found:
            gone = [one.sized for one in plan.expired if one.partition == number]
            with _collected(failures):
                if gone and self._partitions[number].expire([one.segment for one in gone], check_cancelled):
                    expired += len(gone)
                    freed += sum(one.size for one in gone)
        offsets = {reader.name: reader.offsets for reader in readers}
        return MaintenanceReport(
            parts=sum(parts for parts, _ in counts),
            compacted=sum(whole for _, whole in counts),
            expired=expired,
            freed=freed,
            held_back=plan.held_back,
            size=total - freed,
            segments=sum(one.current for one in found.values()) - expired,
            oldest_commit=min(oldest, default=None),
            held_by=plan.held_by(offsets),
            lags={
                name: sum(max(0, one.end - max(one.start, known.get(number, 0))) for number, one in found.items())
                for name, known in offsets.items()
            },
            committed={reader.name: reader.committed_at for reader in readers},
        )

    def _read_commit_times(self, found: Mapping[int, Maintained], failures: list[SinkError]) -> list[float]:
        """Read when the segments were committed that may expire; return when the oldest of each partition was.

        If the time of one segment cannot be read, none after it expires.
        """
        known, self._commit_times = self._commit_times, {}
        oldest: list[float] = []
        for number, one in found.items():
            read = self._partitions[number].committed_at
            with _collected(failures):
                for segment, *_ in one.segments if self._rules.is_set else ():
                    self._commit_times[segment] = known.get(segment) or read(segment)
            if one.oldest is not None:
                with suppress(SinkError):  # damage that matters is found where it is read
                    oldest.append(self._commit_times.get(one.oldest) or read(one.oldest))
        return oldest


@contextmanager
def _collected(failures: list[SinkError]) -> Iterator[None]:
    """Keep a failure for later."""
    try:
        yield
    except SinkError as error:
        failures.append(error)
