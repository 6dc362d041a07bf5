"""The sink of one shard, opened, and opened again after a failure: a failure that passes does not stop the shard.

After a failure the sink is opened again, which shows what is durable (rule R12), and the rest is committed again. If it
fails for too long, or this worker can no longer write to it, the shard's lease is released. The other shards go on.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

import trio

from efo.errors import EfoError, IsolateShardError
from efo.model import Checkpoint
from efo.protocol.backoff import Backoff
from efo.retrying import retry
from efo_service.relay.destination import Destination
from efo_service.relay.errors import SinkError, SinkFencedError
from efo_service.relay.failures import defects
from efo_service.relay.sink import ShardSink
from efo_service.relay.write_buffer import Entry


class ShardWriter:
    """Writes one shard to a destination. `open` must have returned before anything else is called.

    `last_error`: of the failure that is being retried; None if the sink works. `rng`: the source of jitter.
    """

    def __init__(
        self,
        destination: Destination,
        stream: str,
        shard_id: str,
        checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,
        rng: random.Random | None = None,
    ) -> None:
        self.last_error: SinkError | None = None
        self._shard_id = shard_id
        self._retries = destination.retries
        self._reports = destination.reports
        self._open = partial(destination.sink.open, stream, shard_id, checkpoint)
        self._rng = rng or random.Random()  # noqa: S311 - jitter is no secret
        self._context: AbstractAsyncContextManager[ShardSink] | None = None
        self._sink: ShardSink | None = None  # the last one that was opened: it prepares records

    @property
    def sink(self) -> ShardSink:
        """The sink as it was last opened. It may be closed: then a commit opens another one."""
        assert self._sink is not None  # noqa: S101 - `open` has returned
        return self._sink

    async def open(self) -> None:
        """Open the sink for the shard. Raises IsolateShardError and SinkError."""
        await self._repeated(self._opened)

    async def commit(self, entries: Sequence[Entry]) -> None:
        """Make entries durable. Raises IsolateShardError and SinkError."""

        async def attempt() -> None:
            sink = await self._opened()
            rest = self._after(entries, sink.position)
            if rest:
                await sink.commit([entry.part for entry in rest])

        if entries:
            await self._repeated(attempt)

    async def close(self) -> None:
        """Close the sink if it is open. What was not committed is dropped."""
        context, self._context = self._context, None
        if context is not None:
            await context.__aexit__(None, None, None)

    async def _opened(self) -> ShardSink:
        # The task that closes it may differ from the one that opened it: the relay closes what a commit has opened.
        if self._context is None or self._sink is None:
            context = self._open()
            self._sink = await context.__aenter__()
            self._context = context
        return self._sink

    def _after(self, entries: Sequence[Entry], position: Checkpoint | None) -> Sequence[Entry]:
        """Return the entries that are not durable yet: all of them, or none, since a commit is atomic."""
        if position is None or not entries or entries[0].first > position:
            return entries
        if entries[-1].last <= position:
            return ()
        raise SinkFencedError(
            f"{self._shard_id}: another worker has written to this sink up to {position}, which is in the middle of a"
            " commit of this one: this worker has lost the shard"
        )

    async def _repeated(self, call: Callable[[], Awaitable[object]]) -> None:
        retries, failures, since = self._retries, 0, trio.current_time()

        async def failed(error: EfoError, delay: float) -> None:
            nonlocal failures, since
            assert isinstance(error, SinkError)  # noqa: S101 - nothing else is repeated
            since = since if failures else trio.current_time()
            failures += 1
            self.last_error = error
            self._reports.retried(self._shard_id, error, delay)

        async def closing() -> None:
            try:
                with defects(self._shard_id):
                    await call()
            except SinkError as error:
                if error.reopens:
                    await self.close()
                raise

        backoff = Backoff(self._rng.random, initial=retries.initial, limit=retries.limit, jitter=retries.jitter)
        try:
            await retry(closing, backoff, seconds=retries.seconds, on_failure=failed, repeats=self._repeats)
        except SinkError as error:
            if isinstance(error, retries.isolating_errors):
                raise IsolateShardError(f"{self._shard_id}: {error}") from error
            if not (retries.isolates and self._repeats(error)):
                raise
            since = since if failures else trio.current_time()
            raise IsolateShardError(
                f"{self._shard_id}: its sink has failed {failures + 1} times in {trio.current_time() - since:.0f} s;"
                f" the last error: {error}"
            ) from error
        self.last_error = None
        self._reports.succeeded(self._shard_id)

    def _repeats(self, error: EfoError) -> bool:
        return error.retryable and isinstance(error, self._retries.errors)
