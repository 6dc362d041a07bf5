"""Compaction of a partition on an object store: commits become segments, and small segments larger ones. Blocking.

**A fold** writes the records of all live commits as segments, and names them in the head by compare-and-set. From then
on the commits are superseded, and each is replaced by its tombstone. A commit's key is never deleted: a stalled writer
may still want to create it (efo_service.log.objects.writer).

**A merge** writes neighbouring segments as one. Their keys are used once, so they are deleted.

A crash may come between any two steps. A fold that was not finished leaves commits below `next` that are no tombstones
yet: `tombstone` is repeated. A segment that no head names is an orphan: `remove_orphans`. Two processes that compact at
once cost work, and no records: of two changes of a head, one is refused, and its segment is deleted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import pyarrow as pa

from efo_service.log.files import never
from efo_service.log.objects import keys
from efo_service.log.objects.codec import Header, concatenated, encode, tombstone
from efo_service.log.objects.head import Head, HeadSegment, encode_head, expired, folded, merged, touched
from efo_service.log.objects.partition import Partition, ReadCommit, ReadHead
from efo_service.object_store.store import ChangedError, ExistsError, Store, Version
from efo_service.relay.errors import LogIncompleteError, SegmentGoneError, SinkError, StoreUnavailableError

FOLD_COMMITS: Final = 32
"""How many live commits are folded. Fewer wait for FOLD_SECONDS: each fold costs a segment and a write of the head."""
FOLD_SECONDS: Final = 3600.0
"""After this time even a single live commit is folded, so that it can expire."""
MAX_FOLD: Final = 1000
"""So many commits are folded at most before the head is replaced: what was done is then not lost by a failure."""
ORPHAN_SWEEPS: Final = 1000
"""Orphans are looked for in the first sweep and then in each of this number: it costs a listing of the segments."""
SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Segments of this size or more are left alone, in bytes of their records in memory. Two smaller parts make less than
twice that. It is four times the size on a disk, since a head names all segments, and a reader reads the head."""


def due(partition: Partition, read: ReadHead, now: float, fold_commits: int = FOLD_COMMITS) -> bool:
    """Return whether the live commits are to be folded. It costs one or two small requests. `now`: the store's time.

    Raises LogIncompleteError if the head is an old copy, SegmentGoneError if another process has replaced it since.
    """
    oldest = partition.first_live(read)
    return oldest is not None and (
        now - oldest.modified > FOLD_SECONDS or partition.modified(read.head.next + fold_commits - 1) is not None
    )


