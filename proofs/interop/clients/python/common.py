"""What both Python clients share: the fake's address, the output lines, and when a child shard may be read."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Sequence
from typing import Any

ENDPOINT = os.environ["INTEROP_ENDPOINT"]
STREAM = os.environ["INTEROP_STREAM"]
CONSUMER = os.environ["INTEROP_CONSUMER"]
NO_SHARD = "shardId-000000009999"
TRIM_HORIZON = {"Type": "TRIM_HORIZON"}
NO_NUMBER = {"Type": "AT_SEQUENCE_NUMBER"}
PAUSE = 1.5
"""Seconds between two calls for one shard: at most one call per second is allowed."""
RETRYABLE = ("ResourceInUseException", "LimitExceededException")

_lock = threading.Lock()


def _print(line: dict[str, Any]) -> None:
    with _lock:
        print(json.dumps(line), flush=True)


def print_records(shard: str, records: Sequence[dict[str, Any]]) -> None:
    for record in records:
        data = base64.b64encode(record["Data"]).decode()
        members = {"shard": shard, "sequence": record["SequenceNumber"], "key": record["PartitionKey"], "data": data}
        _print({"record": members})


def print_refused(what: str, error: Exception) -> None:
    _print({"refused": {"what": what, "error": type(error).__name__}})


def after(event: dict[str, Any]) -> dict[str, str]:
    """Return the position after an event."""
    return {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": event["ContinuationSequenceNumber"]}


class Lineage:
    """Which shards have ended: a child may be read when all its parents have ended."""

    def __init__(self) -> None:
        self._ended: set[str] = set()

    def end(self, shard: str, children: Sequence[dict[str, Any]]) -> list[str]:
        """Record and print a shard's end; return the children that may be read now."""
        _print({"shard_end": {"shard": shard, "children": [child["ShardId"] for child in children]}})
        with _lock:
            self._ended.add(shard)
            return [child["ShardId"] for child in children if self._ended.issuperset(child["ParentShards"])]
