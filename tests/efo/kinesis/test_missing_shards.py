"""Shards that a call does not find: gone, not visible yet, or of a former stream (rules R13, R15)."""

from __future__ import annotations

import pytest
import trio

from efo.errors import NotVisibleError, ShardGoneError, StreamRecreatedError
from efo.kinesis.identity import NOT_VISIBLE_FOR, MissingShards, StreamIdentity
from efo.model import HashKeyRange, Shard, StreamDescription

KEYS = HashKeyRange("0", "1")


class FakeControlPlane:
    """A stream with these shards. `created_at`: when it was created."""

    def __init__(self, *numbers):
        self.numbers = numbers
        self.created_at = 1000.0
        self.listings = 0

    async def describe_stream(self):
        await trio.lowlevel.checkpoint()
        return StreamDescription("s", "arn", "ACTIVE", 24, created_at=self.created_at)

    async def list_shards(self):
        await trio.lowlevel.checkpoint()
        self.listings += 1
        return [Shard(f"shardId-{number}", KEYS, "0") for number in self.numbers]


async def explain(missing, shard_id="shardId-3"):
    return await missing.explain(shard_id, "GetShardIterator", trio.current_time())


async def test_a_shard_with_a_newer_one_is_gone(autojump_clock):
    assert isinstance(await explain(MissingShards(FakeControlPlane(1, 4))), ShardGoneError)


async def test_a_listed_shard_is_not_missing(autojump_clock):
    assert await explain(MissingShards(FakeControlPlane(3))) is None


async def test_a_shard_that_is_newer_than_all_is_waited_for_and_then_of_a_former_stream(autojump_clock):
    missing = MissingShards(FakeControlPlane(0, 1))
    error = await explain(missing)
    assert isinstance(error, NotVisibleError)
    assert error.retryable
    await trio.sleep(NOT_VISIBLE_FOR - 1)
    assert isinstance(await explain(missing), NotVisibleError)
    await trio.sleep(1)
    error = await explain(missing)
    assert isinstance(error, StreamRecreatedError)
    assert "GetShardIterator does not find shardId-3" in str(error)
    assert "efo leases reset --all" in str(error)


async def test_a_shard_that_becomes_visible_in_between_starts_anew(autojump_clock):
    control = FakeControlPlane(0)
    missing = MissingShards(control)
    await explain(missing)
    await trio.sleep(NOT_VISIBLE_FOR)
    control.numbers = (0, 3)
    assert await explain(missing) is None
    await trio.sleep(10)
    control.numbers = (0,)
    assert isinstance(await explain(missing), NotVisibleError)


async def test_shards_are_missing_each_for_its_own_time(autojump_clock):
    missing = MissingShards(FakeControlPlane(0))
    await explain(missing, "shardId-3")
    await trio.sleep(NOT_VISIBLE_FOR)
    assert isinstance(await explain(missing, "shardId-4"), NotVisibleError)
    assert isinstance(await explain(missing, "shardId-3"), StreamRecreatedError)


async def test_another_time_of_creation_tells_it_at_once(autojump_clock):
    control = FakeControlPlane(0, 1)
    identity = StreamIdentity(control)
    await identity.describe()
    control.created_at = 2000.0
    await trio.sleep(1)
    with pytest.raises(StreamRecreatedError, match="deleted and created again"):
        await explain(MissingShards(control, identity))


async def test_many_shards_share_one_listing(autojump_clock):
    control = FakeControlPlane(0)
    missing = MissingShards(control)
    asked_at = trio.current_time()
    await trio.sleep(1)
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(missing.explain, f"shardId-{number}", "SubscribeToShard", asked_at)
    assert control.listings == 1
