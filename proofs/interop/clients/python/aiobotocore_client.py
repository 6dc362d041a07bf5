"""aiobotocore as an interop client, a task per shard. The argument names the HTTP backend.

aiohttp on asyncio subscribes. httpx2 on trio polls by GetShardIterator and GetRecords, because aiobotocore 3.10
cannot read an event stream through httpx2: it calls methods of aiohttp's response.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import aiobotocore.config
import aiobotocore.httpsession
import aiobotocore.httpxsession
import aiobotocore.session
import anyio
import anyio.abc
import httpx2
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

BACKENDS = {
    "aiohttp": ("asyncio", aiobotocore.httpsession.AIOHTTPSession, False),
    "httpx2": ("trio", aiobotocore.httpxsession.HttpxSession, True),
}
"""By name: the event loop, the class of the HTTP session, and whether the client polls."""
POLL = 0.3
"""Seconds between two polls of a shard: five per second are allowed (AWS: GetRecords)."""


class Client:
    def __init__(self, kinesis: Any, tasks: anyio.abc.TaskGroup, *, polls: bool) -> None:
        self.polls = polls
        self.kinesis = kinesis
        self.tasks = tasks
        self.lineage = Lineage()
        self.consumer_arn = ""

    async def register(self) -> None:
        """Register the consumer and wait until it is ACTIVE."""
        stream = (await self.kinesis.describe_stream_summary(StreamName=STREAM))["StreamDescriptionSummary"]
        response = await self.kinesis.register_stream_consumer(StreamARN=stream["StreamARN"], ConsumerName=CONSUMER)
        self.consumer_arn = response["Consumer"]["ConsumerARN"]
        while True:
            response = await self.kinesis.describe_stream_consumer(ConsumerARN=self.consumer_arn)
            if response["ConsumerDescription"]["ConsumerStatus"] == "ACTIVE":
                return
            await anyio.sleep(0.2)

    async def subscribe(self, shard: str, position: dict[str, Any]) -> Any:
        response = await self.kinesis.subscribe_to_shard(
            ConsumerARN=self.consumer_arn, ShardId=shard, StartingPosition=position
        )
        return response["EventStream"]

    async def expect_refusal(self, what: str, shard: str, position: dict[str, Any]) -> None:
        try:
            await self.subscribe(shard, position)
        except self.kinesis.exceptions.ClientError as error:
            print_refused(what, error)

    async def subscribe_unread(self, shard: str) -> None:
        """Open a subscription that the backend cannot read: for the service it is active."""
        with suppress(httpx2.ResponseNotRead):
            await self.subscribe(shard, TRIM_HORIZON)

    async def poll(self, shard: str) -> None:
        """Read a shard to its end by GetRecords, then start its children."""
        response = await self.kinesis.get_shard_iterator(
            StreamName=STREAM, ShardId=shard, ShardIteratorType=TRIM_HORIZON["Type"]
        )
        iterator = response["ShardIterator"]
        while iterator is not None:
            response = await self.kinesis.get_records(ShardIterator=iterator)
            print_records(shard, response["Records"])
            iterator = response.get("NextShardIterator")
            await anyio.sleep(POLL)
        self.end(shard, response["ChildShards"])

    def end(self, shard: str, children: Sequence[dict[str, Any]]) -> None:
        """Record a shard's end, and start the children that may be read now."""
        for child in self.lineage.end(shard, children):
            self.tasks.start_soon(self.read, child)

    async def read(self, shard: str) -> None:
        """Read a shard to its end, then start its children."""
        if self.polls:
            await self.poll(shard)
            return
        position: dict[str, Any] = TRIM_HORIZON
        while True:
            try:
                events = await self.subscribe(shard, position)
            except self.kinesis.exceptions.ClientError as error:
                if type(error).__name__ not in RETRYABLE:
                    raise
                await anyio.sleep(PAUSE)
                continue
            async for member in events:
                event = member["SubscribeToShardEvent"]
                print_records(shard, event["Records"])
                if children := event.get("ChildShards"):
                    self.end(shard, children)
                    return
                position = after(event)


async def main(http_session: Any, *, polls: bool) -> None:
    config = aiobotocore.config.AioConfig(http_session_cls=http_session)
    session = aiobotocore.session.get_session()
    async with (
        session.create_client("kinesis", endpoint_url=ENDPOINT, config=config) as kinesis,
        anyio.create_task_group() as tasks,
    ):
        client = Client(kinesis, tasks, polls=polls)
        await client.register()
        shards = [shard["ShardId"] for shard in (await kinesis.list_shards(StreamName=STREAM))["Shards"]]
        await client.expect_refusal("unknown shard", NO_SHARD, TRIM_HORIZON)
        await client.expect_refusal("position without its number", shards[0], NO_NUMBER)
        await anyio.sleep(PAUSE)
        for shard in shards:
            tasks.start_soon(client.read, shard)
        if polls:
            await client.subscribe_unread(shards[0])
        await anyio.sleep(PAUSE)
        await client.expect_refusal("second subscription", shards[0], TRIM_HORIZON)
        await anyio.sleep_forever()  # until the runner terminates the process


if __name__ == "__main__":
    loop, http_session, polls = BACKENDS[sys.argv[1]]
    anyio.run(partial(main, http_session, polls=polls), backend=loop)