class Compactor:
    """Compacts one partition. All methods raise StoreUnavailableError, SegmentCorruptError and SinkError."""

    def __init__(self, store: Store, partition: Partition) -> None:
        self._store = store
        self._partition = partition
        self._buried = 0
        self._sweeps = 0

    def sweep(self, now: float, fold_commits: int, check_cancelled: Callable[[], object]) -> tuple[int, int]:
        """Delete orphans, go on with tombstones, and fold the live commits that are due: see `due`.

        Return how many commits became how many segments.
        """
        read = self._partition.read_head()
        if read is None:
            return 0, 0
        self._sweeps += 1
        if self._sweeps % ORPHAN_SWEEPS == 1 and self.remove_orphans():
            return 0, 0  # the head has changed: the next sweep goes on
        self.tombstone(read.head, check_cancelled)
        parts = compacted = 0
        while read is not None:
            check_cancelled()
            try:
                is_due = due(self._partition, read, now, fold_commits)
                folded = self.fold(read, check_cancelled) if is_due else (0, 0)
            except SegmentGoneError:
                folded = None
            if folded is None:  # another process was faster
                break
            parts, compacted = parts + folded[0], compacted + folded[1]
            read = self._partition.read_head() if folded[0] == MAX_FOLD else None
        return parts, compacted

    def fold(self, read: ReadHead, check_cancelled: Callable[[], object] = never) -> tuple[int, int] | None:
        """Fold the live commits, at most MAX_FOLD. Return how many became how many segments.

        None if another process was faster. `check_cancelled` is called between requests, and may raise: what was done
        is then cleaned up, or gone on with by `tombstone`.
        """
        head, versions, written = read.head, dict[int, tuple[Header, Version]](), list[HeadSegment]()
        try:
            newest = self._partition.newest_live(read.head)
            if newest is None:
                return 0, 0
            last = min(newest.number, head.next + MAX_FOLD - 1)
            for group in self._groups(range(head.next, last + 1), check_cancelled):
                versions.update((one.header.number, (one.header, one.stored.version)) for one in group)
                segment = self._write_segment(group, max(one.stored.modified for one in group))
                written += [] if segment is None else [segment]
                head = folded(head, segment, group[-1].header)
        except BaseException as error:  # a cancellation, too
            with suppress(SinkError):  # what stays is an orphan
                self._store.delete([segment.key for segment in written])
            if isinstance(error, SegmentGoneError):  # another process folds them
                return None
            raise
        if not self._replace_head(read, head, written):
            return None
        for number, (header, version) in versions.items():
            check_cancelled()
            self._bury(number, header, version)
        self._buried = head.next
        return len(versions), len(written)

    def _groups(self, numbers: Iterable[int], check_cancelled: Callable[[], object]) -> Iterator[list[ReadCommit]]:
        """Yield the commits in groups of which each becomes a segment. Only one group is in memory at a time."""
        group: list[ReadCommit] = []
        size = 0
        for number in numbers:
            check_cancelled()
            group.append(self._partition.read_commit(number))
            size += group[-1].batch.nbytes
            if size >= SEGMENT_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group

    def tombstone(self, head: Head, check_cancelled: Callable[[], object] = never) -> None:
        """Replace commits below `next` by their tombstones, if a fold was cut off before it had done so.

        They are always the last ones: tombstones are made in ascending order, and before the next fold.
        """
        left: list[Header] = []
        for number in range(head.next - 1, self._buried - 1, -1):
            check_cancelled()
            header = self._partition.header(number)
            if header is None or header.kind == "tombstone":
                break
            left.append(header)
        for header in reversed(left):
            check_cancelled()
            stored = self._store.head(keys.commit(self._partition.topic, self._partition.number, header.number), 1)
            if stored is not None:
                self._bury(header.number, header, stored.version)
        self._buried = head.next

    def _bury(self, number: int, header: Header, version: Version) -> None:
        key = keys.commit(self._partition.topic, self._partition.number, number)
        try:
            self._store.replace(key, tombstone(header), version)
        except ChangedError:  # another process has done it
            return

    def merge(self, read: ReadHead, group: Sequence[HeadSegment]) -> bool:
        """Write neighbouring segments as one, and delete them. Return False if another process was faster."""
        try:
            parts = [self._partition.read_segment(segment) for segment in group]
        except SegmentGoneError:
            return False
        whole = self._write_segment(parts, max(segment.written_at for segment in group))
        assert whole is not None  # noqa: S101 - a segment has records
        if not self._replace_head(read, merged(read.head, group, whole), [whole]):
            return False
        self._store.delete([segment.key for segment in group])
        return True

    def _write_segment(self, parts: Sequence[ReadCommit], written_at: float) -> HeadSegment | None:
        """Write the records of commits or segments as a segment; None if they have none."""
        batches = [part.batch for part in parts if part.batch.num_rows]
        if not batches:
            return None
        records: pa.RecordBatch = concatenated(batches)
        first, last = parts[0].header, parts[-1].header
        write = secrets.token_hex(8)
        header = msgspec.structs.replace(
            last,
            kind="segment",
            base=first.base,
            first=next(part.header.first for part in parts if part.batch.num_rows),
            write=write,
        )
        key = keys.segment(self._partition.topic, self._partition.number, header.base, header.end, write)
        content = encode(header, records)
        try:
            self._store.create(key, content)
        except (
            ExistsError
        ):  # a request of its own that was not answered, or one at the same time: it is named by chance
            if self._store.head(key, 1) is None:
                raise StoreUnavailableError(f"{self._store.name}/{key}: the store reports a conflict") from None
        return HeadSegment(
            key=key, base=header.base, end=header.end, size=len(content), memory=records.nbytes, written_at=written_at
        )

    def _replace_head(self, read: ReadHead, head: Head, written: Sequence[HeadSegment]) -> bool:
        """Write the head if nobody has since it was read. If somebody has, delete the segments that were written.

        After a lost answer the very same request is repeated, and what is there is compared: so if this head is not
        there, it never will be, and its segments can be deleted.
        """
        content, key = encode_head(head), keys.head(self._partition.topic, self._partition.number)
        for _ in range(_REPEATS):
            try:
                self._store.replace(key, content, read.version)
            except StoreUnavailableError:
                continue
            except ChangedError:
                now = self._partition.read_head()
                if now is not None and now.version == read.version:
                    continue  # S3 also answers so if a request for the same key is in progress
                if now is not None and now.head.write == head.write:
                    return True
                known = {segment.key for segment in now.head.segments} if now is not None else set()
                lost = [segment.key for segment in written if segment.key not in known]
                if now is not None and len(lost) == len(written):
                    self._store.delete(lost)
                return now is not None and len(lost) < len(written)
            return True
        raise StoreUnavailableError(f"{self._store.name}/{key}: no answer to {_REPEATS} requests to replace it")

    def expire(self, read: ReadHead, count: int) -> bool:
        """Take the oldest segments out of the head, and delete them. Return False if another process was faster."""
        gone = read.head.segments[:count]
        if not self._replace_head(read, expired(read.head, count), ()):
            return False
        self._store.delete([segment.key for segment in gone])
        return True

    def remove_orphans(self) -> int:
        """Delete segments that no head names. Return their number.

        Who has written one of them may still be about to name it in the head that it has read. So the head is written
        again first: then that is refused. Raises LogIncompleteError if the head is an old copy, or names a segment that
        does not exist: what it does not name is perhaps what the newest head names.
        """
        listed = {one.key for one in self._store.keys(keys.segments(self._partition.topic, self._partition.number))}
        read = self._partition.read_head()
        if read is None or listed <= {segment.key for segment in read.head.segments}:
            return 0
        try:
            self._partition.first_live(read)
            self._check_segments(read, listed)
        except SegmentGoneError:  # another process has replaced the head since
            return 0
        head = touched(read.head)
        if not self._replace_head(read, head, ()):
            return 0
        orphans = sorted(listed - {segment.key for segment in head.segments})
        self._store.delete(orphans)
        return len(orphans)

    def _check_segments(self, read: ReadHead, listed: set[str]) -> None:
        """Check that the segments of a head exist. Those that were written after the listing are looked for."""
        for segment in read.head.segments:
            if segment.key in listed or self._store.head(segment.key, 1) is not None:
                continue
            now = self._partition.read_head()
            if now is None or now.version != read.version:
                raise SegmentGoneError(f"{self._store.name}/{segment.key} was compacted")
            raise LogIncompleteError(
                f"{self._partition.name}/head.json names {segment.key}, which does not exist: either it is an old copy,"
                " or something else than efo deleted the segment. Restore the newest version of both"
                " (docs/log.md, Damage of objects). No segment is cleaned up before"
            )


_REPEATS: Final = 3
"""How often the same request to replace a head is made, if none is answered."""
