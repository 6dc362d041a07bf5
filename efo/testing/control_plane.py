"""An in-memory control plane for the library: it calls the fake's core without HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import trio

from efo.model import AccountLimits, FanOutConsumer, Position, Shard, ShardRead, StreamDescription
from efo.protocol.service_errors import service_error
from efo.testing.errors import FakeError
from efo.testing.faults.injection import FaultInjector
from efo.testing.operations.records import get_records, get_shard_iterator
from efo.testing.operations.requests import Empty, GetRecords, GetShardIterator, ShardFilter
from efo.testing.operations.shards import filtered
from efo.testing.operations.streams import describe_limits
from efo.testing.state.consumers import ConsumerState
from efo.testing.state.core import Core

T = TypeVar("T")


class FakeControlPlane:
    """An `efo.kinesis.client.ControlPlane` for one stream of a fake."""

    def __init__(self, core: Core, stream: str, faults: FaultInjector) -> None:
        self._core = core
        self._faults = faults
        self._stream = stream

    async def describe_stream(self) -> StreamDescription:
        """Describe the stream."""
        stream = await self._call("DescribeStreamSummary", lambda: self._core.stream(self._stream))
        return StreamDescription(
            stream.name,
            stream.arn,
            stream.status(self._core.clock()),
            stream.retention_hours,
            stream.encryption.key_id,
            created_at=stream.created_at,
            max_record_bytes=stream.max_record_bytes,
            mode=stream.mode,
            distribution=stream.distribution,
        )

    async def list_shards(self) -> Sequence[Shard]:
        """List all shards, open and closed."""
        stream = await self._call("ListShards", lambda: self._core.stream(self._stream))
        return [shard.as_shard() for shard in self._core.listing(stream)]

    async def shards_open_at(self, timestamp: float) -> frozenset[str]:
        """List the shards that were open at `timestamp`, seconds since the epoch."""
        stream = await self._call("ListShards", lambda: self._core.stream(self._stream))
        shard_filter = ShardFilter("AT_TIMESTAMP", timestamp=timestamp)
        return frozenset(shard.id for shard in filtered(self._core, stream, shard_filter))

    async def behind_latest(self, shard_id: str, position: Position) -> int:
        """Return how far a position in a shard is behind the shard's tip, in milliseconds."""
        iterator = await self.get_shard_iterator(shard_id, position)
        return (await self.get_records(iterator, 1)).millis_behind_latest

    async def get_shard_iterator(self, shard_id: str, position: Position) -> str:
        """Return an iterator at a position of a shard."""
        request = GetShardIterator(
            stream_name=self._stream,
            shard_id=shard_id,
            shard_iterator_type=position.type,
            starting_sequence_number=position.sequence_number,
            timestamp=position.timestamp,
        )
        response = await self._call("GetShardIterator", lambda: get_shard_iterator(self._core, request))
        return str((response or {})["ShardIterator"])

    async def get_records(self, iterator: str, limit: int) -> ShardRead:
        """Read records of a shard."""
        request = GetRecords(shard_iterator=iterator, limit=limit)
        response = await self._call("GetRecords", lambda: get_records(self._core, request)) or {}
        return ShardRead(
            tuple(record.as_record() for record in response["Records"]),
            response.get("NextShardIterator"),
            response["MillisBehindLatest"],
            tuple(response.get("ChildShards", ())),
        )

    async def list_consumers(self, stream_arn: str) -> Sequence[FanOutConsumer]:
        """List the stream's consumers."""
        stream = await self._call("ListStreamConsumers", lambda: self._core.stream(arn=stream_arn))
        return [self._as_consumer(state) for state in self._core.consumers(stream).list(self._core.clock())]

    async def describe_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        """Describe a consumer by its name."""
        _, state = await self._call(
            "DescribeStreamConsumer", lambda: self._core.consumer(stream_arn=stream_arn, name=name)
        )
        return self._as_consumer(state)

    async def register_consumer(
        self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None
    ) -> FanOutConsumer:
        """Register a consumer, with these tags."""
        return self._as_consumer(
            await self._call("RegisterStreamConsumer", lambda: self._core.register(stream_arn, name, tags))
        )

    async def deregister_consumer(self, consumer_arn: str) -> None:
        """Deregister a consumer."""
        await self._call("DeregisterStreamConsumer", lambda: self._core.deregister(*self._core.consumer(consumer_arn)))

    async def describe_limits(self) -> AccountLimits:
        """Describe the account's limits."""
        found = await self._call("DescribeLimits", lambda: describe_limits(self._core, Empty())) or {}
        names = ("OpenShardCount", "ShardLimit", "OnDemandStreamCount", "OnDemandStreamCountLimit")
        return AccountLimits(*(int(found[name]) for name in names))

    async def has_advantage(self) -> bool:
        """Return whether the account has On-demand Advantage."""
        return await self._call("DescribeAccountSettings", lambda: self._core.settings.on_demand_advantage)

    async def knows_dry_run(self, shard_id: str) -> bool:
        """Return that the fake knows DryRun, if the shard exists."""
        await self._call("GetShardIterator", lambda: self._core.stream(self._stream).shard(shard_id))
        return True

    async def try_to_read(self, shard_id: str) -> None:
        """Ask whether records could be read."""
        await self.get_shard_iterator(shard_id, Position.trim_horizon())

    async def try_to_subscribe(self, consumer_arn: str, shard_id: str) -> None:
        """Ask whether a subscription would be accepted."""

        def check() -> None:
            self._core.consumer(consumer_arn)[0].shard(shard_id)

        await self._call("SubscribeToShard", check)

    def _as_consumer(self, state: ConsumerState) -> FanOutConsumer:
        return FanOutConsumer(state.name, state.arn, state.status(self._core.clock()))

    async def _call(self, name: str, operation: Callable[[], T]) -> T:
        """Run the operation, with faults. Raise its errors as the real control plane raises them."""
        await trio.lowlevel.checkpoint()
        try:
            await trio.sleep(self._faults.call(name))
            return operation()
        except FakeError as error:
            raise service_error(error.code, error.message, error.status) from None
