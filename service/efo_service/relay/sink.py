"""The interface of sinks: what sinks differ in. Everything else is the relay's. `conformance.py` checks every sink.

position   up to where the records of the shard are durable
refusal    why a record can never be written
prepare    records in the form that the sink writes, laid out as soon as they arrive
commit     makes prepared records durable, together with the position of the last one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from efo.model import Checkpoint, Record
from efo_service.relay.errors import SinkError

LOG_REMEDY: Final = (
    "to relay it, set another [relay] topic; or stop the relay and run `efo log adopt`: its shards then continue in new"
    " partitions of this topic"
)
"""What to do with a topic of the log that belongs to a former stream."""


class Part(msgspec.Struct, frozen=True, eq=False):
    """Consecutive records of a shard, as `prepare` made them for a commit.

    `content`: whatever `commit` needs. `size`: how many bytes the sink writes for them, headers included; or slightly
    more. The relay bounds each commit by it.
    """

    content: Any
    size: int


class ShardSink(Protocol):
    """A sink opened for one shard, by one worker at a time.

    After an exception of `commit` (cancellation included) it must not be used any more, unless the error is a SinkError
    whose `reopens` is false. Open the shard again to find out what is durable.
    """

    @property
    def position(self) -> Checkpoint | None:
        """The position of the last durable record, if the sink keeps positions (rule R12). It overrides the lease's."""
        ...

    @property
    def refusal(self) -> Callable[[Record], str | None] | None:
        """A method that returns why this sink can never write a record, None if it can. None: it writes every record.

        It does no I/O and does not wait.
        """
        ...

    def prepare(self, records: Sequence[Record]) -> Part:
        """Return records, at least one, in the form that a commit writes. None of them has a `refusal`.

        It does no I/O and does not wait, and it may be called during a commit and after the sink was closed: another
        opening of the same shard commits the part then.
        """
        ...

    async def commit(self, parts: Sequence[Part]) -> None:
        """Make the records of these parts durable, in order, atomically with the position of the last record.

        Only one commit runs at a time. When it returns, the records may be acked. Raises SinkError; SinkClosedError if
        the sink is closed.
        """
        ...


@contextmanager
def closed_by_failure(close: Callable[[], None]) -> Iterator[None]:
    """Close a shard sink when its commit fails or is cancelled, unless the error says that it can be repeated."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, SinkError) or error.reopens:
            close()
        raise


class Sink(Protocol):
    """Where the relay writes records."""

    def open(
        self, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AbstractAsyncContextManager[ShardSink]:
        """Open the sink for a shard. Several shards may be open at once.

        `checkpoint`: that of the shard's lease. It proves that a shard was read before, to a sink that keeps positions
        and does not know the shard. Leaving the context closes the sink without a commit, in some seconds, also if the
        task was cancelled. It may be another task than the one that entered it, so neither a nursery nor a cancel scope
        may be open inside: the sink's own context is the place for one. Entering raises SinkError.
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
