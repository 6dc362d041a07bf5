"""A sink around another: what can be cured by trying again is, without reading Kinesis again and without a stop.

It keeps the batches of the group that is being committed. When the sink fails in a way that may pass, it is opened
again, which tells what is durable (rule R12), and gets the rest once more. A shard that its sink fails for good, or for
too long, gives its lease up; the others go on.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from efo.errors import IsolateShardError
from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo.protocol.failure import FailurePolicy, decide
from efo_service.relay.errors import SinkError
from efo_service.relay.sink import ShardSink, Sink
from efo_service.relay.write_buffer import WriteBuffer, check_refusals

BACKOFF: Final = 0.1
BACKOFF_LIMIT: Final = 5.0

Tell = Callable[[str, SinkError, float], None]
"""Told of each failure that is met by another try: the shard, the error, after how many seconds."""


class RetryingSink:
    """Does what `sink` does, again where that may help, for `seconds` at most.

    `releases`: the errors that end a shard here, but not elsewhere. Then, as when the time is over, IsolateShardError
    is raised: the shard's lease is released. All other errors are raised as they are.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        seconds: float,
        releases: tuple[type[SinkError], ...],
        tell: Tell,
        rng: random.Random | None = None,
    ) -> None:
        self._sink = sink
        self._releases = releases
        self._tell = tell
        self._rng = rng or random.Random()  # noqa: S311 - jitter is no secret
        self._policy = FailurePolicy(
            attempts=None, retry_for=seconds, backoff=BACKOFF, backoff_limit=BACKOFF_LIMIT, then="isolate"
        )

    def open(self, stream: str, shard_id: str) -> AbstractAsyncContextManager[RetryingShardSink]:
        """Open a shard's way in. Entering raises IsolateShardError, SinkError."""
        return self._open(stream, shard_id)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str) -> AsyncIterator[RetryingShardSink]:
        way_in = _WayIn(partial(self._sink.open, stream, shard_id), partial(self._meet, shard_id))
        try:
            shard_sink = RetryingShardSink(await way_in.use(_nothing), way_in)
            try:
                yield shard_sink
            finally:
                shard_sink.close()
        finally:
            await way_in.leave()

    def _meet(self, shard_id: str, error: SinkError, failures: int, elapsed: float) -> float:
        """Return after how many seconds to try again. Raises the error, or IsolateShardError."""
        if isinstance(error, self._releases):
            raise IsolateShardError(f"{shard_id}: {error}") from error
        if not error.retryable:
            raise error
        decision = decide(
            self._policy, failures=failures, elapsed=elapsed, records=1, is_half=False, random=self._rng.random
        )
        if decision.action != "retry":
            raise IsolateShardError(
                f"{shard_id}: its sink has failed for {elapsed:.0f} s, {failures} times; the last time: {error}"
            ) from error
        self._tell(shard_id, error, decision.delay)
        return decision.delay


class RetryingShardSink:
    """One shard's way in; see ShardSink. It keeps the open group: the sink gets it with the commit."""

    def __init__(self, first: ShardSink, way_in: _WayIn) -> None:
        self._shown = first
        self._way_in = way_in
        self._group = WriteBuffer(first.position)
        self._batches: list[Batch] = []

    @property
    def position(self) -> Checkpoint | None:
        """The last record that is durable, as the sink knows it."""
        return self._shown.position

    @property
    def pending_records(self) -> int:
        """How many records are in the open group."""
        return len(self._group.records)

    @property
    def pending_bytes(self) -> int:
        """How many bytes of keys (in characters) and values are in the open group."""
        return self._group.size

    def refusal(self, record: Record) -> str | None:
        """Return why the sink can never take this record."""
        return self._shown.refusal(record)

    def write(self, batch: Batch) -> None:
        """Take a batch into the open group. Raises SinkOrderError, RecordRefusedError, SinkClosedError."""
        self._group.check_open()
        check_refusals(self, batch)
        self._group.add(batch)
        if batch.records:
            self._batches.append(batch)

    async def commit(self) -> None:
        """Make the open group durable, however often it has to be tried. Raises IsolateShardError, SinkError."""
        self._group.take()
        batches, self._batches = self._batches, []
        if not batches:
            return

        async def put(shard_sink: ShardSink) -> None:
            for batch in batches:
                if rest := _after(batch, shard_sink.position):
                    shard_sink.write(rest)
            await shard_sink.commit()

        try:
            self._shown = await self._way_in.use(put)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop what was not committed."""
        self._group.close()
        self._batches = []


class _WayIn:
    """A shard's way into the sink, opened when it is needed, and again after a failure.

    It may be left by another task than the one that opened it: by the relay's, what its commits opened.

    `meet`: says after how many seconds to try again, from the error, the number of failures and the seconds since the
    first one; or raises.
    """

    def __init__(
        self,
        open_shard: Callable[[], AbstractAsyncContextManager[ShardSink]],
        meet: Callable[[SinkError, int, float], float],
    ) -> None:
        self._open = open_shard
        self._meet = meet
        self._context: AbstractAsyncContextManager[ShardSink] | None = None
        self._opened: ShardSink | None = None

    async def use(self, work: Callable[[ShardSink], Awaitable[None]]) -> ShardSink:
        """Do something with it until that succeeds; return it. Raises what `meet` raises."""
        failures, first = 0, trio.current_time()
        while True:
            try:
                shard_sink = await self._get()
                await work(shard_sink)
            except SinkError as error:
                await self.leave()
                failures += 1
                first = trio.current_time() if failures == 1 else first
                await trio.sleep(self._meet(error, failures, trio.current_time() - first))
            else:
                return shard_sink

    async def leave(self) -> None:
        """Close it, if it is open."""
        context, self._context, self._opened = self._context, None, None
        if context is not None:
            await context.__aexit__(None, None, None)

    async def _get(self) -> ShardSink:
        if self._opened is None:
            context = self._open()
            self._opened = await context.__aenter__()
            self._context = context
        return self._opened


async def _nothing(_: ShardSink) -> None:
    """Do nothing: opening it is all that is wanted."""


def _after(batch: Batch, position: Checkpoint | None) -> Batch | None:
    """Return what of a batch is after a position: all of it, as a rule."""
    if position is None or checkpoint_of(batch.records[0]) > position:
        return batch
    records = tuple(record for record in batch.records if checkpoint_of(record) > position)
    return replace(batch, records=records) if records else None
