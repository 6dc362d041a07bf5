"""Appending to one partition on an object store. Blocking: runs in a thread.

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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from efo.model import Checkpoint
from efo_service.log.objects import keys
from efo_service.log.objects.codec import Header, encode
from efo_service.log.objects.head import Head, encode_head, new_write
from efo_service.log.objects.partition import Partition
from efo_service.object_store.store import ExistsError, Store
from efo_service.relay.errors import SegmentGoneError, SinkFencedError, StoreUnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

OPEN_ATTEMPTS: Final = 20
"""How many numbers a writer tries to take when it opens a partition, if others take them meanwhile."""


@dataclass(slots=True)
class _Pending:
    """A commit that is being made. `is_unanswered`: a request for it may have happened."""

    header: Header
    content: bytes
    is_unanswered: bool = False


class ObjectAppender:
    """A partition that is open for writing; implements Appender. `newest`: the header of its newest commit."""

    def __init__(self, store: Store, partition: Partition, newest: Header) -> None:
        self._store = store
        self._partition = partition
        self._newest = newest

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position of the last durable record."""
        return self._newest.position

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self._newest.end

    def lay_out(self, batch: pa.RecordBatch, first: Checkpoint, last: Checkpoint, now: float) -> _Pending:
        """Return the next commit, compressed. Whatever requests are made for it, it is there once."""
        newest = self._newest
        header = msgspec.structs.replace(
            newest,
            kind="commit",
            number=newest.number + 1,
            base=newest.end,
            end=newest.end + batch.num_rows,
            first=str(first),
            last=str(last),
            committed_at=now,
            write=secrets.token_hex(8),
        )
        return _Pending(header, encode(header, batch))

    def append(self, laid_out: _Pending) -> None:
        """Take the next number with it. Raises StoreUnavailableError, SinkFencedError and SinkError."""
        if not take_number(self._store, self._partition, laid_out):
            raise SinkFencedError(
                f"{self._partition.name} was opened by another writer after this one (epoch {self._newest.epoch}): this"
                " worker has lost the shard, and the other one reads uncommitted records again"
            )
        self._newest = laid_out.header

    def close(self) -> None:
        """Nothing has to be released."""


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


def open_appender(
    store: Store, partition: Partition, clock: Callable[[], float], check_cancelled: Callable[[], object]
) -> ObjectAppender:
    """Take the next number of a partition, which fences all earlier writers. See PartitionFiles."""
    if partition.read_head() is None:
        _create_head(store, partition)
    return ObjectAppender(store, partition, _begin_epoch(store, partition, clock, check_cancelled))


def _create_head(store: Store, partition: Partition) -> None:
    stream, shard_id = partition.owner
    head = Head(write=new_write(), topic=partition.topic, partition=partition.number, stream=stream, shard=shard_id)
    with suppress(ExistsError):  # another writer opens it, too
        store.create(keys.head(partition.topic, partition.number), encode_head(head))


def _begin_epoch(
    store: Store, partition: Partition, clock: Callable[[], float], check_cancelled: Callable[[], object]
) -> Header:
    """Take the next number for this writer, and return its header."""
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
        content = encode(header)
        check_cancelled()
        if take_number(store, partition, _Pending(header, content)):
            return header
    raise StoreUnavailableError(
        f"{partition.name}: other writers took {OPEN_ATTEMPTS} numbers while this one opened it: two services write the"
        " same log, or the shard moves between workers"
    )


def _check(partition: Partition, newest: Header) -> None:
    """Check every byte of the newest commit, unless it was compacted meanwhile, which checks them."""
    with suppress(SegmentGoneError):
        partition.read_commit(newest.number)
