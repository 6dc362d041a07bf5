"""The writer of one partition of the log: it locks, recovers and appends. Blocking: runs in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from efo.model import Checkpoint, Record
from efo_service.log.catalog import is_noted, mark_written, read_catalog, with_shard
from efo_service.log.columns.arrow import record_batch
from efo_service.log.columns.layout import Columns, columns_of
from efo_service.log.disk import DiskFiles, emptied_message, topic_directory
from efo_service.log.fencing import Epoch, begin_epoch
from efo_service.log.segments import (
    Origin,
    Segment,
    SegmentContent,
    check_owner,
    last_segment,
    read_segment,
    segment_content,
    write_segment,
)
from efo_service.relay.errors import LogIncompleteError, SinkError, SinkLockedError, os_errors
from efo_service.relay.mapping import Extractor, RecordMapping
from efo_service.relay.storage import lock, sync_directory


class Prepared(NamedTuple):
    """A commit that is to be made. `position`: the Kinesis position of its last record."""

    content: SegmentContent
    position: Checkpoint


class PartitionWriter:
    """Appends one shard's records to its partition.

    `mark_written`: notes in the catalog that the partition has records; None if that is noted.
    `position`: the Kinesis position of the last durable record (rule R12), None if there is none.
    `end`: the offset of the next record. `topic`, `mapping`: how records become rows.
    """

    def __init__(
        self,
        epoch: Epoch,
        lock_file: IO[bytes],
        *,
        topic: str,
        partition: int,
        mapping: RecordMapping,
        clock: Callable[[], float],
        mark_written: Callable[[], None] | None,
    ) -> None:
        self.directory = epoch.directory
        self._epoch = epoch
        self.position: Checkpoint | None = None
        self.end = 0
        self._lock = lock_file
        self.topic = topic
        self._partition = partition
        self.mapping = mapping
        self._clock = clock
        self._mark_written = mark_written

    def recover(self, *, was_written: bool = False) -> None:
        """Read the position and the end offset from the last segment, after checking every byte of it.

        `was_written`: whether the catalog says that it has records. Raises LogIncompleteError if it had and has none.
        """
        last = last_segment(self.directory)
        if last is None:
            if was_written:
                raise LogIncompleteError(emptied_message(self.directory))
            return
        _, origin = read_segment(last)
        check_owner(last, origin, (self.mapping.stream, self.mapping.shard_id))
        self.position, self.end = origin.last, last.end
        if not was_written:
            self._note()

    def append(self, records: Sequence[Record]) -> Segment:
        """Prepare and commit some records."""
        return self.commit(self.prepare([columns_of(records, self.mapping)]))

    def prepare(self, parts: Sequence[Columns]) -> Prepared:
        """Lay out the next commit, without I/O. Raises RecordRefusedError if the mapping's extractor fails."""
        batch = record_batch(parts, self.mapping, topic=self.topic, partition=self._partition, base=self.end)
        origin = Origin(self.mapping.stream, self.mapping.shard_id, parts[0].first, parts[-1].last, self._clock())
        return Prepared(segment_content(batch, origin), origin.last)

    def commit(self, prepared: Prepared) -> Segment:
        """Make the records and the position of the last one durable, in one step.

        Raises SinkFencedError if another writer has opened the partition since, SinkFullError and SinkError.
        """
        segment = write_segment(self.directory, prepared.content, self._epoch)
        self.position, self.end = prepared.position, segment.end
        self._note()
        return segment

    def _note(self) -> None:
        """Note in the catalog that the partition has records. These are durable: the next commit repeats a failure."""
        if self._mark_written is not None:
            with suppress(SinkError):
                self._mark_written()
                self._mark_written = None

    def close(self) -> None:
        """Unlock the partition."""
        self._lock.close()


def open_partition(
    root: Path,
    topic: str,
    stream: str,
    shard_id: str,
    clock: Callable[[], float],
    extract: Extractor | None = None,
    *,
    checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,
    created_at: float | None = None,
) -> PartitionWriter:
    """Lock and open a shard's partition for writing, and recover it.

    `extract`: see RecordMapping. `checkpoint`: that of the shard's lease, `created_at`: of the stream, see
    `with_shard`. Raises StreamRecreatedError if the topic belongs to a former stream of this name,
    SinkLockedError if another writer has the partition open, LogIncompleteError if the partition was emptied or the
    shard was read without it, SegmentCorruptError, LogOwnerError, LogVersionError, SinkFullError and SinkError.
    """
    files = DiskFiles(root)
    number = with_shard(files, topic, stream, shard_id, checkpoint, created_at).partitions[shard_id]
    directory = topic_directory(root, topic) / str(number)
    with os_errors("open", directory):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)
        try:
            lock_file = lock(directory / "writer.lock", wait=False)
        except BlockingIOError as error:
            raise SinkLockedError(
                f"{directory} is open in another writer: {shard_id} has two workers, or a stopping worker has not"
                " finished its last commit"
            ) from error
    try:
        catalog = read_catalog(files, topic)
        noted = is_noted(catalog, number, created_at)
        writer = PartitionWriter(
            begin_epoch(directory),
            lock_file,
            topic=topic,
            partition=number,
            mapping=RecordMapping(stream, shard_id, extract),
            clock=clock,
            mark_written=None if noted else partial(mark_written, files, topic, stream, number, created_at),
        )
        writer.recover(was_written=number in catalog.written)
    except BaseException:
        lock_file.close()
        raise
    return writer
