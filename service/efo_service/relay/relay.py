"""Relays one shard to its destination: fills the write buffer, commits it when it is due, and acks what is durable."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from math import inf
from typing import Final, Protocol

import trio

from efo.consumer.age_limits import AgeLimits
from efo.errors import without_tracebacks
from efo.exception_groups import collapse_groups
from efo.health import Overdue
from efo.model import Batch, Checkpoint, Record
from efo.telemetry.spans import ProcessSpan, ShardSpans, Spans
from efo.telemetry.tracing import NO_SPAN
from efo_service.relay.destination import Destination, SinkReports, defects
from efo_service.relay.errors import SinkError
from efo_service.relay.shard_writer import ShardWriter, open_writer
from efo_service.relay.transform import AppliesTo, RefusesOld
from efo_service.relay.write_buffer import Group, Room, WriteBuffer

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
    """The part of a shard stream that the relay uses.

    `overdue`: the relay sets it: what it waits for before it can ack (see `efo.health.Overdue`).
    `ages`: what is too old to be relayed.
    """

    overdue: Callable[[], Overdue | None]
    ages: AgeLimits | None

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
    destination: Destination,
    *,
    commit_records: int = COMMIT_RECORDS,
    commit_bytes: int = COMMIT_BYTES,
    pace: CommitPace | None = None,
    spans: Spans | None = None,
    room: Room | None = None,
    rng: random.Random | None = None,
) -> None:
    """Relay a shard until its iteration ends, then commit the remaining records.

    The write buffer is committed as soon as it has `commit_records` records, or `commit_bytes` bytes as the sink writes
    them, or at the time that `pace` says, which the shards of a process share. While more of the shard has already
    arrived, that time is up to MAX_DELAY after the first record: what waits is read sooner with fewer commits. The
    buffer may exceed the first two limits by one batch. A batch of more than `commit_bytes` is written in parts. The
    buffer fills again during a commit; when it is full, reading the shard pauses. If the sink keeps positions, the
    shard is read from the sink's position (rule R12).

    `spans`: each commit group is a process span, from its first record in the buffer until its commit. `room`: for the
    buffers of all shards; None: there is always room. `rng`: the source of jitter.

    Raises RecordRefusedError for a record that no sink takes, and SinkError for one that the sink cannot prepare, after
    a commit of what is before; IsolateShardError and SinkError; and what reading the shard raises.
    """
    writer, dead_letters = ShardWriter(destination, shard.stream, shard.shard_id, shard.checkpoint, rng), None
    if destination.dead_letters is not None:
        # Most shards have no dead letters: the checkpoint of their leases proves nothing about these.
        dead_letters = ShardWriter(destination.dead_letters, shard.stream, shard.shard_id, rng=rng)
    writers = [each for each in (writer, dead_letters) if each is not None]
    shard.overdue = lambda: next((each.overdue for each in writers if each.overdue is not None), None)
    async with AsyncExitStack() as stack:
        for each in writers:
            await stack.enter_async_context(open_writer(each))
        if writer.sink.position is not None:
            shard.seek(writer.sink.position)
        shard_spans = None if spans is None else spans.of_shard(shard.shard_id)
        limits, pace, room = (commit_records, commit_bytes), pace or CommitPace(), room or Room(sys.maxsize)
        transform: AppliesTo | None = destination.transform
        if destination.takes_old and shard.ages is not None and shard.ages.max_age is not None:
            transform = RefusesOld(shard.ages.take_over(), shard.ages.max_age, transform)
        relay = ShardRelay(shard, writer, dead_letters, destination.reports, limits, pace, room, shard_spans, transform)
        try:
            with collapse_groups():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(relay.commit)
                    await relay.fill()
                relay.check()
        finally:
            relay.end_span()
            room.hold(relay, 0)


class ShardRelay:
    """Fills the write buffer in one task, and commits it in another.

    `limits`: at how many records and bytes the buffer is full. `room`: for the buffers of all shards. `_committing`:
    the group of the running commit.
    """

    def __init__(
        self,
        shard: ReadableShard,
        writer: ShardWriter,
        dead_letters: ShardWriter | None,
        reports: SinkReports,
        limits: tuple[int, int],
        pace: CommitPace,
        room: Room,
        spans: ShardSpans | None = None,
        transform: AppliesTo | None = None,
    ) -> None:
        self._shard = shard
        self._writer = writer
        self._dead_letters = dead_letters
        self._reports = reports
        self._limits = limits
        self._pace = pace
        self._room = room
        self._spans = spans
        self._buffer = WriteBuffer(shard.shard_id, writer, dead_letters, limits[1], transform)
        self._span: ProcessSpan | None = None  # of the records in the write buffer
        self._committing: Group | None = None
        self._is_due = False  # each part may be the last one of the commit
        self._waits_for_room = False  # so what it has is committed now
        self._ended = False
        self._error: SinkError | None = None
        self._buffer_changed = trio.lowlevel.ParkingLot()
        self._buffer_taken = trio.lowlevel.ParkingLot()

    async def fill(self) -> None:
        """Read the shard into the write buffer; wait while the buffer is full."""
        async for batch in self._shard:
            try:
                await self._write(batch)
            except SinkError as error:
                self._error = without_tracebacks(error)  # it is raised after a commit of all records before
                break
            del batch  # a shard waits long for the next one, and with it thousands of others
            if self._room.is_full:
                await self._wait_for_room()
        self._ended = True
        self._buffer_changed.unpark_all()

    async def _wait_for_room(self) -> None:
        self._waits_for_room = True
        self._buffer_changed.unpark_all()
        await self._room.wait(self)
        self._waits_for_room = False

    def check(self) -> None:
        """Raise the error that ended the filling, if one did."""
        if self._error is not None:
            raise self._error

    def end_span(self) -> None:
        """End the span of the records in the write buffer, if they are not committed."""
        if self._span is not None:
            self._span.abandon()
            self._span = None

    async def _write(self, batch: Batch) -> None:
        if not len(batch):
            self._pass(batch)
            return
        is_written = False
        with defects(self._shard.shard_id):
            for group, records in self._buffer.write(batch):
                is_written = True
                self._note(group, records)
                while self._is_full:
                    await self._buffer_taken.park()
        if not is_written:
            self._pass(batch)

    def _note(self, group: Group, records: Sequence[Record]) -> None:
        """Note that the buffer has more records, and wake the commit's task: to do that for nothing costs too much."""
        if is_first := group.since == inf:
            group.since = trio.current_time()
            group.due = self._pace.due(group.since, group.batch.millis_behind_latest / 1000)
            group.latest = group.since + MAX_DELAY
        self._hold()
        if self._spans is not None:
            self._span = self._span or self._spans.of_group()
            self._span.add(records)
        if is_first or self._is_due or self._is_full:
            self._buffer_changed.unpark_all()

    def _hold(self) -> None:
        """Note what the groups of this shard hold together."""
        self._room.hold(
            self, sum([group.size for group in (self._buffer.group, self._committing) if group is not None])
        )

    def _pass(self, batch: Batch) -> None:
        """Ack a batch of which nothing is to be written: with the records before it that are not durable yet."""
        if (group := self._buffer.group or self._committing) is not None:
            group.batch, group.end = batch, None
            if self._is_due:
                self._buffer_changed.unpark_all()
        else:
            self._shard.ack_through(batch)

    @property
    def _is_full(self) -> bool:
        group, (records, size) = self._buffer.group, self._limits
        return group is not None and (group.records >= records or group.size >= size or self._waits_for_room)

    async def commit(self) -> None:
        """Commit the write buffer whenever it is due, until the shard has ended and all records are committed."""
        while await self._wait_until_due():
            await self._commit()

    async def _commit(self) -> None:
        group = self._committing = self._buffer.take()
        span, self._span = self._span, None
        self._buffer_taken.unpark_all()
        assert group is not None  # noqa: S101 - a commit that is due has records
        with span or NO_SPAN, self._reports.commit(group.records):
            # Dead letters first. After a crash in between, the sink refuses the same records again.
            if self._dead_letters is not None and group.dead_letters:
                await self._dead_letters.commit(group.dead_letters, group.refused[-1].record)
            for refused in group.refused:
                self._reports.refused(self._shard.shard_id, refused)
            if group.last is not None:
                await self._writer.commit(group.parts, group.last)
        self._committing = None
        self._hold()
        self._shard.ack_through(group.batch, group.end)

    async def _wait_until_due(self) -> bool:
        """Wait until a commit is due. Return False if the shard has ended and all records are committed."""
        while self._buffer.group is None and not self._ended:
            await self._buffer_changed.park()
        group = self._buffer.group
        if group is None:
            return False
        with trio.move_on_at(group.due):
            while not (self._is_full or self._ended):
                await self._buffer_changed.park()
        self._is_due = True
        with trio.move_on_at(group.latest):
            while self._shard.has_pending and not (self._is_full or self._ended):
                await self._buffer_changed.park()
        self._is_due = False
        return True
