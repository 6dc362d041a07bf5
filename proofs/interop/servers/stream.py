"""The producer of a stream on a third-party server: puts numbered records, splits and merges.

It calls the server through aiobotocore, as a user's program would.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import aiobotocore.config
import aiobotocore.httpxsession
import aiobotocore.session
import trio

import efo
from efo.kinesis.client import ControlPlane
from efo.model import Shard
from efo.protocol.aggregation import AggregateEntry, aggregate, hash_key
from proofs.interop.servers.comparison import Item, data_of
from proofs.interop.servers.launcher import Endpoint, ServerError

STREAM: Final = "orders"
SHARDS: Final = 2
KEYS: Final = 101
"""The number of partition keys: a prime, so that every batch has other keys."""
BATCH: Final = 40
"""Records per PutRecords call. No key occurs twice in a call, because a server need not keep the order in a call."""
AGGREGATED: Final = 3
"""The records of every third key are put as KPL aggregates. Chosen by key, so that each key stays in order."""
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "made-up",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}
"""The environment of this process, in place of other AWS settings. The servers accept any credentials."""
_POLL: Final = 0.2
_RESHARD_TIMEOUT: Final = 60.0


def set_credentials() -> None:
    """Replace this process' AWS settings with made-up credentials."""
    for name in [name for name in os.environ if name.upper().startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(CREDENTIALS)


class Stream:
    """The producer of one stream. `items`: every user record that was put, in order, with its place.

    `count`: how many were put. `control_plane`: efo's control plane, which lists the shards.
    """

    def __init__(self, client: Any, control_plane: ControlPlane, endpoint: Endpoint) -> None:
        self.items: list[Item] = []
        self.count = 0
        self.control_plane = control_plane
        self._client = client
        self._endpoint = endpoint

    async def create(self) -> None:
        """Create the stream, and wait until it is ACTIVE."""
        await self._client.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        await self._wait_for_shards(SHARDS)

    async def put(self, count: int, *, size: int = 150) -> list[Item]:
        """Put `count` more user records of about `size` bytes each; return them."""
        before, end = len(self.items), self.count + count
        while self.count < end:
            numbers = range(self.count, min(self.count + BATCH, end))
            self.count = numbers.stop
            await self._put([AggregateEntry(f"key-{number % KEYS:03d}", data_of(number, size)) for number in numbers])
        return self.items[before:]

    async def split(self) -> tuple[str, list[str]]:
        """Split the first open shard in the middle; return its id and those of its children."""
        first = (await self.open_shards())[0]
        low, high = int(first.hash_key_range.starting_hash_key), int(first.hash_key_range.ending_hash_key)
        before = {shard.shard_id for shard in await self.open_shards()}
        await self._client.split_shard(
            StreamName=STREAM, ShardToSplit=first.shard_id, NewStartingHashKey=str((low + high + 1) // 2)
        )
        return first.shard_id, await self._wait_for_shards(len(before) + 1, before)

    async def merge(self) -> tuple[list[str], list[str]]:
        """Merge the last two open shards; return their ids and that of their child."""
        *_, lower, upper = await self.open_shards()
        before = {shard.shard_id for shard in await self.open_shards()}
        await self._client.merge_shards(
            StreamName=STREAM, ShardToMerge=lower.shard_id, AdjacentShardToMerge=upper.shard_id
        )
        return [lower.shard_id, upper.shard_id], await self._wait_for_shards(len(before) - 1, before)

    async def open_shards(self) -> list[Shard]:
        """Return the open shards in hash key order."""
        shards = [shard for shard in await self.control_plane.list_shards() if shard.is_open]
        return sorted(shards, key=lambda shard: int(shard.hash_key_range.starting_hash_key))

    async def _wait_for_shards(self, shards: int, before: Sequence[str] | set[str] = ()) -> list[str]:
        """Wait until the stream is ACTIVE with this many open shards; return those that are not in `before`."""
        with trio.move_on_after(_RESHARD_TIMEOUT):
            while True:
                if (
                    await self.control_plane.describe_stream()
                ).status == "ACTIVE":  # until then, shards cannot be listed
                    current = [shard.shard_id for shard in await self.open_shards()]
                    if len(current) == shards:
                        return [shard_id for shard_id in current if shard_id not in before]
                await trio.sleep(_POLL)
        raise self._endpoint.failed(f"did not reach {shards} open shards within {_RESHARD_TIMEOUT:.0f} s")

    async def _put(self, entries: list[AggregateEntry]) -> None:
        """Put user records by one call: some as plain records, the others as one aggregate per shard."""
        plain = [entry for entry in entries if not _is_aggregated(entry)]
        groups = [[entry] for entry in plain]
        requests = [{"PartitionKey": entry.partition_key, "Data": entry.data} for entry in plain]
        for shard in await self.open_shards():
            own = [e for e in entries if _is_aggregated(e) and hash_key(e.partition_key) in shard.hash_key_range]
            if own:
                groups.append(own)
                requests.append({"PartitionKey": own[0].partition_key, "Data": aggregate(own)})
        response = await self._client.put_records(StreamName=STREAM, Records=requests)
        if response["FailedRecordCount"]:
            raise ServerError(f"{self._endpoint.server.name} rejected {response['FailedRecordCount']} records")
        for group, result in zip(groups, response["Records"], strict=True):
            for sub, entry in enumerate(group):
                place = result["ShardId"], result["SequenceNumber"], sub
                self.items.append(Item(*place, entry.partition_key, entry.data))


def _is_aggregated(entry: AggregateEntry) -> bool:
    return int(entry.partition_key.rpartition("-")[2]) % AGGREGATED == 0


@asynccontextmanager
async def open_stream(endpoint: Endpoint) -> AsyncIterator[Stream]:
    """Create the stream, and return its producer. `set_credentials` must have been called."""
    config = aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        read_timeout=120,  # LocalStack starts its Kinesis at the first call
        retries={"mode": "standard", "total_max_attempts": 1},  # a retry would put records twice
    )
    ca_file = str(endpoint.ca_file)
    session = aiobotocore.session.AioSession()
    session.set_default_client_config(config)
    async with (
        session.create_client("kinesis", endpoint_url=endpoint.url, verify=ca_file, config=config) as client,
        efo.open_kinesis(STREAM, endpoint_url=endpoint.url, ca_file=ca_file) as kinesis,
    ):
        stream = Stream(client, kinesis.control_plane, endpoint)
        await stream.create()
        endpoint.check()  # also checks processes that the server starts at the first call
        yield stream
