from __future__ import annotations

import pytest
import trio

from efo import errors
from efo.model import Record
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.errors import FakeError

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


async def test_records_returns_all_records_by_shard(fake, autojump_clock):
    shard_id, number = fake.put("s", "key", b"data", explicit_hash_key="0")
    assert shard_id == FIRST
    assert fake.put_many("s", [("a", b"1"), ("b", b"2")]) == 2
    records = fake.records("s")
    assert records[FIRST][0] == Record(number, fake.settings.epoch, b"data", "key")
    assert sum(map(len, records.values())) == 3


async def test_split_and_merge_change_the_open_shards(fake):
    lower, upper = fake.split("s", FIRST)
    assert fake.open_shards("s") == [lower, upper, SECOND]
    child = fake.merge("s", upper, SECOND)
    assert fake.open_shards("s") == [lower, child]
    with pytest.raises(FakeError, match="InvalidArgumentException"):
        fake.merge("s", lower, FIRST)


async def test_the_default_clock_follows_trios_clock(fake, autojump_clock):
    assert fake.clock() == fake.settings.epoch
    await trio.sleep(3600)
    assert fake.clock() == fake.settings.epoch + 3600


async def test_a_custom_clock_is_used(autojump_clock):
    async with FakeKinesis(clock=lambda: 12.5) as fake:
        fake.create_stream("s")
        fake.put("s", "k", b"")
        assert fake.kinesis("s").clock() == 12.5
        assert fake.records("s")[FIRST][0].approximate_arrival_timestamp == 12.5


async def test_the_in_memory_control_plane_describes_streams_shards_and_consumers(autojump_clock):
    async with FakeKinesis(settings=FakeSettings(retention_hours=48)) as fake:
        arn = fake.create_stream("s", 2)
        control = fake.kinesis("s").control_plane
        described = await control.describe_stream()
        assert (described.name, described.arn, described.status, described.retention_hours) == ("s", arn, "ACTIVE", 48)
        children = fake.split("s", FIRST)
        shards = {shard.shard_id: shard for shard in await control.list_shards()}
        assert list(shards) == [FIRST, SECOND, *children]
        assert [shards[child].parents for child in children] == [(FIRST,), (FIRST,)]
        assert not shards[FIRST].is_open
        assert (await control.register_consumer(arn, "c")).status == "CREATING"
        await trio.sleep(1)
        consumer = await control.describe_consumer(arn, "c")
        assert consumer.status == "ACTIVE"
        await control.deregister_consumer(consumer.arn)
        assert (await control.describe_consumer(arn, "c")).status == "DELETING"


async def test_the_control_plane_raises_the_librarys_errors(fake):
    arn = fake.register("s", "c").arn.partition("/consumer")[0]
    with pytest.raises(errors.ResourceInUseError):
        await fake.kinesis("s").control_plane.register_consumer(arn, "c")
    with pytest.raises(errors.ResourceNotFoundError) as caught:
        await fake.kinesis("none").control_plane.describe_stream()
    assert caught.value.status == 400
    with pytest.raises(errors.ResourceNotFoundError):
        await fake.kinesis("s").control_plane.describe_consumer(arn, "other")


async def test_connections_are_closed_when_the_fake_ends(http2_client, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("s")
        kinesis = fake.kinesis("s")
        client = http2_client(await kinesis.connect())
        assert (await (await client.call("ListStreams", {})).json())["StreamNames"] == ["s"]
    with pytest.raises((EOFError, trio.BrokenResourceError)):
        await client.pump()
    with pytest.raises(errors.TransportError, match="not running"):
        await kinesis.connect()


async def test_an_exception_of_the_body_is_raised_without_a_group():
    async def fail():
        async with FakeKinesis() as fake:
            fake.create_stream("s")
            await fake.kinesis("s").connect()
            raise KeyError("raised by the test")

    with pytest.raises(KeyError):
        await fail()


async def test_a_serving_fake_can_be_cancelled(autojump_clock):
    with trio.move_on_after(1) as scope:
        async with FakeKinesis() as fake, fake.serve(tls=False):
            await trio.sleep_forever()
    assert scope.cancelled_caught
