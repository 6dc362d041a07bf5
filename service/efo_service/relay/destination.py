"""A sink as the relay uses it: how its failures are repeated, who gets reports, where its refused records go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

import trio

from efo.model import Checkpoint, Record
from efo_service.relay.errors import SinkError
from efo_service.relay.sink import Part, ShardSink, Sink
from efo_service.relay.write_buffer import Refused


@dataclass(frozen=True, slots=True)
class SinkRetries:
    """How failures of a sink that may pass are repeated.

    `errors`: those that are repeated, if they are retryable. `seconds`: for how long. `initial`, `limit`, `jitter`: the
    waits, see `efo.protocol.backoff`. `isolates`: whether the shard is isolated when the time is over; otherwise the
    error is raised. `isolating_errors`: errors that end the shard on this worker, but not on another one: they isolate
    it at once.
    """

    errors: tuple[type[SinkError], ...] = (SinkError,)
    seconds: float = inf
    initial: float = 0.1
    limit: float = 5.0
    jitter: float = 1.0
    isolates: bool = True
    isolating_errors: tuple[type[SinkError], ...] = ()


class SinkReports(Protocol):
    """Gets reports of what a sink does."""

    def retried(self, shard_id: str, error: SinkError, seconds: float) -> None:
        """Note that a shard's sink failed, and is tried again in some seconds."""
        ...

    def succeeded(self, shard_id: str) -> None:
        """Note that a shard's sink was opened, or a commit is durable."""
        ...

    def refused(self, shard_id: str, refused: Refused) -> None:
        """Note that a record that the sink refuses was dead-lettered or skipped."""
        ...

    def commit(self, records: int) -> AbstractContextManager[object]:
        """Return a context for a commit of so many records, with its retries. An exception ends it as a failure."""
        ...


class NoReports:
    """Reports nothing. Implements SinkReports."""

    def retried(self, shard_id: str, error: SinkError, seconds: float) -> None:
        """Do nothing."""

    def succeeded(self, shard_id: str) -> None:
        """Do nothing."""

    def refused(self, shard_id: str, refused: Refused) -> None:
        """Do nothing."""

    def commit(self, _records: int) -> AbstractContextManager[object]:
        """Do nothing."""
        return nullcontext()


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a stream is relayed to.

    `sink`: where its records go. `dead_letters`: where those go that the sink refuses; None: they end their shard.
    """

    sink: Sink
    retries: SinkRetries = field(default_factory=SinkRetries)
    reports: SinkReports = field(default_factory=NoReports)
    dead_letters: Destination | None = None


class SkippingSink:
    """A sink for dead letters that skips them: it keeps nothing."""

    @asynccontextmanager
    async def open(
        self, _stream: str, _shard_id: str, _checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AsyncIterator[ShardSink]:
        """Open the sink for a shard."""
        yield _SkippingShardSink()


class _SkippingShardSink:
    position = None
    refusal = None

    def prepare(self, _records: Sequence[Record]) -> Part:
        return Part(None, 0)

    async def commit(self, _parts: Sequence[Part]) -> None:
        await trio.lowlevel.checkpoint()
