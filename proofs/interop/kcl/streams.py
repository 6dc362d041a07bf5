"""The streams that the application reads: what is put into them, their shards, and their leases.

Of several streams, a shard is named STREAM/SHARD, in what the workers report too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.model import Lease, Record
from efo.testing import FakeKinesis
from proofs.interop.clients.load import data_of, key_of


class Streams:
    """The streams of the fake. `stores`: their lease stores, by stream."""

    def __init__(self, fake: FakeKinesis, stores: Mapping[str, DynamoDbLeaseStore]) -> None:
        self._fake = fake
        self.stores = stores

    @asynccontextmanager
    async def open_stores(self) -> AsyncIterator[None]:
        """Open all lease stores."""
        async with AsyncExitStack() as stack:
            for store in self.stores.values():
                await stack.enter_async_context(store)
            yield

    def put(self, numbers: range) -> None:
        """Put numbered records, in turn into each stream. Each stream has keys of its own."""
        names = list(self.stores)
        for number in numbers:
            stream = names[number % len(names)]
            self._fake.put(stream, self._name(stream, key_of(number)), data_of(number))

    def records(self) -> dict[str, Sequence[Record]]:
        """Return all records of all streams, by shard."""
        return {
            self._name(stream, shard): records
            for stream in self.stores
            for shard, records in self._fake.records(stream).items()
        }

    async def leases(self) -> Sequence[Lease]:
        """Scan the leases of all streams. Their keys name the shards."""
        return [
            replace(lease, key=self._name(stream, lease.key))
            for stream, store in self.stores.items()
            for lease in await store.list()
        ]

    def open_shards(self) -> Sequence[str]:
        """Return the open shards of all streams."""
        return [self._name(stream, shard) for stream in self.stores for shard in self._fake.open_shards(stream)]

    def all_subscribed(self) -> bool:
        """Return whether each open shard has a live subscription."""
        return all(
            self._fake.subscriptions(stream, shard).live
            for stream in self.stores
            for shard in self._fake.open_shards(stream)
        )

    def reshard(self) -> str:
        """Split the first shard of the first stream, and merge its last two. Return what happened, in a sentence."""
        stream = next(iter(self.stores))
        first, *_, lower, upper = self._fake.open_shards(stream)
        children = (*self._fake.split(stream, first), self._fake.merge(stream, lower, upper))
        return f"{first} is split, {lower} and {upper} are merged; children: {', '.join(children)}"

    def _name(self, stream: str, name: str) -> str:
        return name if len(self.stores) == 1 else f"{stream}/{name}"


async def stream_id(fake: FakeKinesis, stream: str) -> str:
    """Return KCL's identifier of a stream, account:stream:epoch."""
    description = await fake.kinesis(stream).control_plane.describe_stream()
    return f"{description.arn.split(':')[4]}:{stream}:{int(description.created_at or 0)}"
