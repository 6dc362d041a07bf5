"""Relays one shard into a sink: it writes batches, commits the write buffer, and acks after each commit."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Final, Protocol

import trio

from efo.exception_groups import collapse_groups
from efo.model import Batch, Checkpoint
from efo.telemetry.spans import ProcessSpan, ShardSpans, Spans
from efo.telemetry.tracing import NO_SPAN
from efo_service.relay.errors import RecordRefusedError
from efo_service.relay.failures import defects
from efo_service.relay.record_size import pieces
from efo_service.relay.room import Room
from efo_service.relay.sink import ShardSink, Sink

_Piece = tuple[Batch, int | None]
"""A batch up to and including its record of this index; None: all of it."""

COMMIT_RECORDS: Final = 10_000
COMMIT_BYTES: Final = 4 * 1024 * 1024
COMMIT_SECONDS: Final = 0.05
"""Even a small commit takes about 2 ms. With 50 ms, commits use less than a twentieth of the time."""
MAX_COMMITS_PER_SECOND: Final = 200
"""Of all shards together, as far as `MAX_DELAY` allows. Each takes a millisecond of CPU time: all a fifth of a core."""
MAX_DELAY: Final = 1.0
"""Seconds that a commit is delayed at most because other shards commit, too, or because its shard is behind."""
LAG_SHARE: Final = 0.1
"""A commit is delayed by at most this share of its shard's lag: fewer commits read a backlog sooner."""


class CommitPace:
    """When the records of a shard are to be committed: `seconds` after the first.

    Later if the shard lags, so that its commits are larger, and if many shards commit.
    """

    def __init__(self, seconds: float = COMMIT_SECONDS) -> None:
        self._seconds = seconds
        self._last = float("-inf")

    def due(self, now: float, lag: float = 0.0) -> float:
        """Return the time of the next commit of a shard whose first record arrived now. `lag`: its seconds behind."""
        earliest = now + max(self._seconds, min(lag * LAG_SHARE, MAX_DELAY))
        self._last = max(earliest, min(self._last + 1 / MAX_COMMITS_PER_SECOND, earliest + MAX_DELAY))
        return self._last


class ReadableShard(Protocol):
    """The part of a shard stream that the relay uses."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        ...

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        ...

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the shard's lease."""
        ...

    @property
    def has_pending(self) -> bool:
        """Whether more of the shard has arrived than was delivered: its reader, not Kinesis, is what is slow."""
        ...

    def seek(self, checkpoint: Checkpoint) -> None:
        """Start after this checkpoint. To be called before the iteration."""
        ...

    def __aiter__(self) -> AsyncIterator[Batch]:
        """Read the shard until it ends or the worker drains."""
        ...

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        """Ack everything up to and including this batch, or up to and including its record of this index."""
        ...


async def relay_shard(
    shard: ReadableShard,
    sink: Sink,
    *,
    commit_records: int = COMMIT_RECORDS,
    commit_bytes: int = COMMIT_BYTES,
    pace: CommitPace | None = None,
    spans: Spans | None = None,
    room: Room | None = None,
) -> None:
    """Relay a shard until its iteration ends, then commit the remaining records.

    The write buffer is committed as soon as it has `commit_records` records, or `commit_bytes` bytes as the sink writes
    them, or at the time that `pace` says, which the shards of a process share. While more of the shard has already
    arrived, that time is up to MAX_DELAY after the first record: what waits is read sooner with fewer commits. The
    buffer may exceed the first two limits by one batch. A batch of more than `commit_bytes` is written in pieces. The
    buffer fills again during a commit; when it is full, reading the shard pauses. If the sink keeps positions, the
    shard is read from the sink's position (rule R12).

    `spans`: each commit group is a process span, from its first record in the buffer until its commit. `room`: for the
    buffers of all shards; None: there is always room.

    Raises RecordRefusedError for a record that the sink refuses, after a commit of all records before it; SinkError;
    and what reading the shard raises.
    """
    async with sink.open(shard.stream, shard.shard_id, shard.checkpoint) as shard_sink:
        if shard_sink.position is not None:
            shard.seek(shard_sink.position)
        shard_spans = None if spans is None else spans.of_shard(shard.shard_id)
        limits, pace, room = (commit_records, commit_bytes), pace or CommitPace(), room or Room(sys.maxsize)
        shard_relay = _ShardRelay(shard, shard_sink, limits, pace, shard_spans, room)
        try:
            with collapse_groups():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(shard_relay.commit)
                    await shard_relay.fill()
                shard_relay.check()
        finally:
            shard_relay.end_span()
            room.hold(shard_relay, 0)


