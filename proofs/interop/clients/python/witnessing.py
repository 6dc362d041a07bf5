"""What both Python witnesses share: where the fake is, the words of a testimony, and when a child may be read."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Sequence
from typing import Any

ENDPOINT = os.environ["WITNESS_ENDPOINT"]
STREAM = os.environ["WITNESS_STREAM"]
CONSUMER = os.environ["WITNESS_CONSUMER"]
NO_SHARD = "shardId-000000009999"
TRIM_HORIZON = {"Type": "TRIM_HORIZON"}
NO_NUMBER = {"Type": "AT_SEQUENCE_NUMBER"}
PAUSE = 1.5
"""Seconds between two calls for one shard: more than one a second is refused for that alone."""
TRY_LATER = ("ResourceInUseException", "LimitExceededException")

_speaking = threading.Lock()


def _say(what: dict[str, Any]) -> None:
    with _speaking:
        print(json.dumps(what), flush=True)


def say_records(shard: str, records: Sequence[dict[str, Any]]) -> None:
    for record in records:
        data = base64.b64encode(record["Data"]).decode()
        said = {"shard": shard, "sequence": record["SequenceNumber"], "key": record["PartitionKey"], "data": data}
        _say({"record": said})


def say_refused(what: str, error: Exception) -> None:
    _say({"refused": {"what": what, "error": type(error).__name__}})


def after(event: dict[str, Any]) -> dict[str, str]:
    """Return the position that follows an event."""
    return {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": event["ContinuationSequenceNumber"]}


class Lineage:
    """Which shards have ended, so that a child is read when all its parents are."""

    def __init__(self) -> None:
        self._ended: set[str] = set()

    def end(self, shard: str, children: Sequence[dict[str, Any]]) -> list[str]:
        """Note and say a shard's end; return the children that may be read now."""
        _say({"shard_end": {"shard": shard, "children": [child["ShardId"] for child in children]}})
        with _speaking:
            self._ended.add(shard)
            return [child["ShardId"] for child in children if self._ended.issuperset(child["ParentShards"])]
