"""One program in the style of each surface. Each reads a stream until it is drained, and does the same with each batch.

A program calls the plain function `on_batch(consumer, batch)`, and acks the batch if that returns True. It raises what
the consumer raises. The consumer and the fake run in virtual time, over memory streams. `consume` gives no consumer to
its handler on asyncio and in synchronous code: there the program takes the one that it opens.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import trio

import efo
import efo.aio
import efo.aio.opening
import efo.sync
import efo.sync.opening
from efo import events
from efo.adapters import engine
from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.faults.script import FaultScript
from tests.efo.adapters.virtual_time import run_in_virtual_time

STREAM = "orders"

_E = TypeVar("_E")
OnBatch = Callable[[Any, efo.Batch], bool]
Program = Callable[..., None]
"""Reads the stream of a world: `program(world, on_batch, on_error=None, **options)`."""


class World:
    """A fake with its records, the lease store, and what was reported, for several programs one after the other."""

    def __init__(self, shards: int = 2, **settings: Any) -> None:
        self.shards = shards
        self.settings = FakeSettings(**settings)
        self.puts: list[tuple[str, bytes]] = []
        self.store = efo.leases.MemoryLeaseStore()
        self.seen: list[events.Event] = []
        self.seen_at: list[float] = []
        self.before: list[Callable[[FakeKinesis], object]] = []
        self.beside: list[Callable[[FakeKinesis], Awaitable[object]]] = []
        self.faults: FaultScript | None = None
        self.on_drop: Callable[[], object] = lambda: None
        self._elapsed = 0.0
        self._token: Any = None
        self._fake: Any = None

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[efo.KinesisClient]:
        """Run the fake; it has the same records and shards each time, and what is beside the program."""
        self._token = trio.lowlevel.current_trio_token()
        self._elapsed, started = 0.0, trio.current_time()

        def clock() -> float:
            return self.settings.epoch + trio.current_time() - started + self._elapsed

        fake = FakeKinesis(settings=self.settings, faults=self.faults, clock=clock)
        with collapse_groups():
            async with fake, trio.open_nursery() as nursery:
                self._fake = fake
                fake.create_stream(STREAM, shards=self.shards)
                fake.put_many(STREAM, self.puts)
                for prepare in self.before:
                    prepare(fake)
                for run in self.beside:
                    nursery.start_soon(run, fake)
                try:
                    yield fake.kinesis(STREAM)
                finally:
                    self._fake = None
                    nursery.cancel_scope.cancel()

    def put(self, *data: object, keys: int = 7) -> None:
        """Put records, now or when the fake starts. The key of a record is made of its data."""
        new = [(f"key-{hash_of(one) % keys}", str(one).encode()) for one in data]
        self.puts += new
        if self._fake is not None:
            self.call(lambda fake: fake.put_many(STREAM, new))

    def _observe(self, event: events.Event) -> None:
        self.seen.append(event)
        self.seen_at.append(trio.current_time())
        if isinstance(event, events.RecordsDropped):
            self.on_drop()

    def age(self, seconds: float, *data: object) -> None:
        """Let the records that were put be so old when the fake starts; these are put then, and are new."""

        def pass_time(fake: FakeKinesis) -> None:
            self._elapsed += seconds
            fake.put_many(STREAM, [(f"key-{hash_of(one)}", str(one).encode()) for one in data])

        self.before.append(pass_time)

    def put_later(self, seconds: float, *data: object) -> None:
        """Put records so long after the start of the fake."""

        async def put(_fake: FakeKinesis) -> None:
            await trio.sleep(seconds)
            self.put(*data)

        self.beside.append(put)

    def call(self, function: Callable[[FakeKinesis], Any]) -> Any:
        """Call a function with the fake, from any thread."""
        if trio.lowlevel.in_trio_run():
            return function(self._fake)
        return trio.from_thread.run_sync(function, self._fake, trio_token=self._token)

    def events(self, kind: type[_E]) -> list[_E]:
        """Return what was reported of this kind."""
        return [event for event in self.seen if isinstance(event, kind)]

    def open_shards(self) -> list[str]:
        return self.call(lambda fake: list(fake.open_shards(STREAM)))

    def set_checkpoint(self, checkpoint: efo.Checkpoint) -> None:
        """Let the leases be at this checkpoint."""

        async def write() -> None:
            for lease in await self.store.list():
                await self.store.delete(lease.key)
                await self.store.create(dataclasses.replace(lease, checkpoint=checkpoint))

        trio.run(write)

    def leases(self) -> dict[str, efo.leases.Lease]:
        found: list[efo.leases.Lease] = []

        async def read() -> None:
            found.extend(await self.store.list())

        trio.run(read)
        return {lease.key: lease for lease in found}

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the arguments of `open_consumer`."""
        return {
            "application": "app",
            "leases": self.store,
            "settings": efo.ConsumerSettings(lease_scan_seconds=1.0),
            "worker_id": "worker",
            "observer": self._observe,
            **more,
        }

    def options_of(self, *, many: bool, **more: Any) -> dict[str, Any]:
        """Return the arguments of `open_streams` or `open_consumer`."""
        if not many:
            return self.options(**more)
        per_stream = {"leases": lambda _stream: self.store, "observer": lambda _stream: self._observe}
        return self.options(**{**per_stream, **more})


