"""Reading one partition: its head, its live commits, its segments. Blocking; it changes nothing.

The end of a partition is found without a listing, since no key of a commit ever disappears: if commit n exists, all
before it do. So a search that doubles its step, and then halves it, finds the newest of k live commits with about
2 log2 k small requests, on every provider. A listing would cost one for each 1,000 tombstones where the provider cannot
begin it in the middle.

A reader may be slower than maintenance: a commit that it looks for has become a tombstone, or a segment is gone. Then
the head has changed, and it is read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from efo_service.log.objects import keys
from efo_service.log.objects.codec import HEADER_BYTES, Header, check_owner, decode, decode_header
from efo_service.log.objects.head import Head, HeadSegment, decode_head
from efo_service.object_store.store import Store, StoredObject, Version
from efo_service.relay.doubt import read_again
from efo_service.relay.errors import LogIncompleteError, SegmentCorruptError, SegmentGoneError, SegmentMissingError

MAX_READS: Final = 5
"""How often a head is read again without progress, if what it names is gone."""


class ReadHead(NamedTuple):
    """A head that was read, and its version."""

    head: Head
    version: Version


class ReadCommit(NamedTuple):
    """A commit or segment that was read: all of it, with every byte checked."""

    header: Header
    batch: pa.RecordBatch
    stored: StoredObject


class Partition:
    """One partition of a topic, to read. `owner`: its stream and its shard, by the catalog."""

    def __init__(self, store: Store, topic: str, number: int, owner: tuple[str, str]) -> None:
        self._store = store
        self.topic = topic
        self.number = number
        self.owner = owner
        self.name = f"{store.name}/{keys.partition(topic, number)}"

    # --- the head ------------------------------------------------------------------------------------------

    @read_again
    def read_head(self) -> ReadHead | None:
        """Return the head; None if the partition has never been opened.

        Raises LogIncompleteError if only the head is missing, LogOwnerError, LogVersionError, LogError.
        """
        key = keys.head(self.topic, self.number)
        stored = self._store.get(key)
        if stored is None:
            if self.header(0) is None:
                return None
            stored = self._store.get(key)  # another worker may have opened it between the two requests
        if stored is None:
            raise LogIncompleteError(
                f"{self._store.name}/{key} does not exist, but its partition has commits: restore an earlier version of"
                " it (docs/log.md, Damage of objects)"
            )
        head = decode_head(stored.content, f"{self._store.name}/{key}")
        self._check_head(head, f"{self._store.name}/{key}")
        return ReadHead(head, stored.version)

    def _check_head(self, head: Head, name: str) -> None:
        as_header = Header(
            kind="segment",
            topic=head.topic,
            partition=head.partition,
            stream=head.stream,
            shard=head.shard,
            number=head.next,
            epoch=head.epoch,
            base=head.base,
            end=head.base,
            first=None,
            last=head.last,
            committed_at=0,
            write=head.write,
        )
        check_owner(as_header, name, self.owner, (self.topic, self.number))

    # --- commits -------------------------------------------------------------------------------------------

    def commit_name(self, commit_number: int) -> str:
        """Return where a commit is, for messages."""
        return f"{self._store.name}/{keys.commit(self.topic, self.number, commit_number)}"

    @read_again
    def header(self, commit_number: int) -> Header | None:
        """Return the header of a commit or tombstone, None if there is none. Raises SegmentCorruptError and others."""
        stored = self._store.head(keys.commit(self.topic, self.number, commit_number), HEADER_BYTES)
        return None if stored is None else self._checked_header(stored, commit_number)

    def modified(self, commit_number: int) -> float | None:
        """Return when a commit was made, by the store's clock; None if there is none."""
        stored = self._store.head(keys.commit(self.topic, self.number, commit_number), 1)
        return None if stored is None else stored.modified

    def _checked_header(self, stored: StoredObject, commit_number: int) -> Header:
        name = self.commit_name(commit_number)
        header = decode_header(stored.content, name)
        check_owner(header, name, self.owner, (self.topic, self.number))
        if header.number != commit_number:
            raise SegmentCorruptError(f"{name} is the commit {header.number}: it was copied, put it back")
        return header

    def newest(self, after: int) -> Header | None:
        """Return the header of the newest commit after this number; None if there is none. It may be a tombstone."""
        return self._first_and_newest(after)[1]

    def _first_and_newest(self, after: int) -> tuple[Header | None, Header | None]:
        first = found = self.header(after + 1)
        if first is None:
            return None, None
        low, step = after + 1, 2
        while (header := self.header(low + step)) is not None:
            found, low, step = header, low + step, 2 * step
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            if (header := self.header(middle)) is None:
                high = middle
            else:
                found, low = header, middle
        return first, found

    def newest_live(self, head: Head) -> Header | None:
        """Return the header of the newest live commit, None if there is none.

        Raises SegmentGoneError if commits were compacted since the head was read: read it again.
        """
        # The newest one may be live although the head is an old copy, so both ends are checked.
        first, newest = self._first_and_newest(head.next - 1)
        for one in (first, newest):
            if one is not None and one.kind == "tombstone":
                raise SegmentGoneError(f"{self.commit_name(one.number)} was compacted")
        return newest

    def first_live(self, read: ReadHead) -> StoredObject | None:
        """Return the first live commit's header as it is stored, None if there is none. One small request.

        Whoever changes what a head names calls it first. Raises LogIncompleteError if the head is an old copy, and
        SegmentGoneError if another process has replaced it since.
        """
        number = read.head.next
        stored = self._store.head(keys.commit(self.topic, self.number, number), HEADER_BYTES)
        if stored is None or self._checked_header(stored, number).kind != "tombstone":
            return stored
        # A tombstone is made after the head that begins behind it. So this head was an old one when it was read.
        now = self.read_head()
        if now is not None and now.version == read.version:
            raise self._stale(read.head)
        raise SegmentGoneError(f"{self.commit_name(number)} was compacted")

    @read_again
    def read_commit(self, commit_number: int) -> ReadCommit:
        """Return a live commit, every byte checked. Raises SegmentGoneError for a tombstone, SegmentCorruptError."""
        name = self.commit_name(commit_number)
        stored = self._store.get(keys.commit(self.topic, self.number, commit_number))
        if stored is None:
            raise SegmentMissingError(
                f"{name} does not exist, but later commits do: something else than efo deleted it. Restore it (an"
                " expiration rule of the bucket must not include the log)"
            )
        header, batch = decode(stored.content, name)
        self._checked_header(stored, commit_number)
        if header.kind == "tombstone":
            raise SegmentGoneError(f"{name} was compacted")
        return ReadCommit(header, batch, stored)

    @read_again
    def read_segment(self, segment: HeadSegment) -> ReadCommit:
        """Return a segment, every byte checked. Raises SegmentGoneError if it does not exist, SegmentCorruptError."""
        name = f"{self._store.name}/{segment.key}"
        stored = self._store.get(segment.key)
        if stored is None:
            raise SegmentGoneError(f"{name} does not exist any more: it was compacted, has expired or was deleted")
        header, batch = decode(stored.content, name)
        check_owner(header, name, self.owner, (self.topic, self.number))
        if (header.kind, header.base, header.end) != ("segment", segment.base, segment.end):
            raise SegmentCorruptError(f"{name} does not hold the offsets in its key: it was copied, put it back")
        return ReadCommit(header, batch, stored)

    # --- ranges of offsets ---------------------------------------------------------------------------------

    def bounds(self) -> tuple[int, int]:
        """Return the offset of the oldest record, and that after the newest one."""
        for attempt in range(MAX_READS):
            found = self.read_head()
            if found is None:
                return 0, 0
            try:
                newest = self.newest_live(found.head)
            except SegmentGoneError:
                if attempt == MAX_READS - 1:
                    raise self._stale(found.head) from None
            else:
                return found.head.start, found.head.base if newest is None else newest.end
        raise AssertionError

    def parts(self, start: int, end: int, *, allow_gaps: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the records with the offsets `start` to `end` - 1, in order.

        `allow_gaps`: pass over what is missing, but not over what is damaged. Raises SegmentMissingError,
        SegmentCorruptError, LogOwnerError and others.
        """
        at, reads_left = start, MAX_READS
        gone: Counter[str] = Counter()
        while at < end:
            before = at
            found = self.read_head()
            try:
                for batch in self._parts(found.head if found else None, at, end, gone, allow_gaps=allow_gaps):
                    yield batch
                    at = batch.column("offset")[-1].as_py() + 1
            except SegmentGoneError as error:
                reads_left = reads_left - 1 if at == before else MAX_READS
                if not reads_left:
                    if allow_gaps and gone and max(gone.values()) >= MAX_READS:
                        reads_left = MAX_READS  # `_parts` passes over it
                        continue
                    raise SegmentMissingError(f"{error}, but the head of {self.name} names it: restore it") from error
            else:
                return

    def _parts(
        self, head: Head | None, start: int, end: int, gone: Counter[str], *, allow_gaps: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records that a head names. `gone`: how often each segment was not there."""
        at = start
        for segment in head.segments if head else ():
            if segment.end <= at or segment.base >= end or gone[segment.key] >= MAX_READS:
                continue
            self._check_gap(at, segment.base, allow_gaps=allow_gaps)
            at = max(at, segment.base)
            try:
                read = self.read_segment(segment)
            except SegmentGoneError:
                gone[segment.key] += 1
                raise
            yield _slice(read, at, min(end, segment.end))
            at = min(end, segment.end)
        if head and at < end:
            for read in self._live(head, at, end, allow_gaps=allow_gaps):
                if read.header.end <= at:
                    continue
                self._check_gap(at, read.header.base, allow_gaps=allow_gaps)
                at = max(at, read.header.base)
                yield _slice(read, at, min(end, read.header.end))
                at = min(end, read.header.end)
        self._check_gap(at, end, allow_gaps=allow_gaps)

    def _live(self, head: Head, start: int, end: int, *, allow_gaps: bool) -> Iterator[ReadCommit]:
        """Yield the live commits that may have records of this range, from the last one that begins before it on.

        A commit that does not exist, though later ones do, was deleted by something else: no key of it disappears.
        """
        newest = self.newest_live(head)
        if newest is None:
            return
        low, high = head.next, newest.number
        while low < high:
            middle = (low + high + 1) // 2
            header = self.header(middle)
            if header is not None and header.kind == "tombstone":
                raise SegmentGoneError(f"{self.commit_name(middle)} was compacted")
            low, high = (middle, high) if header is not None and header.base <= start else (low, middle - 1)
        for number in range(low, newest.number + 1):
            try:
                read = self.read_commit(number)
            except SegmentMissingError:
                if allow_gaps:
                    continue
                raise
            if read.header.base >= end:
                return
            if read.batch.num_rows:
                yield read

    def _check_gap(self, at: int, base: int, *, allow_gaps: bool) -> None:
        if base > at and not allow_gaps:
            raise SegmentMissingError(
                f"offsets {at} to {base - 1} are missing in {self.name}: they have expired, or were deleted; read"
                " without these records with failOnDataLoss=false (without Spark: allow_gaps=True, --allow-gaps)"
            )

    def _stale(self, head: Head) -> LogIncompleteError:
        return LogIncompleteError(
            f"{self.name}/head.json begins at commit {head.next}, but later commits are tombstones: it is an old copy."
            " Restore its newest version (docs/log.md, Damage of objects)"
        )

    def live_end(self) -> tuple[Head, Header | None]:
        """Return the head and the header of the newest live commit, of one moment. Raises LogIncompleteError.

        The partition must have been opened.
        """
        for attempt in range(MAX_READS):
            found = self.read_head()
            if found is None:
                raise LogIncompleteError(
                    f"{self.name} has no head any more: restore it (docs/log.md, Damage of objects)"
                )
            try:
                return found.head, self.newest_live(found.head)
            except SegmentGoneError:
                if attempt == MAX_READS - 1:
                    raise self._stale(found.head) from None
        raise AssertionError


def _slice(read: ReadCommit, start: int, end: int) -> pa.RecordBatch:
    return read.batch.slice(start - read.header.base, end - start)
