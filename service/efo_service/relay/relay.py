"""Drives one shard into a sink, by groups: a commit per group, an ack after each commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol

import trio

from efo.exception_groups import collapse_groups
from efo.model import Batch, Checkpoint
from efo_service.relay.sink import ShardSink, Sink

COMMIT_RECORDS: Final = 10_000
COMMIT_BYTES: Final = 4 * 1024 * 1024
COMMIT_SECONDS: Final = 0.05
"""A commit costs about 2 ms however small it is: 50 ms keep that under a twentieth."""


class ReadableShard(Protocol):
    """What the relay needs of a shard that is being read."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        ...

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        ...

    def seek(self, checkpoint: Checkpoint) -> None:
        """Start after this checkpoint; before the iteration."""
        ...

    def __aiter__(self) -> AsyncIterator[Batch]:
        """Read the shard until its end, or until the worker drains."""
        ...

    def ack_through(self, batch: Batch) -> None:
        """Say that everything up to and including this batch is done."""
        ...


async def relay_shard(
    shard: ReadableShard,
    sink: Sink,
    *,
    commit_records: int = COMMIT_RECORDS,
    commit_bytes: int = COMMIT_BYTES,
    commit_seconds: float = COMMIT_SECONDS,
) -> None:
    """Relay a shard until its iteration ends, then commit what is left.

    A group is committed as soon as it has `commit_records` records or `commit_bytes` bytes of keys and
    values, or is `commit_seconds` old; it may exceed the first two by one batch. While it is being committed
    the next one fills; when that is full too, the shard is not read further. Where the sink keeps the
    position, the shard is read from there (rule R12). Raises SinkError, and what reading the shard raises.
    """
    async with sink.open(shard.stream, shard.shard_id) as shard_sink:
        if shard_sink.position is not None:
            shard.seek(shard_sink.position)
        groups = _Groups(shard, shard_sink, commit_records, commit_bytes, commit_seconds)
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(groups.commit)
                await groups.fill()


class _Groups:
    """The group that fills and the group that is committed: at most one of each.

    `_filling` and `_committing` are the last batch of each, which is what gets acked.
    """

    def __init__(self, shard: ReadableShard, sink: ShardSink, records: int, size: int, seconds: float) -> None:
        self._shard = shard
        self._sink = sink
        self._records = records
        self._bytes = size
        self._seconds = seconds
        self._filling: Batch | None = None
        self._committing: Batch | None = None
        self._deadline = float("inf")
        self._ended = False
        self._filled = trio.lowlevel.ParkingLot()
        self._taken = trio.lowlevel.ParkingLot()

    async def fill(self) -> None:
        """Read the shard into the open group; wait while that is full."""
        async for batch in self._shard:
            self._add(batch)
            while self._is_full:
                await self._taken.park()
        self._ended = True
        self._filled.unpark_all()

    def _add(self, batch: Batch) -> None:
        if batch.records:
            if self._filling is None:
                self._deadline = trio.current_time() + self._seconds
            self._sink.write(batch)
            self._filling = batch
            self._filled.unpark_all()
        elif self._filling is not None:
            self._filling = batch
        elif self._committing is not None:
            self._committing = batch
        else:
            self._shard.ack_through(batch)

    @property
    def _is_full(self) -> bool:
        return self._sink.pending_records >= self._records or self._sink.pending_bytes >= self._bytes

    async def commit(self) -> None:
        """Commit group after group, each when it is due, until the shard has ended and all is committed."""
        while await self._wait_until_due():
            self._committing, self._filling = self._filling, None
            self._taken.unpark_all()
            await self._sink.commit()
            done, self._committing = self._committing, None
            assert done is not None  # noqa: S101 - a due group has a batch
            self._shard.ack_through(done)

    async def _wait_until_due(self) -> bool:
        """Return whether there is a group to commit; False when there will be none any more."""
        while self._filling is None and not self._ended:
            await self._filled.park()
        with trio.move_on_at(self._deadline):
            while not (self._is_full or self._ended):
                await self._filled.park()
        return self._filling is not None
