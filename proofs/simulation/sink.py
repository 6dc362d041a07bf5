"""A sink that owns its position: data and position in one step, one writer of a shard at a time (rule R12)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import trio

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import SinkClosedError, SinkLockedError, SinkOrderError
from efo_service.relay.sink import ShardSink

Guard = Literal["lock", "fence"]
"""How a second writer is met: it waits for the first, as the log's; or the first is refused, as with Kafka."""

LOCK_PATIENCE = 30.0
OnCommit = Callable[[str, tuple[Record, ...]], None]


@dataclass(slots=True)
class _Table:
    """What is durable of a shard: how far it is. `epoch` counts its writers; `writer` is the one that has it open."""

    position: Checkpoint | None = None
    epoch: int = 0
    is_open: bool = False
    closed: trio.Event = field(default_factory=trio.Event)


class MemorySink:
    """What all workers write into; it outlives them. `of` gives one worker's way in."""

    def __init__(self, guard: Guard, rng: Random, slowness: float, failover_time: float = 0.0) -> None:
        self.guard = guard
        self.patience = max(LOCK_PATIENCE, failover_time)  # as the service has it
        self.rng = rng
        self.slowness = slowness
        self._tables: dict[str, _Table] = {}

    def table(self, shard_id: str) -> _Table:
        """Return what is durable of a shard."""
        return self._tables.setdefault(shard_id, _Table())

    def of(self, on_commit: OnCommit) -> MemorySinkWay:
        """Return the way in of one worker's life. `on_commit` is told what is durable, at that moment."""
        return MemorySinkWay(self, on_commit)


class MemorySinkWay:
    """See `efo_service.relay.sink.Sink`."""

    def __init__(self, sink: MemorySink, on_commit: OnCommit) -> None:
        self._sink = sink
        self._on_commit = on_commit

    def open(self, stream: str, shard_id: str) -> AbstractAsyncContextManager[ShardSink]:
        """Open a shard. Entering raises SinkLockedError."""
        return self._open(stream, shard_id)

    @asynccontextmanager
    async def _open(self, _stream: str, shard_id: str) -> AsyncIterator[ShardSink]:
        table = self._sink.table(shard_id)
        with trio.move_on_after(self._sink.patience):
            while self._sink.guard == "lock" and table.is_open:
                await table.closed.wait()
        if self._sink.guard == "lock" and table.is_open:
            raise SinkLockedError(f"another writer has {shard_id} open for {self._sink.patience:g} s")
        table.is_open, table.closed = True, trio.Event()
        table.epoch += 1
        shard_sink = MemoryShardSink(self._sink, table, shard_id, self._on_commit)
        try:
            yield shard_sink
        finally:
            if table.epoch == shard_sink.epoch:
                table.is_open = False
                table.closed.set()


class MemoryShardSink:
    """See `efo_service.relay.sink.ShardSink`."""

    def __init__(self, sink: MemorySink, table: _Table, shard_id: str, on_commit: OnCommit) -> None:
        self.epoch = table.epoch
        self._sink = sink
        self._table = table
        self._shard_id = shard_id
        self._on_commit = on_commit
        self._records: tuple[Record, ...] = ()
        self._written = table.position

    @property
    def position(self) -> Checkpoint | None:
        """How far the sink has the shard."""
        return self._table.position

    @property
    def pending_records(self) -> int:
        """How many records the open group has."""
        return len(self._records)

    @property
    def pending_bytes(self) -> int:
        """How many bytes the open group has."""
        return sum(len(record.data) for record in self._records)

    def refusal(self, _record: Record) -> str | None:
        """Return None: this sink takes every record."""
        return None

    def write(self, batch: Batch) -> None:
        """Take a batch into the open group. Raises SinkOrderError."""
        if not batch.records:
            return
        if self._written is not None and checkpoint_of(batch.records[0]) <= self._written:
            raise SinkOrderError(f"{self._shard_id}: a batch starts at or before {self._written}, which is written")
        self._written = checkpoint_of(batch.records[-1])
        self._records += batch.records

    async def commit(self) -> None:
        """Make the open group durable, with the position, in one step. Raises SinkClosedError."""
        records, self._records = self._records, ()
        await self._pause()  # cancelled here, nothing is durable
        if self._table.epoch != self.epoch:
            raise SinkClosedError(f"{self._shard_id}: another writer has it open")
        if records:
            self._table.position = checkpoint_of(records[-1])
            self._on_commit(self._shard_id, records)
        await self._pause()  # cancelled here, all is durable and nobody knows

    async def _pause(self) -> None:
        await trio.sleep(self._sink.rng.uniform(0.0, self._sink.slowness))