class _ShardRelay:
    """Fills the write buffer in one task, and commits it in another.

    `_buffered`: the last piece in the write buffer. `_committing`: the last piece of the running commit; it is acked
    afterwards. `_deadline`, `_latest`: when the records in the buffer are committed: without more that has arrived, and
    with more. `_is_due`: whether the first has passed, and each piece may be the last one of the commit.
    """

    def __init__(
        self,
        shard: ReadableShard,
        sink: ShardSink,
        limits: tuple[int, int],
        pace: CommitPace,
        spans: ShardSpans | None,
        room: Room,
    ) -> None:
        self._shard = shard
        self._sink = sink
        self._records, self._bytes = limits
        self._pace = pace
        self._spans = spans
        self._room = room
        self._committing_bytes = 0
        self._span: ProcessSpan | None = None  # of the records in the write buffer
        self._buffered: _Piece | None = None
        self._committing: _Piece | None = None
        self._deadline = self._latest = float("inf")
        self._is_due = False
        self._is_full_together = False  # it waits for room, so what it has is committed now
        self._ended = False
        self._refused: RecordRefusedError | None = None
        self._buffer_changed = trio.lowlevel.ParkingLot()
        self._buffer_taken = trio.lowlevel.ParkingLot()

    async def fill(self) -> None:
        """Read the shard into the write buffer; wait while the buffer is full."""
        async for batch in self._shard:
            await self._buffer(batch)
            del batch  # a shard waits long for the next one, and with it thousands of others
            if self._refused is not None:
                break
            if self._room.is_full:
                self._is_full_together = True
                self._buffer_changed.unpark_all()
                await self._room.wait(self)
                self._is_full_together = False
        self._ended = True
        self._buffer_changed.unpark_all()

    async def _buffer(self, batch: Batch) -> None:
        for piece, index in self._pieces(batch):
            try:
                self._add(batch, piece, index)
            except RecordRefusedError as error:
                self._refused = error
                self._add_before_refused(batch, piece, index)
                return
            while self._is_full:
                await self._buffer_taken.park()

    def _pieces(self, batch: Batch) -> Iterator[tuple[Batch, int | None]]:
        with defects(self._shard.shard_id):
            yield from pieces(batch, self._sink.size, self._bytes)

    def _add_before_refused(self, batch: Batch, piece: Batch, index: int | None) -> None:
        """Write the records of a piece that come before the refused one."""
        start = (len(batch.records) if index is None else index + 1) - len(piece.records)
        before = tuple(takewhile(lambda record: self._sink.refusal(record) is None, piece.records))
        if before:
            self._add(batch, replace(piece, records=before), start + len(before) - 1)

    def check(self) -> None:
        """Raise RecordRefusedError if a record was refused."""
        if self._refused is not None:
            raise self._refused

    def end_span(self) -> None:
        """End the span of the records in the write buffer, if they are not committed."""
        if self._span is not None:
            self._span.abandon()
            self._span = None

    def _add(self, batch: Batch, piece: Batch, index: int | None) -> None:
        """Write a piece of a batch. `index`: that of its last record in the batch, None if it is the last piece."""
        if piece.records:
            is_first = self._buffered is None
            if is_first:
                now = trio.current_time()
                self._deadline = self._pace.due(now, batch.millis_behind_latest / 1000)
                self._latest = now + MAX_DELAY
            with defects(self._shard.shard_id):
                self._sink.write(piece)
            self._room.hold(self, self._committing_bytes + self._sink.pending_bytes)
            if self._spans is not None:
                self._span = self._span or self._spans.of_group()
                self._span.add(piece.records)
            self._buffered = batch, index
            if is_first or self._is_due or self._is_full:  # to wake the commit's task for nothing costs too much
                self._buffer_changed.unpark_all()
        elif self._buffered is not None:
            self._buffered = batch, None
        elif self._committing is not None:
            self._committing = batch, None
        else:
            self._shard.ack_through(batch)

    @property
    def _is_full(self) -> bool:
        is_full = self._sink.pending_records >= self._records or self._sink.pending_bytes >= self._bytes
        return is_full or self._is_full_together

    async def commit(self) -> None:
        """Commit the write buffer whenever it is due, until the shard has ended and all records are committed."""
        while await self._wait_until_due():
            self._committing, self._buffered = self._buffered, None
            self._committing_bytes = self._sink.pending_bytes
            span, self._span = self._span, None
            self._buffer_taken.unpark_all()
            with span or NO_SPAN, defects(self._shard.shard_id):
                await self._sink.commit()
            self._committing_bytes = 0
            self._room.hold(self, self._sink.pending_bytes)
            self._ack_committed()

    def _ack_committed(self) -> None:
        piece, self._committing = self._committing, None
        assert piece is not None  # noqa: S101 - a commit that is due has a batch
        self._shard.ack_through(*piece)

    async def _wait_until_due(self) -> bool:
        """Wait until a commit is due. Return False if the shard has ended and all records are committed."""
        while self._buffered is None and not self._ended:
            await self._buffer_changed.park()
        with trio.move_on_at(self._deadline):
            while not (self._is_full or self._ended):
                await self._buffer_changed.park()
        self._is_due = True
        with trio.move_on_at(self._latest):
            while self._shard.has_pending and not (self._is_full or self._ended):
                await self._buffer_changed.park()
        self._is_due = False
        return self._buffered is not None
