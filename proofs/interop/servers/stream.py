"""A stream on a foreign server, as its producer has it: puts numbered records, splits, merges, and keeps account.

The server is spoken to through aiobotocore, as a user's own program would.
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
from efo.kinesis.control_plane import ControlPlane
from efo.model import Shard
from efo.protocol.aggregation import Entry, aggregate, hash_key
from proofs.interop.servers.judgement import Item, data_of
from proofs.interop.servers.running import Endpoint, ServerError

STREAM: Final = "orders"
SHARDS: Final = 2
KEYS: Final = 101
"""Partition keys; a prime, so that they mix with every size of a batch."""
BATCH: Final = 40
"""Records that are put by one call. No key comes twice in it: the order within a call is the server's to choose."""
AGGREGATED: Final = 3
"""Every third key's records come in KPL aggregates; by key, so that a key's order is that of its numbers."""
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "made-up",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}
"""What the environment must hold, instead of other AWS settings. The servers take any credentials."""
_POLL: Final = 0.2
_SETTLED_WITHIN: Final = 60.0


def set_credentials() -> None:
    """Forget this process' AWS settings, and have credentials that are made up."""
    for name in [name for name in os.environ if name.upper().startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(CREDENTIALS)


class Stream:
    """The producer's side of one stream. `items`: every user record that was put, in this order, where it is.

    `control` lists the shards: efo's own control plane.
    """

    def __init__(self, client: Any, control: ControlPlane, endpoint: Endpoint) -> None:
        self.items: list[Item] = []
        self.count = 0
        self.control = control
        self._client = client
        self._endpoint = endpoint

    async def create(self) -> None:
        """Create it, and wait until it is ACTIVE."""
        await self._client.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        await self._settled(SHARDS)

    async def put(self, count: int, *, size: int = 150) -> list[Item]:
        """Put so many user records more, of about so many bytes each; return them."""
        before, end = len(self.items), self.count + count
        while self.count < end:
            numbers = range(self.count, min(self.count + BATCH, end))
            self.count = numbers.stop
            await self._put([Entry(f"key-{number % KEYS:03d}", data_of(number, size)) for number in numbers])
        return self.items[before:]

    async def split(self) -> tuple[str, list[str]]:
        """Split the first open shard in its middle; return it, and its children."""
        first = (await self.open_shards())[0]
        low, high = int(first.hash_key_range.starting_hash_key), int(first.hash_key_range.ending_hash_key)
        before = {shard.shard_id for shard in await self.open_shards()}
        await self._client.split_shard(
            StreamName=STREAM, ShardToSplit=first.shard_id, NewStartingHashKey=str((low + high + 1) // 2)
        )
        return first.shard_id, await self._settled(len(before) + 1, before)

    async def merge(self) -> tuple[list[str], list[str]]:
        """Merge the last two open shards; return them, and their child."""
        *_, lower, upper = await self.open_shards()
        before = {shard.shard_id for shard in await self.open_shards()}
        await self._client.merge_shards(
            StreamName=STREAM, ShardToMerge=lower.shard_id, AdjacentShardToMerge=upper.shard_id
        )
        return [lower.shard_id, upper.shard_id], await self._settled(len(before) - 1, before)

    async def open_shards(self) -> list[Shard]:
        """Return the open shards in the order of their hash keys."""
        shards = [shard for shard in await self.control.list_shards() if shard.is_open]
        return sorted(shards, key=lambda shard: int(shard.hash_key_range.starting_hash_key))

    async def _settled(self, shards: int, before: Sequence[str] | set[str] = ()) -> list[str]:
        """Wait until the stream is ACTIVE with so many open shards; return those that were not there before."""
        with trio.move_on_after(_SETTLED_WITHIN):
            while True:
                if (await self.control.describe_stream()).status == "ACTIVE":  # until then they cannot be listed
                    now = [shard.shard_id for shard in await self.open_shards()]
                    if len(now) == shards:
                        return [shard_id for shard_id in now if shard_id not in before]
                await trio.sleep(_POLL)
        raise self._endpoint.failed(f"did not come to {shards} open shards within {_SETTLED_WITHIN:.0f} s")

    async def _put(self, entries: list[Entry]) -> None:
        """Put user records by one call: some plain, others in an aggregate for each shard."""
        plain = [entry for entry in entries if not _is_aggregated(entry)]
        groups = [[entry] for entry in plain]
        requests = [{"PartitionKey": entry.partition_key, "Data": entry.data} for entry in plain]
        for shard in await self.open_shards():
            mine = [e for e in entries if _is_aggregated(e) and hash_key(e.partition_key) in shard.hash_key_range]
            if mine:
                groups.append(mine)
                requests.append({"PartitionKey": mine[0].partition_key, "Data": aggregate(mine)})
        answer = await self._client.put_records(StreamName=STREAM, Records=requests)
        if answer["FailedRecordCount"]:
            raise ServerError(f"{self._endpoint.server.name} refused {answer['FailedRecordCount']} records")
        for group, result in zip(groups, answer["Records"], strict=True):
            for sub, entry in enumerate(group):
                place = result["ShardId"], result["SequenceNumber"], sub
                self.items.append(Item(*place, entry.partition_key, entry.data))


def _is_aggregated(entry: Entry) -> bool:
    return int(entry.partition_key.rpartition("-")[2]) % AGGREGATED == 0


@asynccontextmanager
async def opened(endpoint: Endpoint) -> AsyncIterator[Stream]:
    """Create the stream, and be its producer. Needs `set_credentials`."""
    config = aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        read_timeout=120,  # LocalStack starts its Kinesis when it is first called
        retries={"mode": "standard", "total_max_attempts": 1},  # nothing is put twice
    )
    ca_file = str(endpoint.ca_file)
    session = aiobotocore.session.AioSession()
    session.set_default_client_config(config)
    async with (
        session.create_client("kinesis", endpoint_url=endpoint.url, verify=ca_file, config=config) as client,
        efo.open_kinesis(STREAM, endpoint_url=endpoint.url, ca_file=ca_file) as kinesis,
    ):
        stream = Stream(client, kinesis.control, endpoint)
        await stream.create()
        endpoint.check()  # what a server starts only now must not listen elsewhere either
        yield stream
