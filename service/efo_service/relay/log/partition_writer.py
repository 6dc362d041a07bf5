"""The writer of one partition of the log: it locks, recovers and appends. Blocking: runs in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import LogOwnerError, SinkLockedError, os_errors
from efo_service.relay.file_lock import lock
from efo_service.relay.log.arrow import record_batch
from efo_service.relay.log.catalog import allocate_partition, topic_directory
from efo_service.relay.log.fencing import Epoch, begin_epoch, sync_directory
from efo_service.relay.log.segments import (
    Origin,
    Segment,
    last_segment,
    read_segment,
    write_segment,
)
from efo_service.relay.mapping import Extractor, RecordMapping


class PartitionWriter:
    """Appends one shard's records to its partition.

    `position`: the Kinesis position of the last durable record (rule R12), None if there is none.
    `end`: the offset of the next record.
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
    ) -> None:
        self.directory = epoch.directory
        self._epoch = epoch
        self.position: Checkpoint | None = None
        self.end = 0
        self._lock = lock_file
        self._topic = topic
        self._partition = partition
        self._mapping = mapping
        self._clock = clock

    def recover(self) -> None:
        """Read the position and the end offset from the last segment, after checking every byte of it."""
        last = last_segment(self.directory)
        if last is None:
            return
        _, origin = read_segment(last)
        mapping = self._mapping
        if (origin.stream, origin.shard_id) != (mapping.stream, mapping.shard_id):
            raise LogOwnerError(
                f"{last.path} holds records of {origin.stream}/{origin.shard_id}, but the topic's catalog assigns its"
                f" partition to {mapping.stream}/{mapping.shard_id}: one file was moved, put it back"
            )
        self.position, self.end = origin.last, last.end

    def append(self, records: Sequence[Record]) -> Segment:
        """Make the records and the position of the last one durable, in one step.

        Raises SinkFencedError if another writer has opened the partition since, SinkFullError and SinkError.
        """
        batch = record_batch(records, self._mapping, topic=self._topic, partition=self._partition, base=self.end)
        first, last = checkpoint_of(records[0]), checkpoint_of(records[-1])
        origin = Origin(self._mapping.stream, self._mapping.shard_id, first, last, self._clock())
        segment = write_segment(self.directory, batch, origin, self._epoch)
        self.position, self.end = last, segment.end
        return segment

    def close(self) -> None:
        """Unlock the partition."""
        self._lock.close()


def open_partition(
    root: Path, topic: str, stream: str, shard_id: str, clock: Callable[[], float], extract: Extractor | None = None
) -> PartitionWriter:
    """Lock and open a shard's partition for writing, and recover it. `extract`: see RecordMapping.

    Raises SinkLockedError if another writer has the partition open, SegmentCorruptError, LogOwnerError,
    LogVersionError, SinkFullError and SinkError.
    """
    number = allocate_partition(root, topic, stream, shard_id)
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
        writer = PartitionWriter(
            begin_epoch(directory),
            lock_file,
            topic=topic,
            partition=number,
            mapping=RecordMapping(stream, shard_id, extract),
            clock=clock,
        )
        writer.recover()
    except BaseException:
        lock_file.close()
        raise
    return writer
