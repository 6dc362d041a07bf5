"""What a sink must do to take what efo reads."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from efo.model import Batch, Checkpoint


class ShardSink(Protocol):
    """One shard's way into a sink, opened by one worker at a time.

    After an exception of `write` or `commit` (cancellation included) it is of no further use: what is durable
    then, only opening the shard again can tell.
    """

    @property
    def position(self) -> Checkpoint | None:
        """How far this sink has the shard, if it keeps that itself (rule R12): it wins over the lease."""
        ...

    @property
    def pending_records(self) -> int:
        """How many records the open group has: written, and not taken by a commit yet."""
        ...

    @property
    def pending_bytes(self) -> int:
        """How many bytes of keys and values the open group has."""
        ...

    def write(self, batch: Batch) -> None:
        """Take a batch into the open group. Quick: no I/O, no waiting. Raises SinkError."""
        ...

    async def commit(self) -> None:
        """Make everything written durable, atomically with the position of the last record.

        It takes the open group at once, before it first waits, so that the next group may be written while
        it runs; one commit at a time. When it returns, what was written before the call may be acked.
        Raises SinkError.
        """
        ...


class Sink(Protocol):
    """Where the relay puts records."""

    def open(self, stream: str, shard_id: str) -> AbstractAsyncContextManager[ShardSink]:
        """Open a shard's way in; leaving the context closes it without a commit. Raises SinkError."""
        ...
