"""The input shape of each supported operation, from the AWS service model 2013-12-02."""

from __future__ import annotations

from typing import Final

from efo.testing.server.validation import Shape, required

_NAME: Final = Shape(kind="string", minimum=1, maximum=128, pattern=r"[a-zA-Z0-9_.-]+")
_STREAM_ARN: Final = Shape(kind="string", minimum=1, maximum=2048, pattern=r"arn:aws.*:kinesis:.*:\d{12}:stream/\S+")
_RESOURCE_ARN: Final = Shape(
    kind="string", minimum=1, maximum=2048, pattern=r"arn:aws.*:kinesis:.*:\d{12}:.*(stream|channel|queue)/\S+"
)
_CONSUMER_ARN: Final = Shape(
    kind="string",
    minimum=1,
    maximum=2048,
    pattern=r"^(arn):aws.*:kinesis:.*:\d{12}:.*stream\/[a-zA-Z0-9_.-]+\/consumer\/[a-zA-Z0-9_.-]+:[0-9]+",
)
_STREAM_ID: Final = Shape(kind="string", minimum=1, maximum=24, pattern=r"[a-z0-9]{20}-[a-z0-9]{3}")
_NEXT_TOKEN: Final = Shape(kind="string", minimum=1, maximum=1_048_576)
_PAGE: Final = Shape(kind="integer", minimum=1, maximum=10_000)
_TIMESTAMP: Final = Shape(kind="timestamp")
_INTEGER: Final = Shape(kind="integer")
_BOOLEAN: Final = Shape(kind="boolean")
_COUNT: Final = Shape(kind="integer", minimum=1)
_NATURAL: Final = Shape(kind="integer", minimum=0)
_RECORD_KIB: Final = Shape(kind="integer", minimum=1024, maximum=10_240)
_SEQUENCE_NUMBER: Final = Shape(kind="string", pattern=r"^(0|([1-9]\d{0,128}))$")
_HASH_KEY: Final = Shape(kind="string", pattern=r"^(0|([1-9]\d{0,38}))$")
_PARTITION_KEY: Final = Shape(kind="string", minimum=1, maximum=256)
_DATA: Final = Shape(kind="blob", minimum=0, maximum=10_485_760)
_POSITION: Final = Shape(
    kind="string",
    values=("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"),
)
_ENCRYPTION: Final = Shape(kind="string", values=("NONE", "KMS"))
_KEY_ID: Final = Shape(kind="string", minimum=1, maximum=2048)
_SCALING: Final = Shape(kind="string", values=("UNIFORM_SCALING",))
_DISTRIBUTION: Final = Shape(kind="string", values=("AUTO", "USER_PARTITION_KEY"))
_TAG_KEY: Final = Shape(kind="string", minimum=1, maximum=128)
_TAG_VALUE: Final = Shape(kind="string", minimum=0, maximum=256)
_TAGS: Final = Shape(kind="map", minimum=1, maximum=200, keys=_TAG_KEY, element=_TAG_VALUE)
_TAG_KEYS: Final = Shape(kind="list", minimum=1, maximum=50, element=_TAG_KEY)
_METRIC: Final = Shape(
    kind="string",
    values=(
        "IncomingBytes", "IncomingRecords", "OutgoingBytes", "OutgoingRecords", "WriteProvisionedThroughputExceeded",
        "ReadProvisionedThroughputExceeded", "IteratorAgeMilliseconds", "ALL",
    ),
)  # fmt: skip
_METRICS: Final = Shape(kind="list", minimum=1, maximum=7, element=_METRIC)


def _structure(**members: Shape) -> Shape:
    return Shape(kind="structure", members=members)


_STREAM_MODE: Final = _structure(StreamMode=required(Shape(kind="string", values=("PROVISIONED", "ON_DEMAND"))))
_SHARD_FILTER: Final = _structure(
    Type=required(
        Shape(
            kind="string",
            values=(
                "AFTER_SHARD_ID", "AT_TRIM_HORIZON", "FROM_TRIM_HORIZON", "AT_LATEST", "AT_TIMESTAMP",
                "FROM_TIMESTAMP",
            ),
        )
    ),
    ShardId=_NAME,
    Timestamp=_TIMESTAMP,
)  # fmt: skip
_STARTING_POSITION: Final = _structure(Type=required(_POSITION), SequenceNumber=_SEQUENCE_NUMBER, Timestamp=_TIMESTAMP)
_PUT_ENTRY: Final = _structure(Data=required(_DATA), PartitionKey=_PARTITION_KEY, ExplicitHashKey=_HASH_KEY)

_STREAM: Final = {"StreamName": _NAME, "StreamARN": _STREAM_ARN, "StreamId": _STREAM_ID}
_BY_ARN: Final = {"StreamARN": _STREAM_ARN, "StreamId": _STREAM_ID}
_CONSUMER: Final = _BY_ARN | {"ConsumerName": _NAME, "ConsumerARN": _CONSUMER_ARN}
_RESOURCE: Final = {"ResourceARN": required(_RESOURCE_ARN), "StreamId": _STREAM_ID}
_KEY: Final = {"EncryptionType": required(_ENCRYPTION), "KeyId": required(_KEY_ID)}

