"""All operations except SubscribeToShard, by name: the type of the request body, and the function that executes it.

A key of KMS is not used. Each stream has a limit of its own for them, that all five operations share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from efo.model import Position
from efo.testing.errors import FakeError
from efo.testing.operations import (
    consumers as consumer_operations,
    records as record_operations,
    requests,
    shards as shard_operations,
    streams as stream_operations,
)
from efo.testing.operations.records import check_put_record, check_put_records
from efo.testing.operations.responses import ResponseBody
from efo.testing.state.core import Core
from efo.testing.state.positions import decode_iterator, starting_index
from efo.testing.state.streams import StreamState

OPERATIONS: Final[dict[str, tuple[type[Any], Callable[[Core, Any], ResponseBody]]]] = {
    "AddTagsToStream": (requests.AddTagsToStream, consumer_operations.add_tags_to_stream),
    "CreateStream": (requests.CreateStream, stream_operations.create_stream),
    "DecreaseStreamRetentionPeriod": (requests.RetentionPeriod, stream_operations.decrease_stream_retention_period),
    "DeleteResourcePolicy": (requests.ResourceReference, consumer_operations.delete_resource_policy),
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
    "GetResourcePolicy": (requests.ResourceReference, consumer_operations.get_resource_policy),
    "GetShardIterator": (requests.GetShardIterator, record_operations.get_shard_iterator),
    "IncreaseStreamRetentionPeriod": (requests.RetentionPeriod, stream_operations.increase_stream_retention_period),
    "ListShards": (requests.ListShards, shard_operations.list_shards),
    "ListStreamConsumers": (requests.ListStreamConsumers, consumer_operations.list_stream_consumers),
    "ListStreams": (requests.ListStreams, stream_operations.list_streams),
    "ListTagsForResource": (requests.ResourceReference, consumer_operations.list_tags_for_resource),
    "ListTagsForStream": (requests.ListTagsForStream, consumer_operations.list_tags_for_stream),
    "MergeShards": (requests.MergeShards, shard_operations.merge_shards),
    "PutRecord": (requests.PutRecord, record_operations.put_record),
    "PutRecords": (requests.PutRecords, record_operations.put_records),
    "PutResourcePolicy": (requests.PutResourcePolicy, consumer_operations.put_resource_policy),
    "RegisterStreamConsumer": (requests.RegisterStreamConsumer, consumer_operations.register_stream_consumer),
    "RemoveTagsFromStream": (requests.RemoveTagsFromStream, consumer_operations.remove_tags_from_stream),
    "SplitShard": (requests.SplitShard, shard_operations.split_shard),
    "StartStreamEncryption": (requests.StreamEncryption, stream_operations.start_stream_encryption),
    "StopStreamEncryption": (requests.StreamEncryption, stream_operations.stop_stream_encryption),
    "TagResource": (requests.TagResource, consumer_operations.tag_resource),
    "UntagResource": (requests.UntagResource, consumer_operations.untag_resource),
    "UpdateMaxRecordSize": (requests.UpdateMaxRecordSize, stream_operations.update_max_record_size),
    "UpdateShardCount": (requests.UpdateShardCount, shard_operations.update_shard_count),
    "UpdateStreamMode": (requests.UpdateStreamMode, stream_operations.update_stream_mode),
    "UpdateStreamRecordDistributionStrategy": (
        requests.UpdateStreamRecordDistributionStrategy,
        stream_operations.update_stream_record_distribution_strategy,
    ),
}


def check_dry_run(core: Core, operation: str, request: Any) -> None:
    """Raise DryRunOperationException for a request with DryRun that would succeed, or the error that it would get.

    Raises ThrottlingException for the second one within a second. Do nothing for a request without DryRun.
    """
    if not getattr(request, "dry_run", False):
        return
    stream = _CHECKS[operation](core, request)
    if core.settings.throttle:
        core.throttle.dry_run(stream.name, core.clock())
    raise FakeError(
        "DryRunOperationException",
        f"DryRunOperation validation succeeded while calling {operation} operation.: Request would have succeeded, "
        "but DryRun flag is set.",
    )


def _put_record(core: Core, request: requests.PutRecord) -> StreamState:
    stream = core.data_stream(request.stream_name, request.stream_arn)
    check_put_record(stream, request)
    return stream


def _put_records(core: Core, request: requests.PutRecords) -> StreamState:
    stream = core.data_stream(request.stream_name, request.stream_arn)
    check_put_records(stream, request)
    return stream


def _get_shard_iterator(core: Core, request: requests.GetShardIterator) -> StreamState:
    stream = core.data_stream(request.stream_name, request.stream_arn)
    position = Position(request.shard_iterator_type, request.starting_sequence_number, request.timestamp)
    starting_index(stream.shard(request.shard_id), position, core.clock())
    return stream


def _get_records(core: Core, request: requests.GetRecords) -> StreamState:
    iterator = decode_iterator(request.shard_iterator, core.clock())
    stream = core.data_stream(iterator.stream, request.stream_arn)
    stream.shard(iterator.shard_id)
    return stream


def _subscribe_to_shard(core: Core, request: requests.SubscribeToShard) -> StreamState:
    stream, _consumer = core.consumer(request.consumer_arn)
    starting_index(stream.shard(request.shard_id), request.position, core.clock())
    return stream


_CHECKS: Final[dict[str, Callable[[Core, Any], StreamState]]] = {
    "GetRecords": _get_records,
    "GetShardIterator": _get_shard_iterator,
    "PutRecord": _put_record,
    "PutRecords": _put_records,
    "SubscribeToShard": _subscribe_to_shard,
}
