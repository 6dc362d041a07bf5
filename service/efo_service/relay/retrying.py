"""A sink around another that retries commits. So a temporary failure neither stops the shard nor rereads Kinesis.

It keeps the batches of the running commit. After a retryable error it opens the inner sink again, which shows what is
durable (rule R12), and writes the rest again. If the inner sink fails for too long, or this worker can no longer write
to it, the shard's lease is released. The other shards go on.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from efo.errors import IsolateShardError
from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo.protocol.failure import FailurePolicy, decide
from efo_service.relay.errors import SinkError
from efo_service.relay.sink import ShardSink, Sink, identify
from efo_service.relay.write_buffer import WriteBuffer, check_refusals

BACKOFF: Final = 0.1
BACKOFF_LIMIT: Final = 5.0

OnRetry = Callable[[str, SinkError, float], None]
"""Called before each retry with the shard id, the error and the delay in seconds."""
OnRecovery = Callable[[str], None]
"""Called with the shard id when the sink works again, after OnRetry was called."""


class RetryingSink:
    """Opens `sink` and commits to it; retries both for `seconds` at most.

    `isolating_errors`: the errors that end the shard on this worker, but not on another one. After such an error, or
    when the time is over, IsolateShardError is raised, which releases the shard's lease. All other errors that are not
    retryable are raised unchanged. `on_retry`, `on_recovery`: see OnRetry and OnRecovery. `rng`: source of the jitter.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        seconds: float,
        isolating_errors: tuple[type[SinkError], ...],
        on_retry: OnRetry,
        on_recovery: OnRecovery = lambda _shard_id: None,
        rng: random.Random | None = None,
    ) -> None:
        self._sink = sink
        self._isolating_errors = isolating_errors
        self._on_retry = on_retry
        self._on_recovery = on_recovery
        self._rng = rng or random.Random()  # noqa: S311 - not used for security
        self._policy = FailurePolicy(
            attempts=None, retry_for=seconds, backoff=BACKOFF, backoff_limit=BACKOFF_LIMIT, then="isolate"
        )

    def identify(self, created_at: float | None) -> None:
        """Tell the sink when the stream was created."""
        identify(self._sink, created_at)

    def open(
        self, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AbstractAsyncContextManager[RetryingShardSink]:
        """Open the sink for a shard. Entering raises IsolateShardError and SinkError."""
        return self._open(stream, shard_id, checkpoint)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str, checkpoint: Checkpoint) -> AsyncIterator[RetryingShardSink]:
        reopener = _Reopener(
            partial(self._sink.open, stream, shard_id, checkpoint),
            partial(self._on_failure, shard_id),
            partial(self._on_recovery, shard_id),
        )
        try:
            shard_sink = RetryingShardSink(await reopener.run(_only_open), reopener)
            try:
                yield shard_sink
            finally:
                shard_sink.close()
        finally:
            await reopener.close()

    def _on_failure(self, shard_id: str, error: SinkError, failures: int, elapsed: float) -> float:
        """Return the delay before the next try, in seconds. Raises the error, or IsolateShardError."""
        if isinstance(error, self._isolating_errors):
            raise IsolateShardError(f"{shard_id}: {error}") from error
        if not error.retryable:
            raise error
        decision = decide(
            self._policy, failures=failures, elapsed=elapsed, records=1, is_half=False, random=self._rng.random
        )
        if decision.action != "retry":
            raise IsolateShardError(
                f"{shard_id}: its sink has failed {failures} times in {elapsed:.0f} s; the last error: {error}"
            ) from error
        self._on_retry(shard_id, error, decision.delay)
        return decision.delay


class RetryingShardSink:
    """A sink opened for one shard; see ShardSink. It keeps the write buffer; the inner sink gets it at the commit."""

    def __init__(self, inner: ShardSink, reopener: _Reopener) -> None:
        self._inner = inner
        self._reopener = reopener
        self._buffer = WriteBuffer(inner.size, inner.position)
        self._batches: list[Batch] = []

    @property
    def position(self) -> Checkpoint | None:
        """The position of the inner sink."""
        return self._inner.position

    @property
    def pending_records(self) -> int:
        """How many records are in the write buffer."""
        return len(self._buffer.records)

    @property
    def pending_bytes(self) -> int:
        """How many bytes a commit of the write buffer writes."""
        return self._buffer.size

    def size(self, records: Sequence[Record]) -> int:
        """Return how many bytes the inner sink writes for some records."""
        return self._inner.size(records)

    def refusal(self, record: Record) -> str | None:
        """Return why the inner sink can never write this record, None if it can."""
        return self._inner.refusal(record)

    def write(self, batch: Batch) -> None:
        """Add a batch to the write buffer. Raises SinkOrderError, RecordRefusedError and SinkClosedError."""
        self._buffer.check_open()
        check_refusals(self, batch)
        self._buffer.add(batch)
        if batch.records:
            self._batches.append(batch)

    async def commit(self) -> None:
        """Make the write buffer durable, with retries. Raises IsolateShardError and SinkError."""
        self._buffer.take()
        batches, self._batches = self._batches, []
        if not batches:
            return

        async def write_and_commit(shard_sink: ShardSink) -> None:
            for batch in batches:
                if rest := _records_after(batch, shard_sink.position):
                    shard_sink.write(rest)
            await shard_sink.commit()

        try:
            self._inner = await self._reopener.run(write_and_commit)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop the records that were not committed."""
        self._buffer.close()
        self._batches = []


class _Reopener:
    """Opens the inner sink when it is needed, and again after a failure.

    The task that closes it may differ from the one that opened it: the relay closes what a commit has opened.

    `on_failure`: returns the delay before the next try in seconds, or raises. Its arguments are the error, the number
    of failures and the seconds since the first one. `on_recovery`: called after a success that follows a failure.
    """

    def __init__(
        self,
        open_shard: Callable[[], AbstractAsyncContextManager[ShardSink]],
        on_failure: Callable[[SinkError, int, float], float],
        on_recovery: Callable[[], None],
    ) -> None:
        self._open = open_shard
        self._on_failure = on_failure
        self._on_recovery = on_recovery
        self._context: AbstractAsyncContextManager[ShardSink] | None = None
        self._opened: ShardSink | None = None

    async def run(self, work: Callable[[ShardSink], Awaitable[None]]) -> ShardSink:
        """Run `work` on the opened sink until it succeeds; return that sink. Raises what `on_failure` raises."""
        failures, first = 0, trio.current_time()
        while True:
            try:
                shard_sink = await self._opened_sink()
                await work(shard_sink)
            except SinkError as error:
                await self.close()
                failures += 1
                first = trio.current_time() if failures == 1 else first
                await trio.sleep(self._on_failure(error, failures, trio.current_time() - first))
            else:
                if failures:
                    self._on_recovery()
                return shard_sink

    async def close(self) -> None:
        """Close the inner sink if it is open."""
        context, self._context, self._opened = self._context, None, None
        if context is not None:
            await context.__aexit__(None, None, None)

    async def _opened_sink(self) -> ShardSink:
        if self._opened is None:
            context = self._open()
            self._opened = await context.__aenter__()
            self._context = context
        return self._opened


async def _only_open(_: ShardSink) -> None:
    """Do nothing: the caller only needs the sink to be open."""


def _records_after(batch: Batch, position: Checkpoint | None) -> Batch | None:
    """Return the part of a batch that is after a position, usually all of it; None if there is none."""
    if position is None or checkpoint_of(batch.records[0]) > position:
        return batch
    records = tuple(record for record in batch.records if checkpoint_of(record) > position)
    return replace(batch, records=records) if records else None
