"""What a sink must do to take what efo reads: tests/efo_service/relay/test_conformance.py holds every sink to it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from efo.model import Batch, Checkpoint, Record


class ShardSink(Protocol):
    """One shard's way into a sink, opened by one worker at a time.

    After an exception of `commit` (cancellation included) it is of no further use: what is durable then, only
    opening the shard again can tell.
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

    def refusal(self, record: Record) -> str | None:
        """Return why this sink can never take this record, None if it can. Quick: no I/O, no waiting.

        It is asked by who has another place for such records (dead_letter.py); `write` refuses them by itself.
        """
        ...

    def write(self, batch: Batch) -> None:
        """Take a batch into the open group, whole. Quick: no I/O, no waiting.

        Raises SinkOrderError if it does not start after the last record written, RecordRefusedError if a record
        in it has a `refusal`, SinkClosedError, SinkError.
        """
        ...

    async def commit(self) -> None:
        """Make everything written durable, atomically with the position of the last record.

        It takes the open group at once, before it first waits, so that the next group may be written while
        it runs; one commit at a time. When it returns, what was written before the call may be acked.
        Without an open group it does nothing. Raises SinkError.
        """
        ...


class Sink(Protocol):
    """Where the relay puts records."""

    def open(self, stream: str, shard_id: str) -> AbstractAsyncContextManager[ShardSink]:
        """Open a shard's way in; leaving the context closes it without a commit. Several shards may be open at once.

        Entering raises SinkError.
        """
        ...
