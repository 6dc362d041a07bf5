"""What the raw Python clients need and their SDKs do not have: deaggregation, and children after their parents."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from typing import Any

from aws_kinesis_agg.deaggregator import deaggregate_records
from meter import Meter

TRIM_HORIZON = {"Type": "TRIM_HORIZON"}
PAUSE = 1.5
"""Seconds between two calls for one shard: at most one call per second is allowed."""
RETRYABLE = ("ResourceInUseException", "LimitExceededException")


def after(event: dict[str, Any]) -> dict[str, str]:
    """Return the position after an event."""
    return {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": event["ContinuationSequenceNumber"]}


class Lineage:
    """Which shards have ended: a child may be read when all its parents have ended."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._lock = threading.Lock()

    def roots(self, shards: Sequence[dict[str, Any]]) -> list[str]:
        """Return the shards whose parents are not listed: those that can be read at once."""
        known = {shard["ShardId"] for shard in shards}
        parents = ("ParentShardId", "AdjacentParentShardId")
        return [s["ShardId"] for s in shards if not any(s.get(parent) in known for parent in parents)]

    def end(self, shard: str, children: Sequence[dict[str, Any]]) -> list[str]:
        """Record a shard's end; return the children that may be read now."""
        with self._lock:
            self._ended.add(shard)
            return [child["ShardId"] for child in children if self._ended.issuperset(child["ParentShards"])]


def count(meter: Meter, records: Sequence[dict[str, Any]], *, aggregated: bool) -> None:
    """Read each user record's key, sequence number and length, as a handler would."""
    if aggregated:
        records = _deaggregate(records)
    size = 0
    for record in records:
        _key, _number = record["PartitionKey"], record["SequenceNumber"]
        size += len(record["Data"])
    if meter.report != "counts":
        meter.details([(record["PartitionKey"], record["Data"]) for record in records])
    meter.add(len(records), size)


def _deaggregate(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """AWS's helper takes records as Lambda gets them, with their data in base64."""
    lambda_records = [
        {
            "kinesis": {
                "data": base64.b64encode(record["Data"]),
                "partitionKey": record["PartitionKey"],
                "sequenceNumber": record["SequenceNumber"],
                "approximateArrivalTimestamp": record["ApproximateArrivalTimestamp"],
                "kinesisSchemaVersion": "1.0",
            },
            "eventID": "", "eventName": "", "eventSource": "", "eventSourceARN": "", "eventVersion": "",
            "awsRegion": "", "invokeIdentityArn": "",
        }
        for record in records
    ]  # fmt: skip
    return [
        {
            "PartitionKey": record["kinesis"]["partitionKey"],
            "SequenceNumber": record["kinesis"]["sequenceNumber"],
            "Data": base64.b64decode(record["kinesis"]["data"]),
        }
        for record in deaggregate_records(lambda_records)
    ]
