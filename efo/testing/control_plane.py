"""The control plane of the library, answered by the fake's core without any HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from efo.model import FanOutConsumer, Position, Shard, StreamDescription
from efo.protocol.service_errors import service_error
from efo.testing.errors import FakeError
from efo.testing.faults.injection import Faults
from efo.testing.operations.requests import ShardFilter
from efo.testing.operations.shards import filtered
from efo.testing.state.consumers import ConsumerState
from efo.testing.state.core import Core
from efo.testing.state.positions import starting_index

T = TypeVar("T")


class FakeControlPlane:
    """A `efo.kinesis.control_plane.ControlPlane` about one stream of a fake."""

    def __init__(self, core: Core, stream: str, faults: Faults) -> None:
        self._core = core
        self._faults = faults
        self._stream = stream

    async def describe_stream(self) -> StreamDescription:
        """Describe the stream."""
        stream = await self._ask("DescribeStreamSummary", lambda: self._core.stream(self._stream))
        status, hours = stream.status(self._core.clock()), round(stream.retention_hours)
        return StreamDescription(stream.name, stream.arn, status, hours)

    async def list_shards(self) -> Sequence[Shard]:
        """List all shards, open and closed."""
        stream = await self._ask("ListShards", lambda: self._core.stream(self._stream))
        return [shard.as_shard() for shard in self._core.listing(stream)]

    async def shards_open_at(self, timestamp: float) -> frozenset[str]:
        """List the shards that were open at a time."""
        stream = await self._ask("ListShards", lambda: self._core.stream(self._stream))
        wanted = ShardFilter("AT_TIMESTAMP", timestamp=timestamp)
        return frozenset(shard.id for shard in filtered(self._core, stream, wanted))

    async def behind_latest(self, shard_id: str, position: Position) -> int:
        """Tell how far a place in a shard is behind its tip, in milliseconds."""

        def look() -> int:
            shard = self._core.data_stream(self._stream).shard(shard_id)
            index = starting_index(shard, position, self._core.clock())
            one = len(shard.read(index, 1, 1))
            return shard.behind_latest(max(index, shard.trimmed) + one, self._core.millis)

        return await self._ask("GetRecords", look)

    async def list_consumers(self, stream_arn: str) -> Sequence[FanOutConsumer]:
        """List the stream's consumers."""
        stream = await self._ask("ListStreamConsumers", lambda: self._core.stream(arn=stream_arn))
        return [self._told(consumer) for consumer in self._core.consumers(stream).list(self._core.clock())]

    async def describe_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        """Describe a consumer by its name."""
        _, consumer = await self._ask(
            "DescribeStreamConsumer", lambda: self._core.consumer(stream_arn=stream_arn, name=name)
        )
        return self._told(consumer)

    async def register_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        """Register a consumer."""
        return self._told(await self._ask("RegisterStreamConsumer", lambda: self._core.register(stream_arn, name)))

    async def deregister_consumer(self, consumer_arn: str) -> None:
        """Deregister a consumer."""
        await self._ask("DeregisterStreamConsumer", lambda: self._core.deregister(*self._core.consumer(consumer_arn)))

    def _told(self, consumer: ConsumerState) -> FanOutConsumer:
        return FanOutConsumer(consumer.name, consumer.arn, consumer.status(self._core.clock()))

    async def _ask(self, name: str, operation: Callable[[], T]) -> T:
        """Do it, and raise what the real control plane would raise."""
        await trio.lowlevel.checkpoint()
        try:
            await trio.sleep(self._faults.call(name))
            return operation()
        except FakeError as error:
            raise service_error(error.code, error.message, error.status) from None