class OneOfMany:
    """A consumer of many streams that looks as one of its only stream. `many`: that consumer."""

    def __init__(self, many: Any) -> None:
        self.many = many

    def __getattr__(self, name: str) -> Any:
        of_many = {"drain", "run", "ack", "ack_record", "records", "caught_up"}
        return getattr(self.many if name in of_many else self.many.consumer(STREAM), name)


def hash_of(data: object) -> int:
    return sum(str(data).encode())


def result(is_done: bool) -> efo.HandlerResult | None:  # noqa: FBT001 - what on_batch returned
    """Return what a handler returns: a batch that is not done is held."""
    return None if is_done else efo.HOLD


# --- what each form does with a batch -------------------------------------------------------------------------------


def trio_handler(consumer: Any, on_batch: OnBatch) -> Any:
    async def handle(batch: efo.Batch) -> efo.HandlerResult | None:
        await trio.lowlevel.checkpoint()
        return result(on_batch(consumer(), batch))

    return handle


def aio_handler(consumer: Any, on_batch: OnBatch) -> Any:
    async def handle(batch: efo.Batch) -> efo.HandlerResult | None:
        await asyncio.sleep(0)
        return result(on_batch(consumer(), batch))

    return handle


def sync_handler(consumer: Any, on_batch: OnBatch) -> Any:
    return lambda batch: result(on_batch(consumer(), batch))


def wrapped(form: str, handler: Any) -> Any:
    """Return a handler; in the form "batched", one that gets several events at once, or a part of one."""
    return efo.batched(handler, records=3, seconds=0.1) if form == "batched" else handler


def async_reader(consumer: Any, on_batch: OnBatch) -> Any:
    async def read(shard: Any) -> None:
        async for batch in shard:
            if on_batch(consumer(), batch):
                shard.ack(batch)

    return read


def async_processor(consumer: Any, on_batch: OnBatch, pause: Callable[[], Any]) -> type:
    class Processor(efo.RecordProcessor):
        async def process_records(self, batch: efo.Batch, checkpointer: efo.Checkpointer) -> None:
            await pause()
            if on_batch(consumer(), batch):
                checkpointer.checkpoint()

        async def shutdown_requested(self, checkpointer: efo.Checkpointer) -> None:
            """Checkpoint nothing more."""

    return Processor


