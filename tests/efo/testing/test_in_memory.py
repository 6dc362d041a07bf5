"""The stream in memory for tests of applications: what is put into it, by whom ever, is there for the next reader."""

from __future__ import annotations

import asyncio

import pytest
import trio

import efo
import efo.aio
import efo.sync
from efo.errors import ConfigurationError
from efo.testing import InMemoryStream, virtual_time
from efo.testing.errors import FakeError


def data(stream: InMemoryStream) -> list[bytes]:
    return [record.data for record in stream.records()]


async def consume(stream: InMemoryStream, seconds: float = 30) -> list[bytes]:
    """Consume for some seconds, then drain; return what was read."""
    got: list[bytes] = []

    async def handle(batch: efo.Batch) -> None:
        got.extend(record.data for record in batch)

    async with (
        stream.open() as kinesis,
        efo.open_consumer(kinesis, application="app", leases=stream.leases) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, efo.Handler(handle))
        await trio.sleep(seconds)
        consumer.drain()
    return got


async def test_what_a_producer_put_is_there_for_the_test_and_for_the_next_consumers(autojump_clock):
    stream = InMemoryStream(shards=2)
    stream.put("a", b"1")
    async with stream.open() as kinesis, efo.open_producer(kinesis) as producer:
        await (await producer.put(b"2", "a"))
        assert data(stream) == [b"1", b"2"]
    stream.put("a", b"3")
    assert data(stream) == [b"1", b"2", b"3"]
    assert await consume(stream) == [b"1", b"2", b"3"]
    async with stream.open() as kinesis, efo.open_producer(kinesis) as producer:
        await producer.put(b"4", "a")
    assert await consume(stream) == [b"4"]
    assert stream.processed() == data(stream) == [b"1", b"2", b"3", b"4"]


async def test_the_user_records_of_aggregates_are_shown(autojump_clock):
    stream = InMemoryStream()
    settings = efo.ProducerSettings(aggregate=True)
    async with stream.open() as kinesis, efo.open_producer(kinesis, settings=settings) as producer:
        for number in range(3):
            await producer.put(b"%d" % number, f"key-{number}", explicit_hash_key=str(number))
    assert [(record.partition_key, record.explicit_hash_key, record.data) for record in stream.records()] == [
        ("key-0", "0", b"0"),
        ("key-1", "1", b"1"),
        ("key-2", "2", b"2"),
    ]
    assert len({record.sequence_number for record in stream.records()}) == 1


async def test_a_consumer_and_a_producer_share_the_client(autojump_clock):
    stream, got = InMemoryStream(), []
    async with (
        stream.open() as kinesis,
        efo.open_producer(kinesis) as producer,
        efo.open_consumer(kinesis, application="app", leases=stream.leases) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def handle(batch: efo.Batch) -> None:
            got.extend(record.data for record in batch)
            if len(got) == 3:
                consumer.drain()
            else:
                await producer.put(b"%d" % len(got), "a")

        nursery.start_soon(consumer.run, efo.Handler(handle))
        await producer.put(b"0", "a")
    assert got == data(stream) == [b"0", b"1", b"2"]


async def test_splits_outlive_a_consumer(autojump_clock):
    stream = InMemoryStream()
    stream.put("a", b"1")
    stream.split(*stream.open_shards())
    stream.put("a", b"2")
    assert await consume(stream) == [b"1", b"2"]
    stream.merge(*stream.open_shards())
    stream.put("a", b"3")
    assert await consume(stream) == [b"3"]


def test_the_surfaces_of_asyncio_and_of_synchronous_code_see_the_same_stream():
    async def put(stream: InMemoryStream) -> None:
        async with efo.aio.open_producer(stream.open()) as producer:
            await producer.put(b"1", "a")

    stream = InMemoryStream()
    with virtual_time():
        asyncio.run(put(stream))
        with efo.sync.open_producer(stream.open()) as producer:
            producer.put(b"2", "a")
        assert data(stream) == [b"1", b"2"]
        got = []
        with efo.sync.open_consumer(stream.open(), application="app", leases=stream.leases) as consumer:
            for record, _ in consumer.records():
                got.append(record.data)
                if len(got) == 2:
                    consumer.drain()
    assert got == [b"1", b"2"]


async def test_a_stream_without_partition_keys_and_with_them_again(autojump_clock):
    stream = InMemoryStream(shards=2, distribution="AUTO")
    stream.put(None, b"1", b"2")
    async with stream.open() as kinesis, efo.open_producer(kinesis) as producer:
        await (await producer.put(b"3")).wait()
    stream.distribute("USER_PARTITION_KEY")
    stream.put("a", b"4")
    with pytest.raises(FakeError, match="partitionKey"):
        stream.put(None, b"5")
    assert sorted(await consume(stream)) == [b"1", b"2", b"3", b"4"]
    assert {record.data: record.partition_key for record in stream.records()} == {
        b"1": None,
        b"2": None,
        b"3": None,
        b"4": "a",
    }


async def test_it_is_open_once_at_a_time(autojump_clock):
    stream = InMemoryStream()
    async with stream.open():
        with pytest.raises(ConfigurationError, match="'orders' is open already: close its consumer or producer first"):
            async with stream.open():
                raise AssertionError
    async with stream.open():
        assert data(stream) == []


# --- run until everything is processed -----------------------------------------------------------------------------


def numbered(stream, count=20):
    for number in range(count):
        stream.put(str(number), b"%d" % number)


async def test_process_all_ends_when_all_records_are_checkpointed_also_those_of_children(autojump_clock):
    stream, got = InMemoryStream(shards=2), []
    numbered(stream)
    stream.split(stream.open_shards()[0])
    numbered(stream)

    async def handle(batch):
        got.extend(record.data for record in batch)

    await stream.process_all(efo.Handler(handle))
    assert len(got) == 40
    assert stream.unprocessed() == []
    await stream.process_all(efo.Handler(handle))  # nothing is left
    assert len(got) == 40


async def test_process_all_raises_what_the_handler_raises_and_tells_what_is_left(autojump_clock):
    stream = InMemoryStream()
    numbered(stream, 3)

    async def fail(_batch):
        raise OSError("made up")

    async def hold(_batch):
        return efo.HOLD

    with pytest.raises(OSError, match="made up"):
        await stream.process_all(efo.Handler(fail))
    with pytest.raises(AssertionError, match="3 records are not processed within 60 s"):
        await stream.process_all(efo.Handler(hold), within=60)


def test_process_all_on_asyncio_and_in_synchronous_code(efo_in_memory):
    got = []
    numbered(efo_in_memory)

    async def handle(batch):
        await asyncio.sleep(0)
        got.extend(record.data for record in batch)

    asyncio.run(efo_in_memory.process_all_on_asyncio(efo.aio.Handler(handle)))
    assert len(got) == 20
    numbered(efo_in_memory)
    efo_in_memory.process_all_sync(efo.sync.Handler(lambda batch: got.extend(record.data for record in batch)))
    assert len(got) == 40

    def fail(_batch):
        raise OSError("made up")

    numbered(efo_in_memory)
    with pytest.raises(OSError, match="made up"):
        efo_in_memory.process_all_sync(efo.sync.Handler(fail))
