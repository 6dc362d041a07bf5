"""boto3 as an interop client: SubscribeToShard over HTTP/1.1, a thread per shard."""

from __future__ import annotations

import threading
import time
from typing import Any

import boto3
from common import (
    CONSUMER,
    ENDPOINT,
    NO_NUMBER,
    NO_SHARD,
    PAUSE,
    RETRYABLE,
    STREAM,
    TRIM_HORIZON,
    Lineage,
    after,
    print_records,
    print_refused,
)


class Client:
    def __init__(self) -> None:
        self.kinesis = boto3.client("kinesis", endpoint_url=ENDPOINT)
        self.lineage = Lineage()
        self.consumer_arn = self.register()

    def register(self) -> str:
        """Register the consumer and wait until it is ACTIVE."""
        stream = self.kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]
        response = self.kinesis.register_stream_consumer(StreamARN=stream["StreamARN"], ConsumerName=CONSUMER)
        arn: str = response["Consumer"]["ConsumerARN"]
        while True:
            consumer = self.kinesis.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"]
            if consumer["ConsumerStatus"] == "ACTIVE":
                return arn
            time.sleep(0.2)

    def subscribe(self, shard: str, position: dict[str, Any]) -> Any:
        response = self.kinesis.subscribe_to_shard(
            ConsumerARN=self.consumer_arn, ShardId=shard, StartingPosition=position
        )
        return response["EventStream"]

    def expect_refusal(self, what: str, shard: str, position: dict[str, Any]) -> None:
        try:
            self.subscribe(shard, position)
        except self.kinesis.exceptions.ClientError as error:
            print_refused(what, error)

    def start(self, shard: str) -> None:
        threading.Thread(target=self.read, args=(shard,), daemon=True).start()

    def read(self, shard: str) -> None:
        """Read a shard to its end, then start its children."""
        position: dict[str, Any] = TRIM_HORIZON
        while True:
            try:
                events = self.subscribe(shard, position)
            except self.kinesis.exceptions.ClientError as error:
                if type(error).__name__ not in RETRYABLE:
                    raise
                time.sleep(PAUSE)
                continue
            for member in events:
                event = member["SubscribeToShardEvent"]
                print_records(shard, event["Records"])
                if children := event.get("ChildShards"):
                    for child in self.lineage.end(shard, children):
                        self.start(child)
                    return
                position = after(event)


def main() -> None:
    client = Client()
    shards = [shard["ShardId"] for shard in client.kinesis.list_shards(StreamName=STREAM)["Shards"]]
    client.expect_refusal("unknown shard", NO_SHARD, TRIM_HORIZON)
    client.expect_refusal("position without its number", shards[0], NO_NUMBER)
    time.sleep(PAUSE)
    for shard in shards:
        client.start(shard)
    time.sleep(PAUSE)
    client.expect_refusal("second subscription", shards[0], TRIM_HORIZON)
    threading.Event().wait()  # until the runner terminates the process


if __name__ == "__main__":
    main()
