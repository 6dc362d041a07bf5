"""The interface of sinks. tests/efo_service/relay/test_conformance.py checks every sink against it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, runtime_checkable

from efo.model import Batch, Checkpoint, Record

LOG_REMEDY: Final = (
    "to relay it, set another [relay] topic; or stop the relay and run `efo log adopt`: its shards then continue in new"
    " partitions of this topic"
)
"""What to do with a topic of the log that belongs to a former stream."""


class ShardSink(Protocol):
    """A sink opened for one shard, by one worker at a time.

    After an exception of `commit` (cancellation included) it must not be used any more. Open the shard again to find
    out what is durable.
    """

    @property
    def position(self) -> Checkpoint | None:
        """The position of the last durable record, if the sink keeps positions (rule R12). It overrides the lease's."""
        ...

    @property
    def pending_records(self) -> int:
        """How many records are in the write buffer: written, and not yet taken by a commit."""
        ...

    @property
    def pending_bytes(self) -> int:
        """How many bytes a commit of the write buffer writes, headers included; or slightly more."""
        ...

    def size(self, records: Sequence[Record]) -> int:
        """Return how many bytes this sink writes for some records of its shard, headers included; or slightly more."""
        ...

    def refusal(self, record: Record) -> str | None:
        """Return why this sink can never write this record, None if it can. It does no I/O and does not wait.

        Dead letters need it (dead_letter.py). `write` checks refusals itself.
        """
        ...

    def write(self, batch: Batch) -> None:
        """Add a whole batch to the write buffer. It does no I/O and does not wait.

        Raises SinkOrderError if the batch does not start after the last record written, RecordRefusedError if one of
        its records has a `refusal`, SinkClosedError and SinkError.
        """
        ...

    async def commit(self) -> None:
        """Make all written records durable, atomically with the position of the last record.

        It empties the write buffer before it first waits, so that more batches can be written while it runs. Only one
        commit may run at a time. When it returns, the batches written before the call may be acked. If the write
        buffer is empty it does nothing. Raises SinkError.
        """
        ...


class Sink(Protocol):
    """Where the relay writes records."""

    def open(
        self, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AbstractAsyncContextManager[ShardSink]:
        """Open the sink for a shard. Several shards may be open at once.

        `checkpoint`: that of the shard's lease. It proves that a shard was read before, to a sink that keeps positions
        and does not know the shard. Leaving the context closes the sink without a commit. Entering raises SinkError.
        """
        ...


@runtime_checkable
class Identified(Protocol):
    """What a sink may have besides: it keeps positions, and refuses those of a former stream (rule R15)."""

    def identify(self, created_at: float | None) -> None:
        """Note when the stream was created, in seconds since the epoch; None if unknown. Called before `open`.

        `open` then raises StreamRecreatedError if what the sink has belongs to a former stream of this name.
        """
        ...


def identify(sink: Sink, created_at: float | None) -> None:
    """Tell a sink when its stream was created, if it wants to know."""
    if isinstance(sink, Identified):
        sink.identify(created_at)