def sync_processor(consumer: Any, on_batch: OnBatch) -> type:
    class Processor(efo.sync.RecordProcessor):
        def process_records(self, batch: efo.Batch, checkpointer: efo.Checkpointer) -> None:
            if on_batch(consumer(), batch):
                checkpointer.checkpoint()

        def shutdown_requested(self, checkpointer: efo.Checkpointer) -> None:
            """Checkpoint nothing more."""

    return Processor


async def aio_iteration(consumer: Any, iterated: Any, on_batch: OnBatch) -> None:
    async for batch in iterated:
        if on_batch(consumer, batch):
            consumer.ack(batch)


def sync_iteration(consumer: Any, iterated: Any, on_batch: OnBatch) -> None:
    for batch in iterated:
        if on_batch(consumer, batch):
            consumer.ack(batch)


def sync_records(consumer: Any, _iterated: Any, on_batch: OnBatch) -> None:
    for record, batch in consumer.records():
        if record is batch.records[-1] and on_batch(consumer, batch):
            for one in batch:
                consumer.ack_record(batch, one)


# --- the programs -----------------------------------------------------------------------------------------------------


def on_trio(form: str, many: bool) -> Program:  # noqa: FBT001 - whether it reads many streams
    """Return a program on trio."""

    def program(world: World, on_batch: OnBatch, *, on_error: Any = None, **options: Any) -> None:
        async def main() -> None:
            with collapse_groups():  # of the fake
                async with world.stream() as kinesis:
                    await (consume if form == "consume" else read)(kinesis)

        async def consume(kinesis: efo.KinesisClient) -> None:
            handler = trio_handler(lambda: opened[0], on_batch)
            call = efo.consume_streams if many else efo.consume
            stream = [kinesis] if many else kinesis
            arguments = {"on_error": on_error, **world.options_of(many=many, **options)}
            opened: list[Any] = []
            async with trio.open_nursery() as nursery:
                started = await nursery.start(functools.partial(call, stream, handler, **arguments))
                opened.append(OneOfMany(started) if many else started)

        async def read(kinesis: efo.KinesisClient) -> None:
            opening = efo.open_streams if many else efo.open_consumer
            async with opening([kinesis] if many else kinesis, **world.options_of(many=many, **options)) as consumer:
                seen = OneOfMany(consumer) if many else consumer
                match form:
                    case "handler" | "batched":
                        reader: Any = efo.Handler(
                            wrapped(form, trio_handler(lambda: seen, on_batch)), on_error=on_error
                        )
                    case "shards":
                        reader = async_reader(lambda: seen, on_batch)
                    case _:
                        kind = async_processor(lambda: seen, on_batch, trio.lowlevel.checkpoint)
                        reader = efo.ProcessorReader(kind, on_error=on_error)
                await consumer.run(reader)

        run_in_virtual_time(main)

    program.reads_many = many  # type: ignore[attr-defined]
    return program


def on_asyncio(form: str, many: bool) -> Program:  # noqa: FBT001 - whether it reads many streams
    """Return a program on asyncio."""

    def program(world: World, on_batch: OnBatch, *, on_error: Any = None, **options: Any) -> None:
        arguments = world.options_of(many=many, **options)
        stream: Any = [world.stream()] if many else world.stream()

        async def consume() -> None:
            module, name = (efo.aio.opening, "open_streams") if many else (efo.aio.opening, "open_consumer")
            call = efo.aio.consume_streams if many else efo.aio.consume
            with tapped(module, name, asynchronous=True) as opened:
                handler = aio_handler(lambda: OneOfMany(opened[0]) if many else opened[0], on_batch)
                await call(stream, handler, on_error=on_error, **arguments)

        async def read() -> None:
            opening = efo.aio.open_streams if many else efo.aio.open_consumer
            async with opening(stream, **arguments) as consumer:
                seen: Any = OneOfMany(consumer) if many else consumer
                match form:
                    case "iteration":
                        await aio_iteration(seen, consumer, on_batch)
                        return
                    case "handler" | "batched":
                        handler = wrapped(form, aio_handler(lambda: seen, on_batch))
                        reader: Any = efo.aio.Handler(handler, on_error=on_error)
                    case "shards":
                        reader = async_reader(lambda: seen, on_batch)
                    case _:
                        kind = async_processor(lambda: seen, on_batch, lambda: asyncio.sleep(0))
                        reader = efo.aio.ProcessorReader(kind, on_error=on_error)
                await consumer.run(reader)

        asyncio.run(consume() if form == "consume" else read())

    program.reads_many = many  # type: ignore[attr-defined]
    return program


