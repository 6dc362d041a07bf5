"""The request bodies, as in the service model, without the members that the fake ignores."""

from __future__ import annotations

from typing import Literal

import msgspec

from efo.model import Position, PositionType
from efo.testing.state.streams import DistributionStrategy


def _wire_name(field: str) -> str:
    return "".join("ARN" if word == "arn" else word.capitalize() for word in field.split("_"))


class _Request(msgspec.Struct, frozen=True, rename=_wire_name):
    pass


class StreamReference(_Request, frozen=True):
    """A stream by its name, its ARN, or both: the body of DescribeStreamSummary."""

    stream_name: str | None = None
    stream_arn: str | None = None


class Empty(_Request, frozen=True):
    """A body without members: the body of DescribeLimits and DescribeAccountSettings."""


class StreamModeDetails(_Request, frozen=True):
    """AWS: StreamModeDetails."""

    stream_mode: Literal["PROVISIONED", "ON_DEMAND"]


class CreateStream(_Request, frozen=True):
    """AWS: CreateStream."""

    stream_name: str
    shard_count: int | None = None
    stream_mode_details: StreamModeDetails | None = None
    record_distribution_strategy: DistributionStrategy = "USER_PARTITION_KEY"
    max_record_size: int | None = msgspec.field(default=None, name="MaxRecordSizeInKiB")
    tags: dict[str, str] = {}


class DeleteStream(StreamReference, frozen=True):
    """AWS: DeleteStream."""

    enforce_consumer_deletion: bool = False


class RetentionPeriod(StreamReference, frozen=True, kw_only=True):
    """The body of IncreaseStreamRetentionPeriod and DecreaseStreamRetentionPeriod."""

    retention_period_hours: int


class StreamEncryption(StreamReference, frozen=True, kw_only=True):
    """The body of StartStreamEncryption and StopStreamEncryption."""

    encryption_type: Literal["NONE", "KMS"]
    key_id: str


class EnhancedMonitoring(StreamReference, frozen=True, kw_only=True):
    """The body of EnableEnhancedMonitoring and DisableEnhancedMonitoring."""

    shard_level_metrics: list[str]


class UpdateMaxRecordSize(_Request, frozen=True):
    """AWS: UpdateMaxRecordSize."""

    max_record_size: int = msgspec.field(name="MaxRecordSizeInKiB")
    stream_arn: str | None = None


class UpdateStreamMode(_Request, frozen=True):
    """AWS: UpdateStreamMode."""

    stream_arn: str
    stream_mode_details: StreamModeDetails


class UpdateStreamRecordDistributionStrategy(_Request, frozen=True):
    """AWS: UpdateStreamRecordDistributionStrategy."""

    stream_arn: str
    record_distribution_strategy: DistributionStrategy


class UpdateShardCount(StreamReference, frozen=True, kw_only=True):
    """AWS: UpdateShardCount."""

    target_shard_count: int


class DescribeStream(StreamReference, frozen=True):
    """AWS: DescribeStream."""

    limit: int = 100
    exclusive_start_shard_id: str | None = None


class ListStreams(_Request, frozen=True):
    """AWS: ListStreams."""

    limit: int = 100
    exclusive_start_stream_name: str | None = None
    next_token: str | None = None


class ShardFilter(_Request, frozen=True):
    """AWS: ShardFilter. `timestamp` is seconds since the epoch."""

    type: Literal[
        "AFTER_SHARD_ID", "AT_TRIM_HORIZON", "FROM_TRIM_HORIZON", "AT_LATEST", "AT_TIMESTAMP", "FROM_TIMESTAMP"
    ]
    shard_id: str | None = None
    timestamp: float | None = None


class ListShards(StreamReference, frozen=True):
    """AWS: ListShards. Only `max_results` is allowed together with `next_token`."""

    next_token: str | None = None
    exclusive_start_shard_id: str | None = None
    max_results: int = 1000
    shard_filter: ShardFilter | None = None
    stream_creation_timestamp: float | None = None


