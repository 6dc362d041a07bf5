"""A sink around two others: what the first can never take goes to the second, and nothing is left out in silence.

A commit makes the letters durable before the group that they were taken from: after a crash in between they are found
again, and those that a second sink with a position of its own already has are passed over. So the pair is exactly once
where both sinks own their position, and at least once otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import msgspec

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo_service.relay.sink import ShardSink, Sink
from efo_service.relay.write_buffer import WriteBuffer

REASON_TAG: Final = "efo.refusal"
"""The tag, and so the header kinesis.tag.efo.refusal, in which a letter says why it is one."""

Tell = Callable[[str, Checkpoint, str], None]
"""Told of each letter: the shard, the record, the reason."""


class DeadLetterSink:
    """Puts records into `sink`, and those that it refuses into `letters`. `tell` is told of each when it is written."""

    def __init__(self, sink: Sink, letters: Sink, tell: Tell) -> None:
        self._sink = sink
        self._letters = letters
        self._tell = tell

    def open(self, stream: str, shard_id: str) -> AbstractAsyncContextManager[DeadLetterShardSink]:
        """Open a shard's way into both. Entering raises SinkError."""
        return self._open(stream, shard_id)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str) -> AsyncIterator[DeadLetterShardSink]:
        async with self._sink.open(stream, shard_id) as sink, self._letters.open(stream, shard_id) as letters:
            shard_sink = DeadLetterShardSink(sink, letters, self._tell)
            try:
                yield shard_sink
            finally:
                shard_sink.close()


class DeadLetterShardSink:
    """One shard's way in; see ShardSink. It keeps the open group: a sink gets its part with the commit.

    So letters that are being committed never meet records of the group after them.
    """

    def __init__(self, sink: ShardSink, letters: ShardSink, tell: Tell) -> None:
        self._sink = sink
        self._letters = letters
        self._tell = tell
        self._group = WriteBuffer(sink.position)
        self._batches: list[Batch] = []

    @property
    def position(self) -> Checkpoint | None:
        """That of the first sink: letters before it are durable."""
        return self._sink.position

    @property
    def pending_records(self) -> int:
        """How many records are in the open group, letters included."""
        return len(self._group.records)

    @property
    def pending_bytes(self) -> int:
        """How many bytes of keys (in characters) and values are in the open group, letters included."""
        return self._group.size

    def refusal(self, record: Record) -> str | None:
        """Return why neither sink can take a record."""
        reason = self._sink.refusal(record)
        return None if reason is None else self._letters.refusal(_letter(record, reason))

    def write(self, batch: Batch) -> None:
        """Take a batch into the open group. Raises SinkOrderError, SinkClosedError."""
        self._group.add(batch)
        if batch.records:
            self._batches.append(batch)

    async def commit(self) -> None:
        """Make the letters durable, then the records.

        Raises RecordRefusedError if neither sink takes a record, SinkError.
        """
        self._group.take()
        batches, self._batches = self._batches, []
        try:
            for batch in batches:
                self._write(batch)
            if self._letters.pending_records:
                await self._letters.commit()
            await self._sink.commit()
        except BaseException:
            self.close()
            raise

    def _write(self, batch: Batch) -> None:
        """Give each sink its part of a batch."""
        reasons = [self._sink.refusal(record) for record in batch.records]
        if not any(reasons):
            self._sink.write(batch)
            return
        pairs = list(zip(batch.records, reasons, strict=True))
        if taken := tuple(record for record, reason in pairs if reason is None):
            self._sink.write(_with(batch, taken))
        had = self._letters.position
        refused = [
            (record, reason)
            for record, reason in pairs
            if reason is not None and (had is None or checkpoint_of(record) > had)
        ]
        if refused:
            self._letters.write(_with(batch, tuple(_letter(record, reason) for record, reason in refused)))
        for record, reason in refused:
            self._tell(batch.shard_id, checkpoint_of(record), reason)

    def close(self) -> None:
        """Drop what was not committed."""
        self._group.close()
        self._batches = []


def _with(batch: Batch, records: tuple[Record, ...]) -> Batch:
    return Batch(batch.stream, batch.shard_id, records, batch.continuation, batch.millis_behind_latest, batch.number)


def _letter(record: Record, reason: str) -> Record:
    return msgspec.structs.replace(record, tags=(*record.tags, (REASON_TAG, reason)))
