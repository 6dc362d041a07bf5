"""The writer of one shard: it turns records into rows of its partition, and appends them. Blocking, but for ShardLog.

How a partition is fenced, recovered and appended to is in efo_service.log.disk_writer and
efo_service.log.objects.writer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from efo.model import Checkpoint, Record
from efo_service.log.catalog import is_noted, mark_written, with_shard
from efo_service.log.columns.arrow import record_batch
from efo_service.log.columns.layout import Columns, columns_of
from efo_service.log.files import Appender, LogFiles, never
from efo_service.relay.errors import CLOSED, SinkClosedError, SinkError, SinkFullError
from efo_service.relay.mapping import Extractor, RecordMapping
from efo_service.relay.record_size import RecordSize
from efo_service.relay.sink import Part, closed_by_failure

T = TypeVar("T")

RunBlocking = Callable[[Callable[[], T]], Awaitable[T]]
"""Runs a blocking function, and returns what it returns."""

_ROW: Final = 40
"""Bytes of a row besides key, value, topic and headers: two integers of 8, two of 4 and four offsets of 4."""
_HEADER: Final = 8
"""Bytes of a header besides its name and value: two offsets of 4."""


class PartitionWriter:
    """Appends one shard's records to its partition.

    `opened`: the partition, which it closes. `number`: of the partition. `note`: notes in the catalog that the
    partition has records; None if that is noted. `topic`, `mapping`: how records become rows.
    """

    def __init__(
        self,
        opened: Appender,
        topic: str,
        number: int,
        mapping: RecordMapping,
        clock: Callable[[], float],
        note: Callable[[], None] | None,
    ) -> None:
        self._opened = opened
        self.topic = topic
        self._number = number
        self.mapping = mapping
        self._clock = clock
        self._note = note

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position of the last durable record (rule R12), None if there is none."""
        return self._opened.position

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self._opened.end

    def append(self, records: Sequence[Record]) -> None:
        """Prepare and commit some records."""
        self.commit(self.prepare([columns_of(records, self.mapping)]))

    def prepare(self, parts: Sequence[Columns]) -> Any:
        """Lay out the next commit, without I/O. Raises RecordRefusedError if the mapping's extractor fails."""
        batch = record_batch(parts, self.mapping, topic=self.topic, partition=self._number, base=self.end)
        return self._opened.lay_out(batch, parts[0].first, parts[-1].last, self._clock())

    def commit(self, prepared: Any) -> None:
        """Make the records and the position of the last one durable, in one step: see Appender."""
        self._opened.append(prepared)
        self.note()

    def note(self) -> None:
        """Note in the catalog that the partition has records. These are durable: the next commit repeats a failure."""
        if self._note is not None:
            with suppress(SinkError):
                self._note()
                self._note = None

    def close(self) -> None:
        """Release the partition."""
        self._opened.close()


def open_partition(
    files: LogFiles,
    topic: str,
    stream: str,
    shard_id: str,
    clock: Callable[[], float],
    extract: Extractor | None = None,
    *,
    checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,
    created_at: float | None = None,
    check_cancelled: Callable[[], object] = never,
) -> PartitionWriter:
    """Open a shard's partition for writing, fence all earlier writers, and recover.

    `extract`: see RecordMapping. `checkpoint`: that of the shard's lease, `created_at`: of the stream, see
    `with_shard`. `check_cancelled`: see PartitionFiles. It may be called again after any error. Raises
    StreamRecreatedError if the topic belongs to a former stream of this name, LogIncompleteError if the shard was read
    without this log, and what `PartitionFiles.open` raises.
    """
    catalog = with_shard(files, topic, stream, shard_id, checkpoint, created_at)
    number = catalog.partitions[shard_id]
    was_written = number in catalog.written
    partition = files.partition(topic, number, catalog.owner(number))
    opened = partition.open(clock, check_cancelled, was_written=was_written)
    noted = is_noted(catalog, number, created_at)
    note = None if noted else partial(mark_written, files, topic, stream, number, created_at)
    writer = PartitionWriter(opened, topic, number, RecordMapping(stream, shard_id, extract), clock, note)
    try:
        if opened.position is not None and not was_written:
            writer.note()  # an earlier writer was killed before it noted that
    except BaseException:
        writer.close()
        raise
    return writer


class LogShardSink:
    """The log, opened for one shard; see ShardSink. `bytes_in_loop`: see Limits."""

    refusal = None

    def __init__(self, writer: PartitionWriter, run_blocking: RunBlocking[Any], bytes_in_loop: int) -> None:
        self._writer = writer
        self._run_blocking = run_blocking
        self._bytes_in_loop = bytes_in_loop
        self._size = RecordSize(writer.mapping, record=_ROW + len(writer.topic), header=_HEADER)
        self._unanswered: tuple[Sequence[Part], Any] | None = None
        self._is_closed = False

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position of the last durable record."""
        return self._writer.position

    @property
    def end_offset(self) -> int:
        """The offset of the next record to be committed."""
        return self._writer.end

    def prepare(self, records: Sequence[Record]) -> Part:
        """Return the columns of some records, and how many bytes they have before any compression."""
        columns = columns_of(records, self._writer.mapping)
        headers = self._size.headers if columns.plain is None else self._size.plain_headers
        return Part(columns, len(columns.keys) + len(columns.values) + headers(records))

    async def commit(self, parts: Sequence[Part]) -> None:
        """Make parts durable. After an error that does not reopen it can be repeated. Raises SinkError and its kinds.

        After StoreUnavailableError it looks what became of the first call, which is why that is kept.
        """
        if self._is_closed:
            raise SinkClosedError(CLOSED)
        with closed_by_failure(self.close):
            if self._unanswered is None or self._unanswered[0] != parts:
                prepare = partial(self._writer.prepare, [part.content for part in parts])
                is_large = sum(part.size for part in parts) > self._bytes_in_loop
                self._unanswered = parts, await self._run_blocking(prepare) if is_large else prepare()
            try:
                await self._run_blocking(partial(self._writer.commit, self._unanswered[1]))
            except SinkFullError:  # nothing was written: the next try has a time of its own
                self._unanswered = None
                raise
        self._unanswered = None

    def close(self) -> None:
        """Release the partition."""
        if not self._is_closed:
            self._is_closed = True
            self._writer.close()
