"""aiobotocore with the backend that is named, a task per shard: aiohttp on asyncio subscribes, httpx2 on trio polls.

aiobotocore 3.10 cannot read an event stream through httpx2 (it asks the response for aiohttp's methods), so that
one reads by GetShardIterator and GetRecords.
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

BACKENDS = {
    "aiohttp": ("asyncio", aiobotocore.httpsession.AIOHTTPSession, False),
    "httpx2": ("trio", aiobotocore.httpxsession.HttpxSession, True),
}
"""By name: the event loop, the class of the session, and whether it polls."""
POLL = 0.3
"""Seconds between two polls of a shard: five a second are allowed (AWS: GetRecords)."""


class Witness:
    def __init__(self, kinesis: Any, tasks: anyio.abc.TaskGroup, *, polls: bool) -> None:
        self.polls = polls
        self.kinesis = kinesis
        self.tasks = tasks
        self.lineage = Lineage()
        self.consumer_arn = ""

    async def register(self) -> None:
        """Register the consumer and wait until it is ACTIVE."""
        stream = (await self.kinesis.describe_stream_summary(StreamName=STREAM))["StreamDescriptionSummary"]
        answer = await self.kinesis.register_stream_consumer(StreamARN=stream["StreamARN"], ConsumerName=CONSUMER)
        self.consumer_arn = answer["Consumer"]["ConsumerARN"]
        while True:
            answer = await self.kinesis.describe_stream_consumer(ConsumerARN=self.consumer_arn)
            if answer["ConsumerDescription"]["ConsumerStatus"] == "ACTIVE":
                return
            await anyio.sleep(0.2)

    async def subscribe(self, shard: str, position: dict[str, Any]) -> Any:
        answer = await self.kinesis.subscribe_to_shard(
            ConsumerARN=self.consumer_arn, ShardId=shard, StartingPosition=position
        )
        return answer["EventStream"]

    async def be_refused(self, what: str, shard: str, position: dict[str, Any]) -> None:
        try:
            await self.subscribe(shard, position)
        except self.kinesis.exceptions.ClientError as error:
            say_refused(what, error)

    async def subscribe_unread(self, shard: str) -> None:
        """Begin a subscription, and let the backend fail to read it: for the service it has begun."""
        with suppress(httpx2.ResponseNotRead):
            await self.subscribe(shard, TRIM_HORIZON)

    async def poll(self, shard: str) -> None:
        """ShardReader a shard to its end by GetRecords, then start its children."""
        answer = await self.kinesis.get_shard_iterator(
            StreamName=STREAM, ShardId=shard, ShardIteratorType=TRIM_HORIZON["Type"]
        )
        iterator = answer["ShardIterator"]
        while iterator is not None:
            answer = await self.kinesis.get_records(ShardIterator=iterator)
            say_records(shard, answer["Records"])
            iterator = answer.get("NextShardIterator")
            await anyio.sleep(POLL)
        self.end(shard, answer["ChildShards"])

    def end(self, shard: str, children: Sequence[dict[str, Any]]) -> None:
        """Note a shard's end, and start the children that may be read now."""
        for child in self.lineage.end(shard, children):
            self.tasks.start_soon(self.read, child)

    async def read(self, shard: str) -> None:
        """ShardReader a shard to its end, then start its children."""
        if self.polls:
            await self.poll(shard)
            return
        position: dict[str, Any] = TRIM_HORIZON
        while True:
            try:
                events = await self.subscribe(shard, position)
            except self.kinesis.exceptions.ClientError as error:
                if type(error).__name__ not in TRY_LATER:
                    raise
                await anyio.sleep(PAUSE)
                continue
            async for member in events:
                event = member["SubscribeToShardEvent"]
                say_records(shard, event["Records"])
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
        witness = Witness(kinesis, tasks, polls=polls)
        await witness.register()
        shards = [shard["ShardId"] for shard in (await kinesis.list_shards(StreamName=STREAM))["Shards"]]
        await witness.be_refused("unknown shard", NO_SHARD, TRIM_HORIZON)
        await witness.be_refused("position without its number", shards[0], NO_NUMBER)
        await anyio.sleep(PAUSE)
        for shard in shards:
            tasks.start_soon(witness.read, shard)
        if polls:
            await witness.subscribe_unread(shards[0])
        await anyio.sleep(PAUSE)
        await witness.be_refused("second subscription", shards[0], TRIM_HORIZON)
        await anyio.sleep_forever()  # until the driver has heard enough


if __name__ == "__main__":
    loop, http_session, polls = BACKENDS[sys.argv[1]]
    anyio.run(partial(main, http_session, polls=polls), backend=loop)
