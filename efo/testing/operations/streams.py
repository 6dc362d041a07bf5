"""The operations on streams (AWS: Kinesis API reference)."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from efo.testing.errors import in_use, invalid_argument, validation
from efo.testing.operations import requests
from efo.testing.operations.responses import (
    PageToken,
    ResponseBody,
    decode_token,
    encode_token,
    page,
    shard_description,
    stream_description,
    stream_summary,
)
from efo.testing.state import retention
from efo.testing.state.core import Core
from efo.testing.state.streams import only_on_demand
from efo.testing.state.tags import Tags

_ON_DEMAND_SHARDS: Final = 4
_ON_DEMAND_STREAMS: Final = 50
_MAX_SHARDS_PAGE: Final = 1000
_METRICS: Final = (
    "IncomingBytes", "IncomingRecords", "OutgoingBytes", "OutgoingRecords", "WriteProvisionedThroughputExceeded",
    "ReadProvisionedThroughputExceeded", "IteratorAgeMilliseconds",
)  # fmt: skip
_ID: Final = attrgetter("id")
_NAME: Final = attrgetter("name")


def create_stream(core: Core, request: requests.CreateStream) -> ResponseBody:
    """CreateStream. An on-demand stream starts with 4 shards, and so does a stream without a mode and a count."""
    details = request.stream_mode_details
    mode = details.stream_mode if details is not None else "PROVISIONED"
    if mode == "ON_DEMAND" and request.shard_count is not None:
        raise validation("ShardCount is not allowed for a stream in ON_DEMAND mode")
    if details is not None and mode == "PROVISIONED" and request.shard_count is None:
        raise validation("ShardCount is required for a stream in PROVISIONED mode")
    if request.record_distribution_strategy == "AUTO" and mode == "PROVISIONED":
        raise only_on_demand(request.stream_name)
    count = _ON_DEMAND_SHARDS if request.shard_count is None else request.shard_count
    tags = Tags(request.tags)
    stream = core.create_stream(request.stream_name, count, creating=core.settings.stream_creating)
    stream.mode = mode
    stream.distribution = request.record_distribution_strategy
    stream.tags = tags
    if request.max_record_size is not None:
        stream.max_record_bytes = request.max_record_size * 1024
    return None


def delete_stream(core: Core, request: requests.DeleteStream) -> ResponseBody:
    """DeleteStream."""
    stream = core.stream(request.stream_name, request.stream_arn)
    if core.consumers(stream).list(core.clock()) and not request.enforce_consumer_deletion:
        raise in_use(f"Stream {stream.name} has registered consumers: deregister them or set EnforceConsumerDeletion")
    core.delete_stream(stream)
    return None


def describe_stream_summary(core: Core, request: requests.StreamReference) -> ResponseBody:
    """DescribeStreamSummary."""
    stream, now = core.stream(request.stream_name, request.stream_arn), core.clock()
    summary = stream_description(stream, now) | {
        "OpenShardCount": len(stream.open_shards),
        "ConsumerCount": len(core.consumers(stream).list(now)),
        "MaxRecordSizeInKiB": stream.max_record_bytes // 1024,
    }
    if stream.mode == "ON_DEMAND":
        summary["RecordDistributionStrategy"] = stream.distribution
    return {"StreamDescriptionSummary": summary}


def describe_stream(core: Core, request: requests.DescribeStream) -> ResponseBody:
    """DescribeStream. A stream that is CREATING has no shards."""
    stream, now = core.stream(request.stream_name, request.stream_arn), core.clock()
    described = [] if stream.status(now) == "CREATING" else list(stream.shards.values())
    shards, more = page(described, _ID, request.exclusive_start_shard_id, request.limit, _MAX_SHARDS_PAGE)
    members = {"Shards": [shard_description(shard) for shard in shards], "HasMoreShards": more}
    return {"StreamDescription": stream_description(stream, now) | members}


def list_streams(core: Core, request: requests.ListStreams) -> ResponseBody:
    """ListStreams."""
    after, now = request.exclusive_start_stream_name, core.clock()
    if request.next_token is not None:
        if after is not None:
            raise invalid_argument("NextToken and ExclusiveStartStreamName cannot be provided together")
        after = decode_token(request.next_token, "ListStreams", now).after
    streams, more = page(core.listed_streams(), _NAME, after, request.limit, _MAX_SHARDS_PAGE)
    response: dict[str, Any] = {"StreamNames": [stream.name for stream in streams], "HasMoreStreams": more}
    response["StreamSummaries"] = [stream_summary(stream, now) for stream in streams]
    if more:
        response["NextToken"] = encode_token(PageToken("ListStreams", streams[-1].name, now))
    return response


def describe_limits(core: Core, _request: requests.Empty) -> ResponseBody:
    """DescribeLimits."""
    return {
        "ShardLimit": core.settings.shard_limit,
        "OpenShardCount": core.open_shards,
        "OnDemandStreamCount": sum(stream.mode == "ON_DEMAND" for stream in core.listed_streams()),
        "OnDemandStreamCountLimit": _ON_DEMAND_STREAMS,
    }


def describe_account_settings(core: Core, _request: requests.Empty) -> ResponseBody:
    """DescribeAccountSettings. With On-demand Advantage, the account is committed to a minimum throughput."""
    status = "ENABLED" if core.settings.on_demand_advantage else "DISABLED"
    return {"MinimumThroughputBillingCommitment": {"Status": status}}


def increase_stream_retention_period(core: Core, request: requests.RetentionPeriod) -> ResponseBody:
    """IncreaseStreamRetentionPeriod."""
    stream = core.active_stream(request.stream_name, request.stream_arn)
    retention.increase(stream, request.retention_period_hours)
    return None


def decrease_stream_retention_period(core: Core, request: requests.RetentionPeriod) -> ResponseBody:
    """DecreaseStreamRetentionPeriod. Records older than the new period are trimmed at once."""
    stream = core.active_stream(request.stream_name, request.stream_arn)
    retention.decrease(stream, request.retention_period_hours)
    retention.trim(stream, core.clock())
    return None


def update_max_record_size(core: Core, request: requests.UpdateMaxRecordSize) -> ResponseBody:
    """UpdateMaxRecordSize."""
    core.active_stream(arn=request.stream_arn).max_record_bytes = request.max_record_size * 1024
    return None


def update_stream_mode(core: Core, request: requests.UpdateStreamMode) -> ResponseBody:
    """UpdateStreamMode."""
    stream = core.active_stream(arn=request.stream_arn)
    if request.stream_mode_details.stream_mode == "PROVISIONED" and stream.distribution == "AUTO":
        raise only_on_demand(stream.name)
    stream.mode = request.stream_mode_details.stream_mode
    core.update(stream)
    return None


def update_stream_record_distribution_strategy(
    core: Core, request: requests.UpdateStreamRecordDistributionStrategy
) -> ResponseBody:
    """UpdateStreamRecordDistributionStrategy. The stream stays ACTIVE."""
    core.active_stream(arn=request.stream_arn).distribute(request.record_distribution_strategy)
    return None


def start_stream_encryption(core: Core, request: requests.StreamEncryption) -> ResponseBody:
    """StartStreamEncryption."""
    stream = core.active_stream(request.stream_name, request.stream_arn)
    _check_encryption_type(request)
    stream.encryption.start(request.key_id)
    core.update(stream)
    return None


def stop_stream_encryption(core: Core, request: requests.StreamEncryption) -> ResponseBody:
    """StopStreamEncryption."""
    stream = core.active_stream(request.stream_name, request.stream_arn)
    _check_encryption_type(request)
    stream.encryption.stop(request.key_id)
    core.update(stream)
    return None


def _check_encryption_type(request: requests.StreamEncryption) -> None:
    if request.encryption_type != "KMS":
        raise invalid_argument(f"EncryptionType {request.encryption_type}: the only valid value is KMS")


def enable_enhanced_monitoring(core: Core, request: requests.EnhancedMonitoring) -> ResponseBody:
    """EnableEnhancedMonitoring."""
    return _monitor(core, request, set.union)


def disable_enhanced_monitoring(core: Core, request: requests.EnhancedMonitoring) -> ResponseBody:
    """DisableEnhancedMonitoring."""
    return _monitor(core, request, set.difference)


def _monitor(
    core: Core, request: requests.EnhancedMonitoring, change: Callable[[set[str], set[str]], set[str]]
) -> ResponseBody:
    stream = core.active_stream(request.stream_name, request.stream_arn)
    named = set(_METRICS) if "ALL" in request.shard_level_metrics else set(request.shard_level_metrics)
    current = sorted(stream.metrics)
    stream.metrics = change(stream.metrics, named)
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardLevelMetrics": current,
        "DesiredShardLevelMetrics": sorted(stream.metrics),
    }
