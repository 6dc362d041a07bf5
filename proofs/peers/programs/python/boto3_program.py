"""boto3: SubscribeToShard over HTTP/1.1, a thread per shard."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import boto3
from botocore.config import Config
from meter import Meter, configuration
from shards import PAUSE, RETRYABLE, TRIM_HORIZON, Lineage, after, count

THREAD_STACK = 256 * 1024


class Client:
    def __init__(self, config: dict[str, Any], meter: Meter) -> None:
        # A subscription holds its connection, so the pool must have one for each shard; a cut is not retried inside.
        settings = Config(max_pool_connections=2000, retries={"mode": "standard"}, read_timeout=30)
        self.kinesis = boto3.client("kinesis", endpoint_url=config["endpoint"], config=settings)
        self.config = config
        self.meter = meter
        self.lineage = Lineage()

    def run(self) -> None:
        pages = self.kinesis.get_paginator("list_shards").paginate(StreamName=self.config["stream"])
        for shard in self.lineage.roots([shard for page in pages for shard in page["Shards"]]):
            self.start(shard)

    def start(self, shard: str) -> None:
        threading.Thread(target=self.read, args=(shard,), daemon=True).start()

    def read(self, shard: str) -> None:
        """Read a shard to its end, then start its children."""
        position: dict[str, Any] = TRIM_HORIZON
        while True:
            try:
                response = self.kinesis.subscribe_to_shard(
                    ConsumerARN=self.config["consumer_arn"], ShardId=shard, StartingPosition=position
                )
            except self.kinesis.exceptions.ClientError as error:
                if type(error).__name__ not in RETRYABLE:
                    raise
                time.sleep(PAUSE)
                continue
            for member in response["EventStream"]:
                event = member["SubscribeToShardEvent"]
                count(self.meter, event["Records"], aggregated=self.config["aggregated"])
                if children := event.get("ChildShards"):
                    for child in self.lineage.end(shard, children):
                        self.start(child)
                    return
                position = after(event)


def main() -> None:
    config = configuration()
    meter = Meter(config)
    signals = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    threading.stack_size(THREAD_STACK)
    threading.Thread(target=meter.every_second, daemon=True).start()
    threading.Thread(target=Client(config, meter).run, daemon=True).start()
    signal.sigwait(signals)
    meter.stopped()
    os._exit(0)  # the threads wait for data in system calls: nothing stops them


if __name__ == "__main__":
    main()
