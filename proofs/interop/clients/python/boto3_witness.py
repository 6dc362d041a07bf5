"""boto3, which reads SubscribeToShard over HTTP/1.1: a thread per shard."""

from __future__ import annotations

import threading
import time
from typing import Any

import boto3
from witnessing import (
    CONSUMER,
    ENDPOINT,
    NO_NUMBER,
    NO_SHARD,
    PAUSE,
    STREAM,
    TRIM_HORIZON,
    TRY_LATER,
    Lineage,
    after,
    say_records,
    say_refused,
)


class Witness:
    def __init__(self) -> None:
        self.kinesis = boto3.client("kinesis", endpoint_url=ENDPOINT)
        self.lineage = Lineage()
        self.consumer_arn = self.register()

    def register(self) -> str:
        """Register the consumer and wait until it is ACTIVE."""
        stream = self.kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]
        made = self.kinesis.register_stream_consumer(StreamARN=stream["StreamARN"], ConsumerName=CONSUMER)["Consumer"]
        arn: str = made["ConsumerARN"]
        while True:
            consumer = self.kinesis.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"]
            if consumer["ConsumerStatus"] == "ACTIVE":
                return arn
            time.sleep(0.2)

    def subscribe(self, shard: str, position: dict[str, Any]) -> Any:
        answer = self.kinesis.subscribe_to_shard(
            ConsumerARN=self.consumer_arn, ShardId=shard, StartingPosition=position
        )
        return answer["EventStream"]

    def be_refused(self, what: str, shard: str, position: dict[str, Any]) -> None:
        try:
            self.subscribe(shard, position)
        except self.kinesis.exceptions.ClientError as error:
            say_refused(what, error)

    def start(self, shard: str) -> None:
        threading.Thread(target=self.read, args=(shard,), daemon=True).start()

    def read(self, shard: str) -> None:
        """ShardReader a shard to its end, then start its children."""
        position: dict[str, Any] = TRIM_HORIZON
        while True:
            try:
                events = self.subscribe(shard, position)
            except self.kinesis.exceptions.ClientError as error:
                if type(error).__name__ not in TRY_LATER:
                    raise
                time.sleep(PAUSE)
                continue
            for member in events:
                event = member["SubscribeToShardEvent"]
                say_records(shard, event["Records"])
                if children := event.get("ChildShards"):
                    for child in self.lineage.end(shard, children):
                        self.start(child)
                    return
                position = after(event)


def main() -> None:
    witness = Witness()
    shards = [shard["ShardId"] for shard in witness.kinesis.list_shards(StreamName=STREAM)["Shards"]]
    witness.be_refused("unknown shard", NO_SHARD, TRIM_HORIZON)
    witness.be_refused("position without its number", shards[0], NO_NUMBER)
    time.sleep(PAUSE)
    for shard in shards:
        witness.start(shard)
    time.sleep(PAUSE)
    witness.be_refused("second subscription", shards[0], TRIM_HORIZON)
    threading.Event().wait()  # until the driver has heard enough


if __name__ == "__main__":
    main()
