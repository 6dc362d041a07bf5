"""The control plane: describe the stream, list its shards, find or register the fan-out consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from efo.model import AccountLimits, FanOutConsumer, Position, Shard, ShardRead, StreamDescription


class ControlPlane(Protocol):
    """The calls of Kinesis' control plane that efo makes, about one stream.

    Every method may raise ServiceError (and its children) and TransportError.
    """

    async def describe_stream(self) -> StreamDescription:
        """Describe the stream (AWS: DescribeStreamSummary)."""
        ...

    async def list_shards(self) -> Sequence[Shard]:
        """List all shards, open and closed, all pages (AWS: ListShards)."""
        ...

    async def shards_open_at(self, timestamp: float) -> frozenset[str]:
        """Return the ids of the shards that were open at a time, in seconds since the epoch (AWS: ListShards)."""
        ...

    async def behind_latest(self, shard_id: str, position: Position) -> int:
        """Return how far a position is behind the tip of its shard, in ms (AWS: GetRecords, MillisBehindLatest).

        It reads one record, which counts against the limits that all callers of GetRecords share. For operators' tools.
        """
        ...

    async def get_shard_iterator(self, shard_id: str, position: Position) -> str:
        """Return an iterator at a position of a shard, for `get_records` within 5 minutes (AWS: GetShardIterator)."""
        ...

    async def get_records(self, iterator: str, limit: int) -> ShardRead:
        """Read up to `limit` records (1 to 10,000) and 10 MiB (AWS: GetRecords). For operators' tools.

        All callers together may call it 5 times per second and shard, and read 2 MiB per second. An iterator that is
        too old raises ExpiredIteratorError.
        """
        ...

    async def list_consumers(self, stream_arn: str) -> Sequence[FanOutConsumer]:
        """List the stream's consumers, all pages (AWS: ListStreamConsumers)."""
        ...

    async def describe_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        """Describe a consumer by its name (AWS: DescribeStreamConsumer)."""
        ...

    async def register_consumer(
        self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None
    ) -> FanOutConsumer:
        """Register a consumer with these tags (AWS: RegisterStreamConsumer). Raises ResourceInUseError if it exists."""
        ...

    async def deregister_consumer(self, consumer_arn: str) -> None:
        """Deregister a consumer (AWS: DeregisterStreamConsumer). See rule R13."""
        ...

    async def describe_limits(self) -> AccountLimits:
        """Describe the account's limits (AWS: DescribeLimits, one call per second). For operators' tools."""
        ...

    async def has_advantage(self) -> bool:
        """Return whether the account has On-demand Advantage (AWS: DescribeAccountSettings). For operators' tools."""
        ...

    async def knows_dry_run(self, shard_id: str) -> bool:
        """Return whether the service knows DryRun: it is asked for an iterator of a shard (AWS: GetShardIterator).

        Of a service that ignores DryRun, `try_to_subscribe` would take the shard from its reader. AWS allows one dry
        run per second for a stream. For operators' tools.
        """
        ...

    async def try_to_read(self, shard_id: str) -> None:
        """Ask whether GetRecords would be accepted, with DryRun, which reads nothing. Raises why it is not."""
        ...

    async def try_to_subscribe(self, consumer_arn: str, shard_id: str) -> None:
        """Ask whether a subscription would be accepted, with DryRun (AWS: SubscribeToShard). Raises why it is not."""
        ...