def synchronous(form: str, many: bool) -> Program:  # noqa: FBT001 - whether it reads many streams
    """Return a program in synchronous code."""

    def program(world: World, on_batch: OnBatch, *, on_error: Any = None, **options: Any) -> None:
        arguments = world.options_of(many=many, **options)
        stream: Any = [world.stream()] if many else world.stream()
        if form == "consume":
            module, name = (efo.sync.opening, "open_streams") if many else (efo.sync.opening, "open_consumer")
            call: Any = efo.sync.consume_streams if many else efo.sync.consume
            with tapped(module, name, asynchronous=False) as opened:
                handler = sync_handler(lambda: OneOfMany(opened[0]) if many else opened[0], on_batch)
                call(stream, handler, on_error=on_error, **arguments)
            return
        opening: Any = efo.sync.open_streams if many else efo.sync.open_consumer
        with opening(stream, **arguments) as consumer:
            seen: Any = OneOfMany(consumer) if many else consumer
            match form:
                case "iteration":
                    sync_iteration(seen, consumer, on_batch)
                case "records":
                    sync_records(seen, consumer, on_batch)
                case "processor":
                    consumer.run(efo.sync.ProcessorReader(sync_processor(lambda: seen, on_batch), on_error=on_error))
                case _:
                    threads = 1 if form == "threads" else 0
                    handler = wrapped(form, sync_handler(lambda: seen, on_batch))
                    consumer.run(efo.sync.Handler(handler, on_error=on_error, threads=threads))

    program.reads_many = many  # type: ignore[attr-defined]
    return program


@contextmanager
def tapped(module: Any, name: str, *, asynchronous: bool) -> Iterator[list[Any]]:
    """Collect the consumers that this function of the module opens."""
    opened: list[Any] = []
    original = getattr(module, name)

    @asynccontextmanager
    async def open_async(*args: Any, **options: Any) -> AsyncIterator[Any]:
        async with original(*args, **options) as consumer:
            opened.append(consumer)
            yield consumer

    @contextmanager
    def open_sync(*args: Any, **options: Any) -> Iterator[Any]:
        with original(*args, **options) as consumer:
            opened.append(consumer)
            yield consumer

    with patch.object(module, name, open_async if asynchronous else open_sync):
        yield opened


_FORMS = {
    "trio": (on_trio, ("consume", "handler", "batched", "shards", "processor")),
    "asyncio": (on_asyncio, ("consume", "handler", "batched", "shards", "iteration", "processor")),
    "sync": (synchronous, ("consume", "handler", "batched", "threads", "iteration", "records", "processor")),
}
PROGRAMS: dict[str, Program] = {
    f"{surface}{' streams' if many else ''} {form}": make(form, many)
    for many in (False, True)
    for surface, (make, forms) in _FORMS.items()
    for form in forms
}
"""Each form in which a program may be written, by its name."""
WITH_POLICY = {
    name: program
    for name, program in PROGRAMS.items()
    if name.split()[-1] in {"consume", "handler", "batched", "threads", "processor"}
}
"""Those that have a failure policy."""
SOME = {name: program for name, program in PROGRAMS.items() if "streams" not in name or name.split()[-1] == "handler"}
"""Those that every run of the tests tries; `make forms` tries all."""


def use_virtual_time(monkeypatch: Any) -> None:
    """Let the surfaces run trio in virtual time."""
    monkeypatch.setattr(engine, "run_trio", run_in_virtual_time)
