"""One program in the style of each door. Each reads a stream until it is drained, and does the same with each batch.

A program calls the plain function `on_batch(consumer, batch)`, and acks the batch if that returns True. It raises what
the consumer raises. The consumer and the fake run in virtual time, over memory streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

import efo
import efo.aio
import efo.sync
from efo import events
from efo.doors import engine
from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings

STREAM = "orders"
PATIENCE = 0.01
"""Seconds without anything to do before the clock jumps: the application's thread may be about to answer."""

OnBatch = Callable[[Any, efo.Batch], bool]


def run_in_virtual_time(main: Callable[[], Any]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=PATIENCE))


class World:
    """A fake with its records, the lease store, and what was reported, for several programs one after the other."""

    def __init__(self, shards: int = 2, **settings: Any) -> None:
        self.shards = shards
        self.settings = FakeSettings(**settings)
        self.puts: list[tuple[str, bytes]] = []
        self.store = efo.MemoryLeaseStore()
        self.seen: list[events.Event] = []
        self._token: Any = None
        self._fake: Any = None

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[efo.KinesisClient]:
        """Run the fake; it has the same records and shards each time."""
        self._token = trio.lowlevel.current_trio_token()
        async with FakeKinesis(settings=self.settings) as self._fake:
            self._fake.create_stream(STREAM, shards=self.shards)
            self._fake.put_many(STREAM, self.puts)
            yield self._fake.kinesis(STREAM)

    def put(self, *data: object, keys: int = 7) -> None:
        """Put records, now or when the fake starts. The key of a record is made of its data."""
        new = [(f"key-{hash_of(one) % keys}", str(one).encode()) for one in data]
        self.puts += new
        if self._fake is not None:
            self.call(lambda fake: fake.put_many(STREAM, new))

    def call(self, function: Callable[[FakeKinesis], Any]) -> Any:
        """Call a function with the fake, from any thread."""
        if trio.lowlevel.in_trio_run():
            return function(self._fake)
        return trio.from_thread.run_sync(function, self._fake, trio_token=self._token)

    def open_shards(self) -> list[str]:
        return self.call(lambda fake: list(fake.open_shards(STREAM)))

    def leases(self) -> dict[str, efo.Lease]:
        found: list[efo.Lease] = []

        async def read() -> None:
            found.extend(await self.store.list())

        trio.run(read)
        return {lease.key: lease for lease in found}

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the arguments of `open_consumer`."""
        settings = efo.ConsumerSettings(lease_scan_interval=1.0)
        return {
            "application": "app",
            "leases": self.store,
            "settings": settings,
            "worker_id": "worker",
            "observer": self.seen.append,
            **more,
        }

    def streams_options(self, **more: Any) -> dict[str, Any]:
        """Return the arguments of `open_streams`."""
        per_stream = {"leases": lambda _stream: self.store, "observer": lambda _stream: self.seen.append}
        return self.options(**per_stream, **more)


class OneOfMany:
    """A consumer of many streams that looks as one of its only stream. `many`: that consumer."""

    def __init__(self, many: Any) -> None:
        self.many = many

    def __getattr__(self, name: str) -> Any:
        return getattr(self.many if name in {"drain", "run", "ack"} else self.many.consumer(STREAM), name)


def hash_of(data: object) -> int:
    return sum(str(data).encode())


def result(is_done: bool) -> efo.HandlerResult | None:  # noqa: FBT001 - what on_batch returned
    """Return what a handler returns: a batch that is not done is held."""
    return None if is_done else efo.HOLD


def as_it_is(handler: Any) -> Any:
    """Return a handler without a wrapper."""
    return handler


def batched(handler: Any) -> Any:
    """Return a handler that gets several events at once, or a part of one."""
    return efo.batched(handler, records=3, seconds=0.1)


# --- trio ------------------------------------------------------------------------------------------------------------


def on_trio(read: Callable[..., Any]) -> Callable[..., None]:
    """Return a program of a function (consumer, on_batch, policy), which runs on trio."""

    def program(world: World, on_batch: OnBatch, *, on_error: Any = None, **options: Any) -> None:
        async def main() -> None:
            with collapse_groups():  # of the fake
                async with (
                    world.stream() as kinesis,
                    efo.open_consumer(kinesis, **world.options(**options)) as consumer,
                ):
                    await read(consumer, on_batch, on_error)

        run_in_virtual_time(main)

    return program


def trio_handler(wrap: Callable[[Any], Any]) -> Callable[..., None]:
    @on_trio
    async def program(consumer: efo.Consumer, on_batch: OnBatch, on_error: Any) -> None:
        async def handle(batch: efo.Batch) -> efo.HandlerResult | None:
            await trio.lowlevel.checkpoint()
            return result(on_batch(consumer, batch))

        await consumer.run(efo.Handler(wrap(handle), on_error=on_error))

    return program


@on_trio
async def trio_shards(consumer: efo.Consumer, on_batch: OnBatch, _on_error: Any) -> None:
    async def read(shard: efo.ShardStream) -> None:
        async for batch in shard:
            if on_batch(consumer, batch):
                shard.ack(batch)

    await consumer.run(read)


@on_trio
async def trio_processor(consumer: efo.Consumer, on_batch: OnBatch, on_error: Any) -> None:
    class Processor(efo.RecordProcessor):
        async def process_records(self, batch: efo.Batch, checkpointer: efo.Checkpointer) -> None:
            await trio.lowlevel.checkpoint()
            if on_batch(consumer, batch):
                checkpointer.checkpoint()

        async def shutdown_requested(self, checkpointer: efo.Checkpointer) -> None:
            """Checkpoint nothing more."""

    await consumer.run(efo.ProcessorReader(Processor, on_error=on_error))


# --- asyncio ---------------------------------------------------------------------------------------------------------


def on_asyncio(read: Callable[..., Any]) -> Callable[..., None]:
    def program(world: World, on_batch: OnBatch, *, on_error: Any = None, **options: Any) -> None:
        async def main() -> None:
            async with efo.aio.open_consumer(world.stream(), **world.options(**options)) as consumer:
                await read(consumer, on_batch, on_error)

        asyncio.run(main())

    return program


def aio_handler(wrap: Callable[[Any], Any]) -> Callable[..., None]:
    @on_asyncio
    async def program(consumer: efo.aio.Consumer, on_batch: OnBatch, on_error: Any) -> None:
        async def handle(batch: efo.Batch) -> efo.HandlerResult | None:
            await asyncio.sleep(0)
            return result(on_batch(consumer, batch))

        await consumer.run(efo.aio.Handler(wrap(handle), on_error=on_error))

    return program


@on_asyncio
async def aio_shards(consumer: efo.aio.Consumer, on_batch: OnBatch, _on_error: Any) -> None:
    async def read(shard: efo.aio.ShardStream) -> None:
        async for batch in shard:
            if on_batch(consumer, batch):
                shard.ack(batch)

    await consumer.run(read)


@on_asyncio
async def aio_iteration(consumer: efo.aio.Consumer, on_batch: OnBatch, _on_error: Any) -> None:
    async for batch in consumer:
        if on_batch(consumer, batch):
            consumer.ack(batch)


@on_asyncio
async def aio_processor(consumer: efo.aio.Consumer, on_batch: OnBatch, on_error: Any) -> None:
    class Processor(efo.aio.RecordProcessor):
        async def process_records(self, batch: efo.Batch, checkpointer: efo.Checkpointer) -> None:
            await asyncio.sleep(0)
            if on_batch(consumer, batch):
                checkpointer.checkpoint()

        async def shutdown_requested(self, checkpointer: efo.Checkpointer) -> None:
            """Checkpoint nothing more."""

    await consumer.run(efo.aio.ProcessorReader(Processor, on_error=on_error))


def on_asyncio_of_many(read: Callable[..., Any]) -> Callable[..., None]:
    def program(world: World, on_batch: OnBatch, *, on_error: Any = None, **options: Any) -> None:
        async def main() -> None:
            opening = efo.aio.open_streams([world.stream()], **world.streams_options(**options))
            async with opening as consumer:
                await read(OneOfMany(consumer), on_batch, on_error)

        asyncio.run(main())

    return program


@on_asyncio_of_many
async def aio_streams_handler(consumer: Any, on_batch: OnBatch, on_error: Any) -> None:
    async def handle(batch: efo.Batch) -> efo.HandlerResult | None:
        await asyncio.sleep(0)
        return result(on_batch(consumer, batch))

    await consumer.run(efo.aio.Handler(handle, on_error=on_error))


@on_asyncio_of_many
async def aio_streams_iteration(consumer: Any, on_batch: OnBatch, _on_error: Any) -> None:
    async for batch in consumer.many:
        if on_batch(consumer, batch):
            consumer.ack(batch)


# --- synchronous code ------------------------------------------------------------------------------------------------


def synchronous(read: Callable[..., Any]) -> Callable[..., None]:
    def program(world: World, on_batch: OnBatch, *, on_error: Any = None, **options: Any) -> None:
        with efo.sync.open_consumer(world.stream(), **world.options(**options)) as consumer:
            read(consumer, on_batch, on_error)

    return program


def sync_handler(wrap: Callable[[Any], Any], threads: int = 0) -> Callable[..., None]:
    @synchronous
    def program(consumer: efo.sync.Consumer, on_batch: OnBatch, on_error: Any) -> None:
        handle = wrap(lambda batch: result(on_batch(consumer, batch)))
        consumer.run(efo.sync.Handler(handle, on_error=on_error, threads=threads))

    return program


@synchronous
def sync_iteration(consumer: efo.sync.Consumer, on_batch: OnBatch, _on_error: Any) -> None:
    for batch in consumer:
        if on_batch(consumer, batch):
            consumer.ack(batch)


@synchronous
def sync_processor(consumer: efo.sync.Consumer, on_batch: OnBatch, on_error: Any) -> None:
    class Processor(efo.sync.RecordProcessor):
        def process_records(self, batch: efo.Batch, checkpointer: efo.Checkpointer) -> None:
            if on_batch(consumer, batch):
                checkpointer.checkpoint()

        def shutdown_requested(self, checkpointer: efo.Checkpointer) -> None:
            """Checkpoint nothing more."""

    consumer.run(efo.sync.ProcessorReader(Processor, on_error=on_error))


def synchronous_of_many(read: Callable[..., Any]) -> Callable[..., None]:
    def program(world: World, on_batch: OnBatch, *, on_error: Any = None, **options: Any) -> None:
        with efo.sync.open_streams([world.stream()], **world.streams_options(**options)) as consumer:
            read(OneOfMany(consumer), on_batch, on_error)

    return program


@synchronous_of_many
def sync_streams_handler(consumer: Any, on_batch: OnBatch, on_error: Any) -> None:
    consumer.run(efo.sync.Handler(lambda batch: result(on_batch(consumer, batch)), on_error=on_error))


@synchronous_of_many
def sync_streams_iteration(consumer: Any, on_batch: OnBatch, _on_error: Any) -> None:
    for batch in consumer.many:
        if on_batch(consumer, batch):
            consumer.ack(batch)


PROGRAMS: dict[str, Callable[..., None]] = {
    "trio handler": trio_handler(as_it_is),
    "trio batched": trio_handler(batched),
    "trio shards": trio_shards,
    "trio processor": trio_processor,
    "asyncio handler": aio_handler(as_it_is),
    "asyncio batched": aio_handler(batched),
    "asyncio shards": aio_shards,
    "asyncio iteration": aio_iteration,
    "asyncio processor": aio_processor,
    "sync handler": sync_handler(as_it_is),
    "sync batched": sync_handler(batched),
    "sync threads": sync_handler(as_it_is, threads=1),
    "sync iteration": sync_iteration,
    "sync processor": sync_processor,
    "asyncio streams handler": aio_streams_handler,
    "asyncio streams iteration": aio_streams_iteration,
    "sync streams handler": sync_streams_handler,
    "sync streams iteration": sync_streams_iteration,
}
WITH_POLICY = {
    name: program for name, program in PROGRAMS.items() if name.split()[-1] in {"handler", "batched", "processor"}
}


def use_virtual_time(monkeypatch: Any) -> None:
    """Let the doors run trio in virtual time."""
    monkeypatch.setattr(engine, "run_trio", run_in_virtual_time)
