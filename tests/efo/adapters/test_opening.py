"""Many streams behind the surfaces: added, removed and read together. What holds for each: test_conformance.py."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
import trio

import efo
import efo.aio
import efo.sync
from efo.testing import FakeKinesis
from tests.arguments import arguments_of
from tests.efo.adapters.programs import use_virtual_time


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch):
    use_virtual_time(monkeypatch)


class Streams:
    """A fake of streams with one shard each, of the same id."""

    def __init__(self, records=3):
        self.records = records
        self.stores = {}

    def clients(self, *names):
        """Return the streams as `efo.open_kinesis` would: the first one to be opened starts the fake."""
        fake = FakeKinesis()

        @asynccontextmanager
        async def client(name):
            if name == names[0]:
                async with fake:
                    for each in names:
                        fake.create_stream(each, shards=1)
                        fake.put_many(each, [("key", f"{each} {n}".encode()) for n in range(self.records)])
                    yield fake.kinesis(name)
            else:
                yield fake.kinesis(name)

        return [client(name) for name in names]

    def options(self, **more):
        return {
            "application": "app",
            "leases": lambda stream: self.stores.setdefault(stream, efo.leases.MemoryLeaseStore()),
            "worker_id": "worker",
            "settings": efo.ConsumerSettings(lease_scan_seconds=1.0),
            "observer": lambda _stream: efo.events.ignore_events,
            **more,
        }

    def expected(self, *names):
        return [f"{name} {n}" for name in names for n in range(self.records)]

    def acked(self):
        """Return the names of the streams that are acked and released."""
        found = set()
        for name, store in self.stores.items():
            (lease,) = trio.run(store.list)
            if lease.owner is None and not lease.checkpoint.is_sentinel:
                found.add(name)
        return found


def texts(batch):
    found = [record.data.decode() for record in batch]
    assert all(text.startswith(batch.stream) for text in found)
    return found


def test_an_iteration_has_the_batches_of_all_streams_and_acks_each_in_its_own():
    streams, got = Streams(), []
    with efo.sync.open_streams(streams.clients("orders", "clicks"), **streams.options()) as consumer:
        for batch in consumer:
            got += texts(batch)
            consumer.ack(batch)
            if len(got) == 6:
                consumer.drain()
    assert sorted(got) == sorted(streams.expected("orders", "clicks"))
    assert streams.acked() == {"orders", "clicks"}


def test_so_has_one_on_asyncio():
    streams, got = Streams(), []

    async def main():
        async with efo.aio.open_streams(streams.clients("orders", "clicks"), **streams.options()) as consumer:
            async for batch in consumer:
                got.extend(texts(batch))
                consumer.ack(batch)
                if len(got) == 6:
                    consumer.drain()

    asyncio.run(main())
    assert sorted(got) == sorted(streams.expected("orders", "clicks"))
    assert streams.acked() == {"orders", "clicks"}


def test_streams_are_removed_and_added_by_name_while_others_are_read():
    streams, got = Streams(), []
    with efo.sync.open_streams(streams.clients("orders", "clicks"), **streams.options()) as consumer:
        consumer.remove("clicks")
        assert consumer.streams == ("orders",)
        for batch in consumer:
            got += texts(batch)
            consumer.ack(batch)
            if len(got) == 3:
                assert consumer.status()["orders"].state == "reading"
                with pytest.raises(efo.errors.ConfigurationError, match="is not read now"):
                    consumer.consumer("clicks")
                consumer.add("clicks")
            if len(got) == 6:
                consumer.update(["clicks"])
                assert consumer.streams == ("clicks",)
                consumer.drain()
    assert got == streams.expected("orders", "clicks")


def test_consume_streams_of_synchronous_code():
    streams, got = Streams(), []

    def handle(batch):
        got.extend(texts(batch))
        if len(got) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        efo.sync.consume_streams(streams.clients("orders", "clicks"), handle, **streams.options())
    assert sorted(got) == sorted(streams.expected("orders", "clicks"))


def test_consume_streams_on_asyncio():
    streams, got = Streams(), []

    async def main():
        async def handle(batch):
            got.extend(texts(batch))
            if len(got) == 6:
                task.cancel()

        consuming = efo.aio.consume_streams(streams.clients("orders", "clicks"), handle, **streams.options())
        task = asyncio.create_task(consuming)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert sorted(got) == sorted(streams.expected("orders", "clicks"))


async def nothing(_batch):
    pass


def test_a_tracker_is_called_on_asyncio_and_what_it_raises_is_raised():
    called_in = []

    async def track():
        await asyncio.sleep(0)
        called_in.append(threading.current_thread())
        raise LookupError("no list")

    with pytest.raises(LookupError, match="no list"):
        asyncio.run(efo.aio.consume_streams(track, nothing, **Streams().options()))
    assert called_in == [threading.main_thread()]


def test_a_plain_tracker_may_block_and_what_it_raises_is_raised():
    called_in = []

    def track():
        called_in.append(threading.current_thread())
        raise LookupError("no list")

    with pytest.raises(LookupError, match="no list"):
        efo.sync.consume_streams(track, print, **Streams().options())
    assert called_in[0].name != "efo"
    with pytest.raises(efo.errors.ConfigurationError, match="is async: write `def`"):
        efo.sync.consume_streams(nothing, print, **Streams().options())


def test_a_tracker_of_one_name_is_refused():
    def track():
        return "orders"

    with (
        pytest.raises(efo.errors.ConfigurationError, match="streams='orders': expected several"),
        efo.sync.open_streams(track, **Streams().options()) as consumer,
    ):
        next(iter(consumer))


def test_what_cannot_be_a_stream_is_refused():
    with pytest.raises(efo.errors.ConfigurationError, match="expected several"):
        efo.sync.consume_streams("orders", print, application="app")
    streams = Streams()
    with efo.sync.open_streams(streams.clients("orders"), **streams.options()) as consumer:
        with pytest.raises(efo.errors.ConfigurationError, match="pass the stream's name"):
            consumer.add(streams.clients("clicks")[0])
        for wrong in (None, 3):
            with pytest.raises(efo.errors.ConfigurationError, match="expected a name"):
                consumer.add(wrong)
        with pytest.raises(efo.errors.ConfigurationError, match="expected several"):
            consumer.update("clicks")
        with pytest.raises(efo.errors.ConfigurationError, match="is not read"):
            consumer.remove("clicks")


@pytest.mark.parametrize("surface", [efo.aio, efo.sync], ids=["aio", "sync"])
def test_the_arguments_are_those_of_efo(surface):
    assert arguments_of(efo.open_streams) == arguments_of(surface.open_streams)
    assert arguments_of(efo.consume_streams) - {"task_status"} == arguments_of(surface.consume_streams) - {"threads"}
