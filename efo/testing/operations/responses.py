"""Streams, shards and consumers as the answers of the API tell them."""

from __future__ import annotations

from typing import Any

from efo.testing.state.consumers import ConsumerState
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState

Answer = dict[str, Any] | None
"""The members of an answer's body; None where it has none."""


def stream_summary(stream: StreamState, now: float) -> dict[str, Any]:
    """Return a stream as ListStreams tells it (AWS: StreamSummary)."""
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status(now),
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_at,
    }


def stream_description(stream: StreamState, now: float) -> dict[str, Any]:
    """Return what DescribeStream and DescribeStreamSummary both tell."""
    answer = stream_summary(stream, now) | {
        "RetentionPeriodHours": round(stream.retention_hours),
        "EnhancedMonitoring": [{"ShardLevelMetrics": sorted(stream.metrics)}],
        "EncryptionType": stream.encryption.type,
    }
    return answer if stream.encryption.key_id is None else answer | {"KeyId": stream.encryption.key_id}


def shard_description(shard: ShardState) -> dict[str, Any]:
    """Return a shard as ListShards tells it (AWS: Shard)."""
    numbers = {"StartingSequenceNumber": shard.starting_number}
    if shard.ending_number is not None:
        numbers["EndingSequenceNumber"] = shard.ending_number
    answer: dict[str, Any] = {
        "ShardId": shard.id,
        "HashKeyRange": shard.hash_key_range(),
        "SequenceNumberRange": numbers,
    }
    names = ("ParentShardId", "AdjacentParentShardId")
    return answer | dict(zip(names, shard.parents, strict=False))


def consumer_description(consumer: ConsumerState, now: float) -> dict[str, Any]:
    """Return a consumer as ListStreamConsumers tells it (AWS: Consumer)."""
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": consumer.status(now),
        "ConsumerCreationTimestamp": consumer.created_at,
    }
