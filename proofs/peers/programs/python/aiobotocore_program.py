"""aiobotocore on asyncio with aiohttp: SubscribeToShard over HTTP/1.1, a task per shard."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Any

import aiobotocore.config
import aiobotocore.session
from meter import Meter, configuration
from shards import PAUSE, RETRYABLE, TRIM_HORIZON, Lineage, after, count


async def read(config: dict[str, Any], kinesis: Any, meter: Meter, lineage: Lineage, shard: str) -> None:
    """Read a shard to its end, then its children."""
    position: dict[str, Any] = TRIM_HORIZON
    while True:
        try:
            response = await kinesis.subscribe_to_shard(
                ConsumerARN=config["consumer_arn"], ShardId=shard, StartingPosition=position
            )
        except kinesis.exceptions.ClientError as error:
            if type(error).__name__ not in RETRYABLE:
                raise
            await asyncio.sleep(PAUSE)
            continue
        async for member in response["EventStream"]:
            event = member["SubscribeToShardEvent"]
            count(meter, event["Records"], aggregated=config["aggregated"])
            if children := event.get("ChildShards"):
                async with asyncio.TaskGroup() as tasks:
                    for child in lineage.end(shard, children):
                        tasks.create_task(read(config, kinesis, meter, lineage, child))
                return
            position = after(event)


async def report(meter: Meter) -> None:
    while True:
        await asyncio.sleep(1)
        meter.print_counts()


async def consume(config: dict[str, Any], meter: Meter) -> None:
    settings = aiobotocore.config.AioConfig(max_pool_connections=2000, read_timeout=30)
    session = aiobotocore.session.get_session()
    lineage = Lineage()
    async with session.create_client("kinesis", endpoint_url=config["endpoint"], config=settings) as kinesis:
        pages = kinesis.get_paginator("list_shards").paginate(StreamName=config["stream"])
        shards = [shard async for page in pages for shard in page["Shards"]]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(report(meter))
            for shard in lineage.roots(shards):
                tasks.create_task(read(config, kinesis, meter, lineage, shard))


async def main() -> None:
    config = configuration()
    meter = Meter(config)
    consuming = asyncio.create_task(consume(config, meter))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consuming.cancel)
    with suppress(asyncio.CancelledError):
        await consuming
    meter.stopped()


if __name__ == "__main__":
    asyncio.run(main())
