"""`efo.aio` as an application on asyncio uses it."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

import efo
import efo.aio
from efo.testing import FakeKinesis
from tests.arguments import arguments_of
from tests.efo.adapters.programs import World, use_virtual_time

REQUEST = contextvars.ContextVar("request", default="none")


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch):
    use_virtual_time(monkeypatch)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    if request.param == "asyncio":
        return asyncio.run
    return pytest.importorskip("uvloop").run


def world_of(count, shards=1):
    world = World(shards)
    world.put(*range(count))
    return world


def test_a_cancelled_consume_has_cancelled_its_handlers_and_released_its_leases(run):
    world, ended, started = world_of(5), [], asyncio.Event()

    async def handle(_batch):
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    async def main():
        task = asyncio.create_task(efo.aio.consume(world.stream(), handle, **world.options()))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    run(main())
    (lease,) = world.leases().values()
    assert (lease.owner, lease.checkpoint) == (None, efo.Checkpoint.TRIM_HORIZON)


def test_a_cancelled_iteration_loses_no_batch(run):
    world, got = world_of(0), []

    async def main():
        async with efo.aio.open_consumer(world.stream(), **world.options()) as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(aiter(consumer)), 0.2)
            world.put(*range(5))
            await asyncio.sleep(0.1)  # the batch arrives while nobody waits
            async for batch in consumer:
                got.extend(batch.records)
                consumer.ack(batch)
                if len(got) == 5:
                    break

    run(main())
    assert len(got) == 5
    (lease,) = world.leases().values()
    assert not lease.checkpoint.is_sentinel


def test_several_consumers_share_a_loop(run):
    one, two = world_of(5), world_of(7)

    async def count(world, expected):
        found = 0
        async with efo.aio.open_consumer(world.stream(), **world.options()) as consumer:
            async for batch in consumer:
                found += len(batch)
                consumer.ack(batch)
                if found == expected:
                    consumer.drain()
        return found

    async def main():
        return await asyncio.gather(count(one, 5), count(two, 7))

    assert run(main()) == [5, 7]


def test_the_handler_has_the_context_of_the_application():
    world, seen = world_of(1), []

    async def main():
        async def handle(_batch):
            seen.append(REQUEST.get())
            consumer.drain()

        REQUEST.set("of the application")
        async with efo.aio.open_consumer(world.stream(), **world.options()) as consumer:
            await consumer.run(efo.aio.Handler(handle))

    asyncio.run(main())
    assert seen == ["of the application"]


def test_a_dead_letter_sink_runs_on_asyncio():
    world, letters = world_of(3), []

    async def refuse(record, _batch):
        if record.data == b"1":
            raise ValueError("poison")

    async def main(policy_of):
        async def store(letter):
            await asyncio.sleep(0)
            letters.append(int(letter.record.data))
            consumer.drain()

        on_error = policy_of(efo.FailurePolicy(then="dead_letter", dead_letter=store))
        async with efo.aio.open_consumer(world.stream(), **world.options()) as consumer:
            await consumer.run(efo.aio.Handler(record_handler=refuse, on_error=on_error))

    asyncio.run(main(lambda policy: policy))
    world.store = efo.leases.MemoryLeaseStore()
    asyncio.run(main(lambda policy: lambda _error: policy))
    assert letters == [1, 1]


def test_an_error_of_the_consumer_is_raised_where_the_shard_is_read():
    """The fake refuses the stream: nothing hangs."""

    async def main():
        fake = FakeKinesis()
        async with efo.aio.open_consumer(opened(fake), application="app", leases=efo.leases.MemoryLeaseStore()):
            raise AssertionError("the stream does not exist")

    with pytest.raises(efo.errors.ResourceNotFoundError, match="gone"):
        asyncio.run(main())


def opened(fake):
    from contextlib import asynccontextmanager  # noqa: PLC0415

    @asynccontextmanager
    async def stream():
        async with fake:
            yield fake.kinesis("gone")

    return stream()


def test_a_task_of_a_handler_that_the_application_cancels_stops_everything():
    world = world_of(1)

    async def handle(_batch):
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    async def main():
        await efo.aio.consume(world.stream(), handle, on_error=efo.FailurePolicy(then="skip"), **world.options())

    with pytest.raises(efo.errors.HandlerError, match="cancelled a call"):
        asyncio.run(main())
    (lease,) = world.leases().values()
    assert lease.checkpoint.is_sentinel


def test_acks_of_something_else_are_refused():
    world, errors = world_of(2), []

    def refuse(call, *arguments):
        with pytest.raises(efo.errors.ConfigurationError) as caught:
            call(*arguments)
        errors.append(str(caught.value))

    async def main():
        async def read(shard):
            async for batch in shard:
                refuse(shard.ack, efo.Batch(batch.stream, "shardId-other", batch.records, None, 0, 0))
                refuse(shard.ack, efo.Batch(batch.stream, batch.shard_id, batch.records, None, 0, 99))
                refuse(shard.ack, "batch")
                refuse(shard.ack_record, batch, efo.Record("1", 1.0, b"", "k"))
                refuse(shard.ack_through, batch, 2)
                shard.ack_records(batch, [0, 1])
                consumer.drain()

        async with efo.aio.open_consumer(world.stream(), **world.options()) as consumer:
            await consumer.run(read)

    asyncio.run(main())
    assert len(errors) == 5
    (lease,) = world.leases().values()
    assert not lease.checkpoint.is_sentinel


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (lambda _shard: None, "not an async function"),
        (efo.aio.ShardStream, "is a class"),
        (None, "expected an async function of"),
    ],
)
def test_a_reader_that_is_none_is_refused_at_the_call(reader, message):
    async def main():
        world = world_of(0)
        async with efo.aio.open_consumer(world.stream(), **world.options()) as consumer:
            with pytest.raises(efo.errors.ConfigurationError, match=message):
                await consumer.run(reader)

    asyncio.run(main())


def test_an_open_client_is_refused():
    async def main():
        async with FakeKinesis() as fake:
            fake.create_stream("orders")
            return fake.kinesis("orders")

    import trio  # noqa: PLC0415

    client = trio.run(main)

    async def open_it():
        async with efo.aio.open_consumer(client, application="app"):
            pass

    with pytest.raises(efo.errors.ConfigurationError, match="without `async with`"):
        asyncio.run(open_it())


def test_a_closed_consumer_refuses_to_run():
    async def main():
        world = world_of(0)
        async with efo.aio.open_consumer(world.stream(), **world.options()) as consumer:
            pass
        assert consumer.status().failure is None  # what ended it can be looked at
        with pytest.raises(efo.errors.EfoError, match="closed"):
            await consumer.run(efo.aio.Handler(record_handler=nothing))
        consumer.drain()  # no effect

    asyncio.run(main())


async def nothing(_record, _batch):
    pass


@pytest.mark.parametrize("surface", [efo.aio, efo.sync], ids=["aio", "sync"])
def test_the_arguments_are_those_of_efo(surface):
    assert arguments_of(efo.open_consumer) == arguments_of(surface.open_consumer)
    assert arguments_of(efo.consume) - {"task_status"} == arguments_of(surface.consume) - {"threads"}
    assert arguments_of(efo.Handler) == arguments_of(surface.Handler) - {"threads"}


def test_a_stale_ack_does_not_reach_a_later_reading_of_the_shard():
    world = world_of(4)

    async def main():
        async with efo.aio.open_consumer(world.stream(), **world.options()) as consumer:
            first = await anext(consumer)
        world.puts = [("other", b"%d" % n) for n in range(10, 13)]
        async with efo.aio.open_consumer(world.stream(), **world.options()) as consumer:
            await anext(consumer)
            consumer.ack(first)

    asyncio.run(main())
    (lease,) = world.leases().values()
    assert lease.checkpoint.is_sentinel


def test_consume_reads_until_it_is_cancelled():
    world, got = world_of(30, shards=3), []

    async def main():
        async def bill(record, _batch):
            got.append(int(record.data))
            if len(got) == 30:
                task.cancel()

        consuming = efo.aio.consume(world.stream(), record_handler=bill, key_concurrency=4, **world.options())
        task = asyncio.create_task(consuming)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert sorted(got) == list(range(30))