class PutRecord(StreamReference, frozen=True, kw_only=True):
    """AWS: PutRecord."""

    data: bytes
    partition_key: str | None = None
    explicit_hash_key: str | None = None
    sequence_number_for_ordering: str | None = None
    dry_run: bool = False


class PutRecordsRequestEntry(_Request, frozen=True):
    """AWS: PutRecordsRequestEntry."""

    data: bytes
    partition_key: str | None = None
    explicit_hash_key: str | None = None


class PutRecords(StreamReference, frozen=True, kw_only=True):
    """AWS: PutRecords."""

    records: list[PutRecordsRequestEntry]
    dry_run: bool = False


class SplitShard(StreamReference, frozen=True, kw_only=True):
    """AWS: SplitShard."""

    shard_to_split: str
    new_starting_hash_key: str


class MergeShards(StreamReference, frozen=True, kw_only=True):
    """AWS: MergeShards."""

    shard_to_merge: str
    adjacent_shard_to_merge: str


class GetShardIterator(StreamReference, frozen=True, kw_only=True):
    """AWS: GetShardIterator. `timestamp` is seconds since the epoch."""

    shard_id: str
    shard_iterator_type: PositionType
    starting_sequence_number: str | None = None
    timestamp: float | None = None
    dry_run: bool = False


class GetRecords(_Request, frozen=True):
    """AWS: GetRecords."""

    shard_iterator: str
    limit: int = 10_000
    stream_arn: str | None = None
    dry_run: bool = False


class AddTagsToStream(StreamReference, frozen=True, kw_only=True):
    """AWS: AddTagsToStream."""

    tags: dict[str, str]


class RemoveTagsFromStream(StreamReference, frozen=True, kw_only=True):
    """AWS: RemoveTagsFromStream."""

    tag_keys: list[str]


class ListTagsForStream(StreamReference, frozen=True):
    """AWS: ListTagsForStream."""

    exclusive_start_tag_key: str | None = None
    limit: int = 50


class TagResource(_Request, frozen=True):
    """AWS: TagResource."""

    resource_arn: str
    tags: dict[str, str]


class UntagResource(_Request, frozen=True):
    """AWS: UntagResource."""

    resource_arn: str
    tag_keys: list[str]


class ResourceReference(_Request, frozen=True):
    """The body of ListTagsForResource, GetResourcePolicy and DeleteResourcePolicy."""

    resource_arn: str


class PutResourcePolicy(_Request, frozen=True):
    """AWS: PutResourcePolicy. `policy`: a policy in JSON."""

    resource_arn: str
    policy: str


class RegisterStreamConsumer(_Request, frozen=True):
    """AWS: RegisterStreamConsumer."""

    stream_arn: str
    consumer_name: str
    tags: dict[str, str] = {}


class ConsumerReference(_Request, frozen=True):
    """A fan-out consumer: the body of DescribeStreamConsumer and DeregisterStreamConsumer."""

    stream_arn: str | None = None
    consumer_name: str | None = None
    consumer_arn: str | None = None


class ListStreamConsumers(_Request, frozen=True):
    """AWS: ListStreamConsumers."""

    stream_arn: str
    next_token: str | None = None
    max_results: int = 100
    stream_creation_timestamp: float | None = None


class StartingPosition(_Request, frozen=True):
    """AWS: StartingPosition. `timestamp` is seconds since the epoch."""

    type: PositionType
    sequence_number: str | None = None
    timestamp: float | None = None


class SubscribeToShard(_Request, frozen=True):
    """AWS: SubscribeToShard."""

    consumer_arn: str
    shard_id: str
    starting_position: StartingPosition
    dry_run: bool = False

    @property
    def position(self) -> Position:
        """The starting position as the library's `Position`."""
        start = self.starting_position
        return Position(start.type, start.sequence_number, start.timestamp)
