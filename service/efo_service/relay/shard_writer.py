"""The sink of one shard, opened, and opened again after a failure: a failure that passes does not stop the shard.

After a failure the sink is opened again, which shows what is durable (rule R12), and the rest is committed again. If it
fails for too long, or this worker can no longer write to it, the shard's lease is released. The other shards go on.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Final

import trio

from efo.health import Overdue
from efo.model import Checkpoint
from efo_service.relay.destination import Destination, defects, repeated
from efo_service.relay.errors import SinkError, SinkFencedError
from efo_service.relay.sink import Part, ShardSink

CLOSE_SECONDS: Final = 10.0
"""Seconds that closing a sink takes at most (rule R14)."""


@asynccontextmanager
async def open_writer(writer: ShardWriter) -> AsyncIterator[ShardWriter]:
    """Open the destination of a shard; leaving closes it, and drops what was not committed.

    Raises IsolateShardError and SinkError.
    """
    try:
        await writer.open()
        yield writer
    except BaseException:
        await writer.drop()
        raise
    await writer.close()


class ShardWriter:
    """Writes one shard to a destination, which `open_writer` opens.

    `checkpoint`: that of the shard's lease. `rng`: the source of jitter. `overdue`: since when its sink is being opened
    or commits, and the failure that is tried again; None if it does neither.
    """

    def __init__(
        self,
        destination: Destination,
        stream: str,
        shard_id: str,
        checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,
        rng: random.Random | None = None,
    ) -> None:
        self.overdue: Overdue | None = None
        self._shard_id = shard_id
        self._retries = destination.retries
        self._reports = destination.reports
        self._open = partial(destination.sink.open, stream, shard_id, checkpoint)
        self._rng = rng
        self._context: AbstractAsyncContextManager[ShardSink] | None = None
        self._sink: ShardSink | None = None  # the last one that was opened: it prepares records
        self._position: Checkpoint | None = None

    @property
    def sink(self) -> ShardSink:
        """The sink as it was last opened. It may be closed: then a commit opens another one."""
        assert self._sink is not None  # noqa: S101 - `open` has returned
        return self._sink

    async def open(self) -> None:
        """Open the sink for the shard. Raises IsolateShardError and SinkError."""
        await self._repeated(self._opened)
        self._position = self.sink.position

    async def commit(self, parts: Sequence[Part], last: Checkpoint) -> None:
        """Make parts durable, at least one. `last`: the position after them. Raises IsolateShardError and SinkError."""

        async def attempt() -> None:
            sink = await self._opened()
            if not self._is_durable(last, sink.position):
                await sink.commit(parts)

        await self._repeated(attempt)
        self._position = self.sink.position

    async def close(self) -> None:
        """Close the sink if it is open."""
        context, self._context = self._context, None
        if context is not None:
            with trio.move_on_after(CLOSE_SECONDS, shield=True), defects(self._shard_id):
                await context.__aexit__(None, None, None)

    async def drop(self) -> None:
        """Close the sink after a failure. If that fails, too, the first failure is the one to report."""
        with suppress(Exception):
            await self.close()

    async def _opened(self) -> ShardSink:
        # The task that closes it may differ from the one that opened it: the relay closes what a commit has opened.
        if self._context is None or self._sink is None:
            context = self._open()
            self._sink = await context.__aenter__()
            self._context = context
        return self._sink

    def _is_durable(self, last: Checkpoint, position: Checkpoint | None) -> bool:
        """Return whether a commit up to `last` is durable: all of it, or nothing.

        Raises SinkFencedError if the position of the sink is neither where this worker left it, nor there.
        """
        if position == self._position:
            return False
        if position is not None and position >= last:
            return True
        raise SinkFencedError(
            f"{self._shard_id}: the sink was at {self._position}, and is now at {position}: another worker has written"
            " to it, or records were removed; the shard is read again from there"
        )

    async def _repeated(self, call: Callable[[], Awaitable[object]]) -> None:
        since = trio.current_time()
        self.overdue = Overdue(since)

        async def attempt() -> None:
            try:
                with defects(self._shard_id):
                    await call()
            except SinkError as error:
                self.overdue = Overdue(since, error.error_type, str(error))
                if error.reopens:
                    await self.drop()
                raise

        await repeated(attempt, self._retries, self._reports, self._shard_id, self._rng)
        self.overdue = None
