"""A sink that keeps position and data in one step, with one writer per shard at a time (rule R12)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import trio

from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import SinkClosedError, SinkLockedError
from efo_service.relay.sink import Part, ShardSink

Guard = Literal["lock", "fence"]
"""What happens to a second writer: it waits for the first, as in the log; or it fences the first, as with Kafka."""

LOCK_TIMEOUT = 30.0
OnCommit = Callable[[str, tuple[Record, ...]], None]
OnWait = Callable[[str], None]
Refusal = Callable[[Record], str | None]


@dataclass(slots=True)
class _ShardState:
    """The durable state of a shard. `epoch`: the fencing epoch, which counts the writers. `closed`: not open."""

    position: Checkpoint | None = None
    epoch: int = 0
    is_open: bool = False
    closed: trio.Event = field(default_factory=trio.Event)


class MemorySink:
    """The sink that all workers share. It survives their crashes."""

    def __init__(self, guard: Guard, rng: Random, max_delay: float, failover_seconds: float = 0.0) -> None:
        self.guard = guard
        self.lock_timeout = max(LOCK_TIMEOUT, failover_seconds)  # as in the service
        self.rng = rng
        self.max_delay = max_delay
        self._states: dict[str, _ShardState] = {}

    def state(self, shard_id: str) -> _ShardState:
        """Return the durable state of a shard."""
        return self._states.setdefault(shard_id, _ShardState())

    def for_worker(self, on_commit: OnCommit, on_wait: OnWait, refusal: Refusal = lambda _record: None) -> WorkerSink:
        """Return the sink for one process of a worker.

        `on_commit` is called with records when they become durable, `on_wait` when a shard is open in another writer.
        `refusal` says why a record is refused.
        """
        return WorkerSink(self, on_commit, on_wait, refusal)


class WorkerSink:
    """See `efo_service.relay.sink.Sink`."""

    def __init__(self, sink: MemorySink, on_commit: OnCommit, on_wait: OnWait, refusal: Refusal) -> None:
        self._sink = sink
        self._refusal = refusal
        self._on_commit = on_commit
        self._on_wait = on_wait

    def open(
        self,
        stream: str,
        shard_id: str,
        checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,  # noqa: ARG002 - the protocol requires it
    ) -> AbstractAsyncContextManager[ShardSink]:
        """Open a shard. Entering the context raises SinkLockedError."""
        return self._open(stream, shard_id)

    @asynccontextmanager
    async def _open(self, _stream: str, shard_id: str) -> AsyncIterator[ShardSink]:
        state = self._sink.state(shard_id)
        if self._sink.guard == "lock" and state.is_open:
            self._on_wait(shard_id)
        with trio.move_on_after(self._sink.lock_timeout):
            while self._sink.guard == "lock" and state.is_open:
                await state.closed.wait()
        if self._sink.guard == "lock" and state.is_open:
            raise SinkLockedError(f"another writer has {shard_id} open for {self._sink.lock_timeout:g} s")
        state.is_open, state.closed = True, trio.Event()
        state.epoch += 1
        shard_sink = MemoryShardSink(self._sink, state, shard_id, self._on_commit, self._refusal)
        try:
            yield shard_sink
        finally:
            if state.epoch == shard_sink.epoch:
                state.is_open = False
                state.closed.set()


class MemoryShardSink:
    """See `efo_service.relay.sink.ShardSink`."""

    def __init__(
        self, sink: MemorySink, state: _ShardState, shard_id: str, on_commit: OnCommit, refusal: Refusal
    ) -> None:
        self._refusal = refusal
        self.epoch = state.epoch
        self._sink = sink
        self._state = state
        self._shard_id = shard_id
        self._on_commit = on_commit

    @property
    def position(self) -> Checkpoint | None:
        """The position of the last commit."""
        return self._state.position

    def refusal(self, record: Record) -> str | None:
        """Return why this sink refuses the record, None if it takes it."""
        return self._refusal(record)

    def prepare(self, records: Sequence[Record]) -> Part:
        """Return the records as they are."""
        return Part(tuple(records), sum(len(record.data) for record in records))

    async def commit(self, parts: Sequence[Part]) -> None:
        """Make the records and their position durable in one step. Raises SinkClosedError."""
        records = tuple(record for part in parts for record in part.content)
        await self._sleep()  # a cancellation here leaves nothing durable
        if self._state.epoch != self.epoch:
            raise SinkClosedError(f"{self._shard_id}: another writer has it open")
        self._state.position = checkpoint_of(records[-1])
        self._on_commit(self._shard_id, records)
        await self._sleep()  # a cancellation here leaves everything durable, but the caller does not know it

    async def _sleep(self) -> None:
        await trio.sleep(self._sink.rng.uniform(0.0, self._sink.max_delay))
