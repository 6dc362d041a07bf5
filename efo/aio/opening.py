"""Opening consumers behind the asyncio surface: `efo.aio.consume`, and the same of many streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Unpack

from efo.adapters.calls import outside
from efo.adapters.opening import Clients, Stream, StreamLike, consumer_engine, streams_engine
from efo.aio.consumer import Consumer, MultiStreamConsumer
from efo.aio.handler import Handler
from efo.aio.loop_side import LoopSide, open_engine
from efo.checks import check_async
from efo.consumer.handlers.handler import BatchHandler, Flush, RecordHandler
from efo.consumer.opening import OpenOptions
from efo.consumer.streams.opening import StreamsOptions
from efo.event_loops import require_asyncio
from efo.protocol.failure import OnError


@asynccontextmanager
async def open_consumer(stream: Stream, **options: Unpack[OpenOptions]) -> AsyncIterator[Consumer]:
    """Open a consumer for asyncio: `efo.open_consumer`, with the same arguments.

    `stream`: the stream's name or ARN, or `efo.open_kinesis(...)` as it was returned, not entered. The consumer runs in
    a thread of its own; observers and `start_at` are called there. Leaving the context drains the consumer, waits for
    its runs and releases the leases; leaving it by an exception or a cancellation cancels them. Raises EfoError.
    """
    require_asyncio("efo.aio.open_consumer")
    side = LoopSide()
    engine = consumer_engine(stream, options, side)
    async with open_engine(engine):
        yield Consumer(engine, side)


async def consume(
    stream: Stream,
    handler: BatchHandler | None = None,
    *,
    record_handler: RecordHandler | None = None,
    on_error: OnError | None = None,
    flush: Flush | None = None,
    key_concurrency: int = 1,
    **options: Unpack[OpenOptions],
) -> None:
    """Read a stream by enhanced fan-out and call a handler on asyncio with each batch, until cancelled or done.

    It is `efo.consume` for asyncio, with the same arguments. To drain it, or to pause and seek, use `open_consumer` and
    `consumer.run(efo.aio.Handler(handle))`. Raises EfoError, and what the handler raises.
    """
    require_asyncio("efo.aio.consume")
    reader = Handler(
        handler,
        record_handler=record_handler,
        on_error=on_error,
        flush=flush,
        key_concurrency=key_concurrency,
    )
    async with open_consumer(stream, **options) as consumer:
        await consumer.run(reader)


StreamTracker = Callable[[], Awaitable[Iterable[StreamLike]]]
"""Returns the streams to read from now on, on asyncio (KCL: MultiStreamTracker)."""


@asynccontextmanager
async def open_streams(
    streams: Iterable[StreamLike] | StreamTracker, **options: Unpack[StreamsOptions]
) -> AsyncIterator[MultiStreamConsumer]:
    """Open a consumer of many streams for asyncio: `efo.open_streams`, with the same arguments.

    `streams`: names, ARNs, StreamConfigs of them, or `efo.open_kinesis(...)` as it was returned, not entered; or an
    async function that returns names, ARNs and StreamConfigs, called every `refresh_interval` seconds. The consumer
    runs in a thread of its own; observers, `start_at` and a function that is `leases` are called there.
    Leaving the context drains the consumer; an exception or a cancellation cancels it. Raises EfoError.
    """
    require_asyncio("efo.aio.open_streams")
    side, clients = LoopSide(), Clients()
    if callable(streams):
        check_async(streams, "streams")
        streams = outside(streams)
    engine = streams_engine(streams, options, side, clients)
    async with open_engine(engine):
        yield MultiStreamConsumer(engine, side, clients)


async def consume_streams(
    streams: Iterable[StreamLike] | StreamTracker,
    handler: BatchHandler | None = None,
    *,
    record_handler: RecordHandler | None = None,
    on_error: OnError | None = None,
    flush: Flush | None = None,
    key_concurrency: int = 1,
    **options: Unpack[StreamsOptions],
) -> None:
    """Read many streams and call a handler on asyncio with each batch, until cancelled or done.

    `batch.stream` is the stream's name. It is `efo.consume_streams` for asyncio, with the same arguments. To add and
    remove streams, use `open_streams`. Raises EfoError, and what the handler and a tracker raise.
    """
    require_asyncio("efo.aio.consume_streams")
    reader = Handler(
        handler,
        record_handler=record_handler,
        on_error=on_error,
        flush=flush,
        key_concurrency=key_concurrency,
    )
    async with open_streams(streams, **options) as consumer:
        await consumer.run(reader)
