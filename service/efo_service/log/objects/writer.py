"""The writer of one partition on an object store: it opens, and appends. Blocking: runs in a thread.

**A commit is one conditional create.** Its key is the partition and the next number, so of two writers one is refused,
and what it wanted to write is nowhere. The object has the records and the Kinesis position of the last one: a commit
is there as a whole or not at all.

**Fencing.** Opening a partition takes the next number with a commit that has no records. From then on every earlier
writer wants a number that is taken. It stays taken: neither compaction nor retention deletes the key of a commit, they
replace its content by a tombstone. So an earlier writer is refused for ever, however long it was stalled, and wherever
its request was held up.

**An answer that is lost.** The writer looks whether the number is taken, and by which write: each has a token, which
the tombstone keeps. If it is free, it makes the same request again: at most one of all these requests can succeed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from efo.model import Checkpoint
from efo_service.log.catalog import is_noted, mark_written, with_shard
from efo_service.log.columns.arrow import record_batch
from efo_service.log.columns.layout import Columns
from efo_service.log.objects import keys
from efo_service.log.objects.codec import Header, encode
from efo_service.log.objects.files import ObjectFiles, emptied_message
from efo_service.log.objects.head import Head, encode_head, new_write
from efo_service.log.objects.partition import Partition
from efo_service.relay.errors import (
    LogIncompleteError,
    SegmentGoneError,
    SinkError,
    SinkFencedError,
    StoreUnavailableError,
)
from efo_service.relay.mapping import Extractor, RecordMapping
from efo_service.relay.object_store.store import ExistsError, Store

OPEN_ATTEMPTS: Final = 20
"""How many numbers a writer tries to take when it opens a partition, if others take them meanwhile."""


@dataclass(slots=True)
class _Pending:
    """A commit that is being made. `is_unanswered`: a request for it may have happened."""

    header: Header
    content: bytes
    is_unanswered: bool = False


class ObjectPartitionWriter:
    """Appends one shard's records to its partition. `position`, `end`: after the last durable commit."""

    def __init__(
        self,
        store: Store,
        partition: Partition,
        mapping: RecordMapping,
        newest: Header,
        clock: Callable[[], float],
        note: Callable[[], None] | None,
    ) -> None:
        self._store = store
        self._partition = partition
        self.mapping = mapping
        self.topic = partition.topic
        self._newest = newest
        self._clock = clock
        self._note = note
        self._pending: _Pending | None = None

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position of the last durable record (rule R12), None if there is none."""
        return self._newest.position

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self._newest.end

    def prepare(self, parts: Sequence[Columns]) -> None:
        """Encode the next commit, at least one part. `commit` makes it durable."""
        newest = self._newest
        batch = record_batch(parts, self.mapping, topic=self.topic, partition=self._partition.number, base=newest.end)
        header = msgspec.structs.replace(
            newest,
            kind="commit",
            number=newest.number + 1,
            base=newest.end,
            end=newest.end + batch.num_rows,
            first=str(parts[0].first),
            last=str(parts[-1].last),
            committed_at=self._clock(),
            write=secrets.token_hex(8),
        )
        self._pending = _Pending(header, encode(header, batch))

    def commit(self) -> None:
        """Make the prepared records durable, with the position of the last one. Call it again after a retryable error.

        Raises StoreUnavailableError, SinkFencedError if another writer has opened the partition since, and SinkError.
        """
        pending = self._pending
        if pending is None:
            return
        if not take_number(self._store, self._partition, pending):
            raise SinkFencedError(
                f"{self._partition.name} was opened by another writer after this one (epoch {self._newest.epoch}): this"
                " worker has lost the shard, and the other one reads uncommitted records again"
            )
        self._newest, self._pending = pending.header, None
        if self._note is not None:
            with suppress(SinkError):  # the records are durable: the next commit repeats a failure
                self._note()
                self._note = None


def take_number(store: Store, partition: Partition, pending: _Pending) -> bool:
    """Create the key of a commit. Return whether it is this commit's; False if it is another's.

    Raises StoreUnavailableError if that is not known yet: call it again with the same commit. Raises SinkError.
    """
    number = pending.header.number
    if pending.is_unanswered and (found := partition.header(number)) is not None:
        return found.write == pending.header.write
    pending.is_unanswered = True
    try:
        store.create(keys.commit(partition.topic, partition.number, number), pending.content)
    except ExistsError:
        found = partition.header(number)
        if found is None:  # S3 also answers so if a request for the same key is in progress
            raise StoreUnavailableError(
                f"{partition.commit_name(number)}: the store reports a conflict, but has no such object yet"
            ) from None
        return found.write == pending.header.write
    return True


def open_partition(
    store: Store,
    topic: str,
    stream: str,
    shard_id: str,
    clock: Callable[[], float],
    extract: Extractor | None = None,
    *,
    checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,
    created_at: float | None = None,
    check_cancelled: Callable[[], object] = lambda: None,
) -> ObjectPartitionWriter:
    """Open a shard's partition for writing, and fence all earlier writers.

    `extract`: see RecordMapping. `checkpoint`: that of the shard's lease, `created_at`: of the stream, see
    `with_shard`. `check_cancelled` is called before each number that is taken, and may raise: who has lost the
    shard must not fence its next owner. It may be called again after any error. Raises StreamRecreatedError if the
    topic belongs to a former stream of this name, LogIncompleteError if a part of the partition is gone or the shard
    was read without it, SegmentCorruptError, LogOwnerError, LogVersionError, StoreUnavailableError and SinkError.
    """
    files = ObjectFiles(store)
    catalog = with_shard(files, topic, stream, shard_id, checkpoint, created_at)
    number = catalog.partitions[shard_id]
    partition = Partition(store, topic, number, (stream, shard_id))
    is_written = number in catalog.written
    if partition.read_head() is None:
        if is_written:
            raise LogIncompleteError(emptied_message(partition.name))
        _create_head(store, partition)
    newest = _begin_epoch(store, partition, clock, check_cancelled)
    noted = is_noted(catalog, number, created_at)
    note = None if noted else partial(mark_written, files, topic, stream, number, created_at)
    if note is not None and not is_written and newest.last is not None:
        with suppress(SinkError):  # an earlier writer was killed before it noted that; each commit repeats it
            note()
            note = None
    return ObjectPartitionWriter(store, partition, RecordMapping(stream, shard_id, extract), newest, clock, note)


def _create_head(store: Store, partition: Partition) -> None:
    stream, shard_id = partition.owner
    head = Head(write=new_write(), topic=partition.topic, partition=partition.number, stream=stream, shard=shard_id)
    with suppress(ExistsError):  # another writer opens it, too
        store.create(keys.head(partition.topic, partition.number), encode_head(head))


def _begin_epoch(
    store: Store, partition: Partition, clock: Callable[[], float], check_cancelled: Callable[[], object]
) -> Header:
    """Take the next number for this writer, and return its header."""
    pending: _Pending | None = None
    for _ in range(OPEN_ATTEMPTS):
        head, newest = partition.live_end()
        if newest is not None:
            _check(partition, newest)
        header = Header(
            kind="open",
            topic=partition.topic,
            partition=partition.number,
            stream=partition.owner[0],
            shard=partition.owner[1],
            number=head.next if newest is None else newest.number + 1,
            epoch=1 + (head.epoch if newest is None else newest.epoch),
            base=head.base if newest is None else newest.end,
            end=head.base if newest is None else newest.end,
            first=None,
            last=head.last if newest is None else newest.last,
            committed_at=clock(),
            write=secrets.token_hex(8),
        )
        pending = _Pending(header, encode(header))
        check_cancelled()
        if take_number(store, partition, pending):
            return header
    raise StoreUnavailableError(
        f"{partition.name}: other writers took {OPEN_ATTEMPTS} numbers while this one opened it: two services write the"
        " same log, or the shard moves between workers"
    )


def _check(partition: Partition, newest: Header) -> None:
    """Check every byte of the newest commit, unless it was compacted meanwhile, which checks them."""
    with suppress(SegmentGoneError):
        partition.read_commit(newest.number)