INPUTS: Final[dict[str, Shape]] = {
    name: _structure(**members)
    for name, members in {
        "AddTagsToStream": _STREAM | {"Tags": required(_TAGS)},
        "CreateStream": {
            "StreamName": required(_NAME),
            "ShardCount": _COUNT,
            "StreamModeDetails": _STREAM_MODE,
            "Tags": _TAGS,
            "WarmThroughputMiBps": _NATURAL,
            "MaxRecordSizeInKiB": _RECORD_KIB,
            "RecordDistributionStrategy": _DISTRIBUTION,
        },
        "DecreaseStreamRetentionPeriod": _STREAM | {"RetentionPeriodHours": required(_INTEGER)},
        "DeleteResourcePolicy": _RESOURCE,
        "DeleteStream": _STREAM | {"EnforceConsumerDeletion": _BOOLEAN},
        "DeregisterStreamConsumer": _CONSUMER,
        "DescribeAccountSettings": {},
        "DescribeLimits": {},
        "DescribeStream": _STREAM | {"Limit": _PAGE, "ExclusiveStartShardId": _NAME},
        "DescribeStreamConsumer": _CONSUMER,
        "DescribeStreamSummary": _STREAM,
        "DisableEnhancedMonitoring": _STREAM | {"ShardLevelMetrics": required(_METRICS)},
        "EnableEnhancedMonitoring": _STREAM | {"ShardLevelMetrics": required(_METRICS)},
        "GetRecords": _BY_ARN
        | {"ShardIterator": required(Shape(kind="string", minimum=1, maximum=512)), "Limit": _PAGE, "DryRun": _BOOLEAN},
        "GetResourcePolicy": _RESOURCE,
        "GetShardIterator": _STREAM
        | {
            "ShardId": required(_NAME),
            "ShardIteratorType": required(_POSITION),
            "StartingSequenceNumber": _SEQUENCE_NUMBER,
            "Timestamp": _TIMESTAMP,
            "DryRun": _BOOLEAN,
        },
        "IncreaseStreamRetentionPeriod": _STREAM | {"RetentionPeriodHours": required(_INTEGER)},
        "ListShards": _STREAM
        | {
            "NextToken": _NEXT_TOKEN,
            "ExclusiveStartShardId": _NAME,
            "MaxResults": _PAGE,
            "StreamCreationTimestamp": _TIMESTAMP,
            "ShardFilter": _SHARD_FILTER,
        },
        "ListStreamConsumers": {
            "StreamARN": required(_STREAM_ARN),
            "NextToken": _NEXT_TOKEN,
            "MaxResults": _PAGE,
            "StreamCreationTimestamp": _TIMESTAMP,
            "StreamId": _STREAM_ID,
        },
        "ListStreams": {"Limit": _PAGE, "ExclusiveStartStreamName": _NAME, "NextToken": _NEXT_TOKEN},
        "ListTagsForResource": _RESOURCE,
        "ListTagsForStream": _STREAM
        | {"ExclusiveStartTagKey": _TAG_KEY, "Limit": Shape(kind="integer", minimum=1, maximum=50)},
        "MergeShards": _STREAM | {"ShardToMerge": required(_NAME), "AdjacentShardToMerge": required(_NAME)},
        "PutRecord": _STREAM
        | {
            "Data": required(_DATA),
            "PartitionKey": _PARTITION_KEY,
            "ExplicitHashKey": _HASH_KEY,
            "SequenceNumberForOrdering": _SEQUENCE_NUMBER,
            "DryRun": _BOOLEAN,
        },
        "PutRecords": _STREAM
        | {"Records": required(Shape(kind="list", minimum=1, maximum=500, element=_PUT_ENTRY)), "DryRun": _BOOLEAN},
        "PutResourcePolicy": _RESOURCE | {"Policy": required(Shape(kind="string"))},
        "RegisterStreamConsumer": {
            "StreamARN": required(_STREAM_ARN),
            "ConsumerName": required(_NAME),
            "StreamId": _STREAM_ID,
            "Tags": _TAGS,
        },
        "RemoveTagsFromStream": _STREAM | {"TagKeys": required(_TAG_KEYS)},
        "SplitShard": _STREAM | {"ShardToSplit": required(_NAME), "NewStartingHashKey": required(_HASH_KEY)},
        "StartStreamEncryption": _STREAM | _KEY,
        "StopStreamEncryption": _STREAM | _KEY,
        "SubscribeToShard": {
            "ConsumerARN": required(_CONSUMER_ARN),
            "StreamId": _STREAM_ID,
            "ShardId": required(_NAME),
            "StartingPosition": required(_STARTING_POSITION),
            "DryRun": _BOOLEAN,
        },
        "TagResource": _RESOURCE | {"Tags": required(_TAGS)},
        "UntagResource": _RESOURCE | {"TagKeys": required(_TAG_KEYS)},
        "UpdateMaxRecordSize": _BY_ARN | {"MaxRecordSizeInKiB": required(_RECORD_KIB)},
        "UpdateShardCount": _STREAM | {"TargetShardCount": required(_COUNT), "ScalingType": required(_SCALING)},
        "UpdateStreamMode": {
            "StreamARN": required(_STREAM_ARN),
            "StreamId": _STREAM_ID,
            "StreamModeDetails": required(_STREAM_MODE),
            "WarmThroughputMiBps": _NATURAL,
        },
        "UpdateStreamRecordDistributionStrategy": {
            "StreamARN": required(_STREAM_ARN),
            "StreamId": _STREAM_ID,
            "RecordDistributionStrategy": required(_DISTRIBUTION),
        },
    }.items()
}
"""The input shape of each operation, by name."""
