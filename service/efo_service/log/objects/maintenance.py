"""Maintenance of a topic on an object store: compaction, then retention. Blocking.

One process at a time maintains a topic, so that requests are made once: it counts up in `maintenance.json`, and the
others look whether the count moves. That is thrift and no lock: two that maintain at once lose nothing (compaction.py).

What expires is decided by the store's clock alone: a commit is as old as its object, and the time now is that of the
last write of `maintenance.json`. So no clock of a service, wrong by hours, makes records expire early.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from efo_service.log.catalog import read_catalog
from efo_service.log.files import Fields, parse_fields
from efo_service.log.maintenance import MaintenanceReport, of_readers
from efo_service.log.objects import keys
from efo_service.log.objects.codec import FORMAT_VERSION
from efo_service.log.objects.compaction import FOLD_COMMITS, MAX_FOLD, Compactor, due, plan_merges
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.objects.head import HeadSegment, new_write
from efo_service.log.objects.partition import Partition, ReadHead
from efo_service.log.reader_offsets import ReaderCommit, floor, read_readers
from efo_service.log.retention import Candidate, RetentionRules, plan_retention
from efo_service.log.segments import Segment as DiskSegment, SizedSegment
from efo_service.object_store.store import Store
from efo_service.relay.errors import LogIncompleteError, SegmentGoneError, SinkError
from efo_service.relay.files import whole_number

SILENT_PASSES: Final = 3
"""After so many of its own passes without a move of the count, a process takes over the maintenance."""
ORPHAN_PASSES: Final = 1000
"""Orphans are looked for in the first pass and then in each of this number: it costs a listing of the segments."""


class ObjectLogMaintenance:
    """Maintains one topic. `fold_commits`: see FOLD_COMMITS. It keeps what it knows from pass to pass."""

    def __init__(self, store: Store, topic: str, rules: RetentionRules, *, fold_commits: int = FOLD_COMMITS) -> None:
        self._store = store
        self._files = ObjectFiles(store)
        self._topic = topic
        self._rules = rules
        self._fold_commits = fold_commits
        self._me = new_write()
        self._seen: tuple[str, int] | None = None
        self._silent = 0
        self._passes = 0
        self._compactors: dict[int, Compactor] = {}

    def run(self, check_cancelled: Callable[[], object] = lambda: None) -> MaintenanceReport | None:
        """Make one pass. Returns None if another process does it, or if there is no such topic yet.

        `check_cancelled` is called between steps, and may raise to stop the pass. The first failure of a partition is
        raised after all other partitions are done. Raises SegmentCorruptError (what is damaged stays as it is),
        StoreUnavailableError and SinkError.
        """
        if self._store.head(keys.catalog(self._topic), 1) is None:
            return None
        now = self._take_turn()
        if now is None:
            return None
        catalog = read_catalog(self._files, self._topic)
        failures: list[SinkError] = []
        counts = [0, 0]
        heads: dict[int, tuple[Compactor, ReadHead]] = {}
        for number, shard_id in catalog.shards.items():
            check_cancelled()
            partition = Partition(self._store, self._topic, number, (catalog.stream, shard_id))
            compactor = self._compactors.setdefault(number, Compactor(self._store, partition))
            try:
                for at, count in enumerate(self._compact(partition, compactor, now, check_cancelled)):
                    counts[at] += count
            except LogIncompleteError as error:  # an old head: what it names must stay as it is
                failures.append(error)
                continue
            except SinkError as error:  # a segment that cannot be read can still expire
                failures.append(error)
            try:
                if (read := partition.read_head()) is not None:
                    heads[number] = compactor, read
            except SinkError as error:
                failures.append(error)
        report = self._expire(heads, now, failures, (counts[0], counts[1]))
        self._passes += 1
        if failures:
            raise failures[0]
        return report

    # --- whose turn it is ----------------------------------------------------------------------------------

    def _take_turn(self) -> float | None:
        """Return the store's time if this process maintains the topic, None if another one does."""
        key = keys.maintenance(self._topic)
        stored = self._store.get(key)
        seen = None if stored is None else self._parse(stored.content)
        if seen is not None and seen[0] != self._me:
            self._silent = self._silent + 1 if seen == self._seen else 0
            self._seen = seen
            if self._silent < SILENT_PASSES:
                return None
        self._silent = 0

        def count(content: bytes | None) -> Fields | None:
            now = None if content is None else self._parse(content)
            if now != seen and (now is None or now[0] != self._me):
                return None  # another process was faster: its turn
            return {"process": self._me, "count": 1 + (now[1] if now else 0)}

        self._files.update(key, count)
        written = self._store.get(key)
        if written is None or self._parse(written.content)[0] != self._me:
            return None
        return written.modified

    def _parse(self, content: bytes) -> tuple[str, int]:
        name = f"{self._store.name}/{keys.maintenance(self._topic)}"
        fields = parse_fields(content, name, self._files.restore, FORMAT_VERSION)
        try:
            return str(fields["process"]), whole_number(fields["count"])
        except (KeyError, ValueError):
            return "", 0

    # --- compaction ----------------------------------------------------------------------------------------

    def _compact(
        self, partition: Partition, compactor: Compactor, now: float, check_cancelled: Callable[[], object]
    ) -> tuple[int, int]:
        """Compact what is due in a partition. Return how many parts became how many segments."""
        read = partition.read_head()
        if read is None:
            return 0, 0
        if self._passes % ORPHAN_PASSES == 0 and compactor.remove_orphans():
            return 0, 0  # the head has changed: the next pass goes on
        compactor.tombstone(read.head, check_cancelled)
        parts = compacted = 0
        while True:
            check_cancelled()
            try:
                is_due = due(partition, read, now, self._fold_commits)
                folded = compactor.fold(read, check_cancelled) if is_due else (0, 0)
            except SegmentGoneError:
                folded = None
            if folded is None:  # another process was faster
                return parts, compacted
            parts, compacted = parts + folded[0], compacted + folded[1]
            if folded[0] < MAX_FOLD or (read := partition.read_head()) is None:
                break
        while (read := partition.read_head()) is not None and (groups := plan_merges(read.head)):
            check_cancelled()
            if not compactor.merge(read, groups[0]):
                break
            parts, compacted = parts + len(groups[0]), compacted + 1
        return parts, compacted

    # --- retention -----------------------------------------------------------------------------------------

    def _expire(
        self,
        heads: dict[int, tuple[Compactor, ReadHead]],
        now: float,
        failures: list[SinkError],
        compacted: tuple[int, int],
    ) -> MaintenanceReport:
        named = [(number, segment) for number, (_, read) in heads.items() for segment in read.head.segments]
        total = sum(segment.size for _, segment in named)
        readers: list[ReaderCommit] = read_readers(self._files, self._topic)
        candidates = [_candidate(number, segment) for number, segment in named] if self._rules.is_set else []
        floors = {number: floor(readers, number) for number in heads}
        plan = plan_retention(candidates, total, self._rules, floors, now)
        expired = freed = 0
        for number, (compactor, read) in heads.items():
            count = sum(one.partition == number for one in plan.expired)
            try:
                if count and compactor.expire(read, count):
                    expired += count
                    freed += sum(segment.size for segment in read.head.segments[:count])
            except SinkError as error:
                failures.append(error)
        # The live commits after a head are not counted: they cost a request each.
        bounds = {number: (read.head.start, read.head.base) for number, (_, read) in heads.items()}
        oldest = min((segment.written_at for _, segment in named), default=None)
        return MaintenanceReport(
            *compacted, expired, freed, plan.held_back, total - freed,
            segments=len(named) - expired, oldest_commit=oldest,
            **of_readers(readers, plan, bounds),
        )  # fmt: skip


def _candidate(number: int, segment: HeadSegment) -> Candidate:
    sized = SizedSegment(DiskSegment(segment.base, segment.end, 0, Path()), segment.size)
    return Candidate(number, sized, segment.written_at)
