"""The producer through each surface: the same results, errors, back-pressure, flush and close."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager

import pytest

import efo
import efo.aio
import efo.sync
from efo.testing import FakeKinesis, FakeSettings
from tests.arguments import arguments_of
from tests.efo.adapters.programs import use_virtual_time
from tests.efo.adapters.virtual_time import run_in_virtual_time

STREAM = "orders"


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch):
    use_virtual_time(monkeypatch)


class World:
    """A fake, and what it has stored when it was closed."""

    def __init__(self, shards=2, distribution=None):
        self.shards = shards
        self.distribution = distribution
        self.stored = {}

    @asynccontextmanager
    async def stream(self):
        async with FakeKinesis(settings=FakeSettings()) as fake:
            fake.create_stream(STREAM, shards=self.shards, distribution=self.distribution)
            try:
                yield fake.kinesis(STREAM)
            finally:
                for records in fake.records(STREAM).values():
                    for record in records:
                        self.stored.setdefault(record.partition_key, []).append(record.data)


# Each surface runs a generator-like script: a list of steps, each a function of the producer that may be awaited.


def trio_door(world, script, **options):
    async def main():
        async with world.stream() as kinesis, efo.open_producer(kinesis, **options) as producer:
            return await script(producer, settle_on_trio)

    results = []

    async def kept():
        results.append(await main())

    run_in_virtual_time(kept)
    return results[0]


async def settle_on_trio(value):
    return await value if inspect.isawaitable(value) else value


def aio_door(world, script, **options):
    async def main():
        async with efo.aio.open_producer(world.stream(), **options) as producer:
            return await script(producer, settle_on_trio)

    return asyncio.run(main())


def sync_door(world, script, **options):
    async def settle(value):
        return value.result(60) if isinstance(value, efo.sync.Delivery) else value

    with efo.sync.open_producer(world.stream(), **options) as producer:
        coroutine = script(producer, settle)  # nothing in it waits, so it runs to its end at once
        try:
            coroutine.send(None)
        except StopIteration as ended:
            return ended.value
    raise AssertionError("the script waited")


SURFACES = {"trio": trio_door, "asyncio": aio_door, "sync": sync_door}


@pytest.fixture(params=SURFACES.values(), ids=SURFACES)
def surface(request):
    return request.param


def test_each_record_has_a_result_and_those_of_a_key_are_in_order(surface):
    world = World()

    async def script(producer, settle):
        deliveries = [await settle(producer.put(b"%d" % n, f"key-{n % 3}")) for n in range(30)]
        return [await settle(delivery) for delivery in deliveries]

    results = surface(world, script)
    assert len({(result.shard_id, result.sequence_number, result.sub_sequence_number) for result in results}) == 30
    assert all(result.attempts == 1 for result in results)
    assert world.stored == {f"key-{key}": [b"%d" % n for n in range(key, 30, 3)] for key in range(3)}


def test_put_many_and_a_flush(surface):
    world = World()

    async def script(producer, settle):
        deliveries = await settle(producer.put_many([efo.ProducerRecord(b"%d" % n, "key") for n in range(9)]))
        await settle(producer.flush())
        return producer.buffered_records, producer.buffered_bytes, producer.stream, [one.is_done for one in deliveries]

    assert surface(world, script) == (0, 0, STREAM, [True] * 9)
    assert world.stored == {"key": [b"%d" % n for n in range(9)]}


def test_the_block_ends_when_all_is_stored(surface):
    world = World()

    async def script(producer, settle):
        await settle(producer.put("text", "key"))

    surface(world, script, serializer=str.encode)
    assert world.stored == {"key": [b"text"]}


def test_a_wrong_record_is_refused_at_the_call(surface):
    async def script(producer, settle):
        refused = []
        for arguments in ((b"data", ""), ("text", "key"), (b"x" * 2**21, "key"), (b"data", "key", "none")):
            with pytest.raises(efo.errors.ConfigurationError) as caught:
                await settle(producer.put(*arguments))
            refused.append(str(caught.value).split()[0])
        return refused

    assert surface(World(), script) == ["partition_key", "data", "the", "explicit_hash_key:"]


def test_a_stream_with_the_distribution_auto_needs_no_partition_key(surface):
    world = World(distribution="AUTO")

    async def script(producer, settle):
        single = [await settle(producer.put(b"%d" % n)) for n in range(10)]
        many = await settle(producer.put_many([efo.ProducerRecord(b"%d" % n) for n in range(10, 20)]))
        await settle(producer.put(b"20", "key"))
        return producer.is_auto, {(await settle(delivery)).shard_id for delivery in [*single, *many]}

    is_auto, shards = surface(world, script)
    assert is_auto
    assert len(shards) == 2
    assert sorted(world.stored[None]) == sorted(b"%d" % n for n in range(20))
    assert world.stored["key"] == [b"20"]


def test_other_streams_need_one(surface):
    async def script(producer, settle):
        assert not producer.is_auto
        with pytest.raises(efo.errors.ConfigurationError, match="partition_key is missing"):
            await settle(producer.put(b"data"))
        with pytest.raises(efo.errors.ConfigurationError, match="partition_key is missing"):
            await settle(producer.put_many([efo.ProducerRecord(b"data")]))

    world = World()
    surface(world, script)
    assert world.stored == {}


def test_a_closed_producer_takes_no_more(surface):
    world = World()

    async def script(producer, settle):
        await settle(producer.put(b"1", "key"))
        producer.close()
        with pytest.raises(efo.errors.ProducerClosedError):
            await settle(producer.put(b"2", "key"))

    surface(world, script)
    assert world.stored == {"key": [b"1"]}


def test_a_put_waits_while_the_buffer_is_full(surface):
    world = World(shards=1)

    async def script(producer, settle):
        most = 0
        for n in range(50):
            await settle(producer.put(bytes(1000), f"key-{n}"))
            most = max(most, producer.buffered_bytes)
        return most

    assert surface(world, script, settings=efo.ProducerSettings(max_buffered_bytes=5_000)) <= 5_000
    assert len(world.stored) == 50


def test_an_error_of_the_block_counts_and_what_was_put_is_sent(surface):
    world = World()

    async def script(producer, settle):
        await settle(producer.put(b"1", "key"))
        raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        surface(world, script)
    assert world.stored == {"key": [b"1"]}


@pytest.mark.parametrize("surface", [efo.aio, efo.sync], ids=["aio", "sync"])
def test_the_arguments_are_those_of_efo(surface):
    assert arguments_of(efo.open_producer) == arguments_of(surface.open_producer)


def test_a_cancelled_put_on_asyncio_was_not_taken():
    world = World(shards=1)

    async def main():
        settings = efo.ProducerSettings(max_buffered_bytes=2_000, linger_seconds=60.0)
        async with efo.aio.open_producer(world.stream(), settings=settings) as producer:
            await producer.put(bytes(1000), "key-0")
            put = asyncio.create_task(producer.put(bytes(1000), "key-1"))  # the buffer is full
            await asyncio.sleep(0)
            put.cancel()
            with pytest.raises(asyncio.CancelledError):
                await put

    asyncio.run(main())
    assert list(world.stored) == ["key-0"]


def test_a_result_may_be_waited_for_only_so_long():
    with efo.sync.open_producer(World().stream(), settings=efo.ProducerSettings(linger_seconds=60.0)) as producer:
        delivery = producer.put(b"1", "key")
        with pytest.raises(TimeoutError):
            delivery.result(0)
        assert delivery.result(60).attempts == 1
