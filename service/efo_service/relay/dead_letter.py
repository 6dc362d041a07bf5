"""A sink around two others: records that the first can never write go to the second, as dead letters.

A commit makes the dead letters durable before the other records. After a crash in between, the first sink refuses the
same records again, and those that the second sink already has by its position are skipped. So the pair is exactly once
if both sinks keep positions, and at least once otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final

import msgspec
import trio

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo_service.relay.sink import ShardSink, Sink, identify
from efo_service.relay.write_buffer import WriteBuffer, check_refusals

REASON_TAG: Final = "efo.refusal"
"""The tag with the reason of a dead letter. The mapping writes it as the header kinesis.tag.efo.refusal."""

OnDeadLetter = Callable[[str, Checkpoint, str], None]
"""Called for each dead letter with the shard id, the record's checkpoint and the reason."""

Reasons = Sequence[str | None]


class DeadLetteringSink:
    """Writes records to `sink`, and those that it refuses to `dead_letters`.

    `on_dead_letter`: called when a dead letter is written.
    """

    def __init__(self, sink: Sink, dead_letters: Sink, on_dead_letter: OnDeadLetter) -> None:
        self._sink = sink
        self._dead_letters = dead_letters
        self._on_dead_letter = on_dead_letter

    def identify(self, created_at: float | None) -> None:
        """Tell both sinks when the stream was created."""
        identify(self._sink, created_at)
        identify(self._dead_letters, created_at)

    def open(
        self, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AbstractAsyncContextManager[DeadLetterShardSink]:
        """Open both sinks for a shard. Entering raises SinkError."""
        return self._open(stream, shard_id, checkpoint)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str, checkpoint: Checkpoint) -> AsyncIterator[DeadLetterShardSink]:
        async with (
            self._sink.open(stream, shard_id, checkpoint) as sink,
            # Most shards have no dead letters: the checkpoint of their leases proves nothing about these.
            self._dead_letters.open(stream, shard_id) as dead_letters,
        ):
            shard_sink = DeadLetterShardSink(sink, dead_letters, self._on_dead_letter)
            try:
                yield shard_sink
            finally:
                shard_sink.close()


class DeadLetterShardSink:
    """Both sinks, opened for one shard; see ShardSink. It keeps the write buffer, and splits it at the commit.

    So the dead letters of a running commit never mix with those of the next one.
    """

    def __init__(self, sink: ShardSink, dead_letters: ShardSink, on_dead_letter: OnDeadLetter) -> None:
        self._sink = sink
        self._dead_letters = dead_letters
        self._on_dead_letter = on_dead_letter
        self._buffer = WriteBuffer(sink.size, sink.position)
        self._batches: list[tuple[Batch, Reasons]] = []

    @property
    def position(self) -> Checkpoint | None:
        """The position of the first sink. Earlier dead letters are durable."""
        return self._sink.position

    @property
    def pending_records(self) -> int:
        """How many records are in the write buffer, dead letters included."""
        return len(self._buffer.records)

    @property
    def pending_bytes(self) -> int:
        """How many bytes a commit of the write buffer writes, dead letters included."""
        return self._buffer.size

    def size(self, records: Sequence[Record]) -> int:
        """Return how many bytes the first sink writes for some records. Dead letters are a little larger."""
        return self._sink.size(records)

    def refusal(self, record: Record) -> str | None:
        """Return why neither sink can write a record, None if one can."""
        reason = self._sink.refusal(record)
        return None if reason is None else self._dead_letters.refusal(_dead_letter(record, reason))

    def write(self, batch: Batch) -> None:
        """Add a batch to the write buffer.

        Raises RecordRefusedError if neither sink can write one of its records, SinkOrderError and SinkClosedError.
        """
        self._buffer.check_open()
        reasons = [self._sink.refusal(record) for record in batch.records]
        if any(reasons):
            check_refusals(self, batch)
        self._buffer.add(batch)
        if batch.records:
            self._batches.append((batch, reasons))

    async def commit(self) -> None:
        """Make the dead letters durable, then the other records.

        Raises SinkError.
        """
        self._buffer.take()
        batches, self._batches = self._batches, []
        try:
            for batch, reasons in batches:
                self._write(batch, reasons)
            if self._dead_letters.pending_records:
                await self._dead_letters.commit()
            await self._sink.commit()
        except BaseException:
            self.close()
            raise

    def _write(self, batch: Batch, reasons: Reasons) -> None:
        """Write each record of a batch to its sink. `reasons`: why the first sink refuses it."""
        if not any(reasons):
            self._sink.write(batch)
            return
        pairs = list(zip(batch.records, reasons, strict=True))
        if taken := tuple(record for record, reason in pairs if reason is None):
            self._sink.write(_with(batch, taken))
        committed = self._dead_letters.position
        refused = [
            (record, reason)
            for record, reason in pairs
            if reason is not None and (committed is None or checkpoint_of(record) > committed)
        ]
        if refused:
            self._dead_letters.write(_with(batch, tuple(_dead_letter(record, reason) for record, reason in refused)))
        for record, reason in refused:
            self._on_dead_letter(batch.shard_id, checkpoint_of(record), reason)

    def close(self) -> None:
        """Drop the records that were not committed."""
        self._buffer.close()
        self._batches = []


class SkippingSink:
    """A sink for dead letters that skips them: it keeps nothing. `on_dead_letter` of DeadLetteringSink reports them."""

    def open(
        self, _stream: str, _shard_id: str, _checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AbstractAsyncContextManager[SkippingShardSink]:
        """Open the sink for a shard."""
        return nullcontext(SkippingShardSink())


class SkippingShardSink:
    """Takes every record, and drops it at the commit; see ShardSink."""

    position = None
    pending_bytes = 0

    def __init__(self) -> None:
        self.pending_records = 0

    def size(self, _records: Sequence[Record]) -> int:
        """Return 0: nothing is written."""
        return 0

    def refusal(self, _record: Record) -> str | None:
        """Return None: any record can be skipped."""
        return None

    def write(self, batch: Batch) -> None:
        """Count the records."""
        self.pending_records += len(batch.records)

    async def commit(self) -> None:
        """Drop the records."""
        self.pending_records = 0
        await trio.lowlevel.checkpoint()


def _with(batch: Batch, records: tuple[Record, ...]) -> Batch:
    return Batch(batch.stream, batch.shard_id, records, batch.continuation, batch.millis_behind_latest, batch.number)


def _dead_letter(record: Record, reason: str) -> Record:
    return msgspec.structs.replace(record, tags=(*record.tags, (REASON_TAG, reason)))
