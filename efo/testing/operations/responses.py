"""Streams, shards and fan-out consumers as members of responses."""

from __future__ import annotations

from typing import Any

from efo.testing.state.consumers import ConsumerState
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState

ResponseBody = dict[str, Any] | None
"""The members of a response body; None for an empty body."""


def stream_summary(stream: StreamState, now: float) -> dict[str, Any]:
    """Return a stream as in ListStreams (AWS: StreamSummary)."""
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status(now),
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_at,
    }


def stream_description(stream: StreamState, now: float) -> dict[str, Any]:
    """Return the members that DescribeStream and DescribeStreamSummary have in common."""
    description = stream_summary(stream, now) | {
        "RetentionPeriodHours": round(stream.retention_hours),
        "EnhancedMonitoring": [{"ShardLevelMetrics": sorted(stream.metrics)}],
        "EncryptionType": stream.encryption.type,
    }
    return description if stream.encryption.key_id is None else description | {"KeyId": stream.encryption.key_id}


def shard_description(shard: ShardState) -> dict[str, Any]:
    """Return a shard as in ListShards (AWS: Shard)."""
    numbers = {"StartingSequenceNumber": shard.starting_number}
    if shard.ending_number is not None:
        numbers["EndingSequenceNumber"] = shard.ending_number
    description: dict[str, Any] = {
        "ShardId": shard.id,
        "HashKeyRange": shard.hash_key_range(),
        "SequenceNumberRange": numbers,
    }
    names = ("ParentShardId", "AdjacentParentShardId")
    return description | dict(zip(names, shard.parents, strict=False))


def consumer_description(consumer: ConsumerState, now: float) -> dict[str, Any]:
    """Return a consumer as in ListStreamConsumers (AWS: Consumer)."""
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": consumer.status(now),
        "ConsumerCreationTimestamp": consumer.created_at,
    }
