"""A shard with given batches, and its relay to a sink, for tests of sinks and destinations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from efo.consumer.age_limits import AgeLimits
from efo.model import Batch, Checkpoint
from efo_service.relay.destination import Destination, NoReports, SinkRetries
from efo_service.relay.relay import CommitPace, relay_shard
from efo_service.relay.sink import ShardSink, Sink
from efo_service.relay.write_buffer import RefusedRecord

ONCE = SinkRetries(seconds=0.0, isolates=False)
"""The first failure of a sink is raised."""


class Reports(NoReports):
    """Keeps the delays and errors of retries, the shards whose sink works again, and the refused records."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.errors: list[tuple[str, str]] = []
        self.recoveries: list[str] = []
        self.refusals: list[tuple[str, RefusedRecord]] = []

    def retried(self, shard_id, error, seconds) -> None:
        self.delays.append(seconds)
        self.errors.append((shard_id, error.error_type))

    def recovered(self, shard_id) -> None:
        self.recoveries.append(shard_id)

    def refused(self, shard_id, refused) -> None:
        self.refusals.append((shard_id, refused))


def to(sink: Sink, dead_letters: Sink | None = None, retries: SinkRetries = ONCE) -> Destination:
    """Return a destination without reports."""
    return Destination(sink, retries, dead_letters=None if dead_letters is None else Destination(dead_letters, retries))


class WhenOpen:
    """A sink that calls `then` each time a shard is open."""

    def __init__(self, sink: Sink, then: Callable[[], object]) -> None:
        self._sink = sink
        self._then = then

    @asynccontextmanager
    async def open(self, *arguments) -> AsyncIterator[ShardSink]:
        async with self._sink.open(*arguments) as shard:
            self._then()
            yield shard


class ListedShard:
    """Delivers batches, each `pause` seconds after the one before, then ends. `acked`: the acks, `seeks`: the seeks."""

    has_pending = False

    def __init__(
        self,
        batches: Sequence[Batch],
        *,
        stream: str = "orders",
        shard_id: str = "shardId-000000000000",
        checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,
        pause: float = 0.0,
    ) -> None:
        self.stream, self.shard_id, self.checkpoint = stream, shard_id, checkpoint
        self.ages: AgeLimits | None = None
        self._batches = iter(batches)
        self._pause = pause
        self.acked: list[tuple[int, int | None]] = []
        self.seeks: list[Checkpoint] = []

    def seek(self, checkpoint: Checkpoint) -> None:
        self.seeks.append(checkpoint)

    def __aiter__(self) -> ListedShard:
        return self

    async def __anext__(self) -> Batch:
        await trio.sleep(self._pause)
        for batch in self._batches:
            return batch
        raise StopAsyncIteration

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        self.acked.append((batch.number, index))


async def relay_all(destination: Destination, *batches: Batch, each: bool = False, **shard) -> ListedShard:
    """Relay batches to the end, in one commit; `each`: in a commit of their own. Return the shard."""
    listed = ListedShard(batches, **shard)
    await relay_shard(listed, destination, commit_records=1 if each else 10_000, pace=CommitPace(9))
    return listed


async def commit(shard: ShardSink, *batches: Batch) -> None:
    """Commit batches to a shard sink, in one commit."""
    await shard.commit([shard.prepare(batch.records) for batch in batches])
