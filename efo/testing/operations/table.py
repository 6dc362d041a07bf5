"""All operations except SubscribeToShard, by name: the type of the request body, and the function that executes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from efo.testing.operations import (
    consumers as consumer_operations,
    policies as policy_operations,
    records as record_operations,
    requests,
    shards as shard_operations,
    streams as stream_operations,
    tags as tag_operations,
)
from efo.testing.operations.responses import ResponseBody
from efo.testing.state.core import Core

OPERATIONS: Final[dict[str, tuple[type[Any], Callable[[Core, Any], ResponseBody]]]] = {
    "AddTagsToStream": (requests.AddTagsToStream, tag_operations.add_tags_to_stream),
    "CreateStream": (requests.CreateStream, stream_operations.create_stream),
    "DecreaseStreamRetentionPeriod": (requests.RetentionPeriod, stream_operations.decrease_stream_retention_period),
    "DeleteResourcePolicy": (requests.ResourceReference, policy_operations.delete_resource_policy),
    "DeleteStream": (requests.DeleteStream, stream_operations.delete_stream),
    "DeregisterStreamConsumer": (requests.ConsumerReference, consumer_operations.deregister_stream_consumer),
    "DescribeAccountSettings": (requests.Empty, stream_operations.describe_account_settings),
    "DescribeLimits": (requests.Empty, stream_operations.describe_limits),
    "DescribeStream": (requests.DescribeStream, stream_operations.describe_stream),
    "DescribeStreamConsumer": (requests.ConsumerReference, consumer_operations.describe_stream_consumer),
    "DescribeStreamSummary": (requests.StreamReference, stream_operations.describe_stream_summary),
    "DisableEnhancedMonitoring": (requests.EnhancedMonitoring, stream_operations.disable_enhanced_monitoring),
    "EnableEnhancedMonitoring": (requests.EnhancedMonitoring, stream_operations.enable_enhanced_monitoring),
    "GetRecords": (requests.GetRecords, record_operations.get_records),
    "GetResourcePolicy": (requests.ResourceReference, policy_operations.get_resource_policy),
    "GetShardIterator": (requests.GetShardIterator, record_operations.get_shard_iterator),
    "IncreaseStreamRetentionPeriod": (requests.RetentionPeriod, stream_operations.increase_stream_retention_period),
    "ListShards": (requests.ListShards, shard_operations.list_shards),
    "ListStreamConsumers": (requests.ListStreamConsumers, consumer_operations.list_stream_consumers),
    "ListStreams": (requests.ListStreams, stream_operations.list_streams),
    "ListTagsForResource": (requests.ResourceReference, tag_operations.list_tags_for_resource),
    "ListTagsForStream": (requests.ListTagsForStream, tag_operations.list_tags_for_stream),
    "MergeShards": (requests.MergeShards, shard_operations.merge_shards),
    "PutRecord": (requests.PutRecord, record_operations.put_record),
    "PutRecords": (requests.PutRecords, record_operations.put_records),
    "PutResourcePolicy": (requests.PutResourcePolicy, policy_operations.put_resource_policy),
    "RegisterStreamConsumer": (requests.RegisterStreamConsumer, consumer_operations.register_stream_consumer),
    "RemoveTagsFromStream": (requests.RemoveTagsFromStream, tag_operations.remove_tags_from_stream),
    "SplitShard": (requests.SplitShard, shard_operations.split_shard),
    "StartStreamEncryption": (requests.StreamEncryption, stream_operations.start_stream_encryption),
    "StopStreamEncryption": (requests.StreamEncryption, stream_operations.stop_stream_encryption),
    "TagResource": (requests.TagResource, tag_operations.tag_resource),
    "UntagResource": (requests.UntagResource, tag_operations.untag_resource),
    "UpdateMaxRecordSize": (requests.UpdateMaxRecordSize, stream_operations.update_max_record_size),
    "UpdateShardCount": (requests.UpdateShardCount, shard_operations.update_shard_count),
    "UpdateStreamMode": (requests.UpdateStreamMode, stream_operations.update_stream_mode),
    "UpdateStreamRecordDistributionStrategy": (
        requests.UpdateStreamRecordDistributionStrategy,
        stream_operations.update_stream_record_distribution_strategy,
    ),
}
