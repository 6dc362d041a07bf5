"""Opening a consumer behind the asyncio surface, and `efo.aio.consume`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

from efo.adapters.opening import Stream, consumer_engine
from efo.aio.consumer import Consumer
from efo.aio.handler import Handler
from efo.aio.loop_side import LoopSide
from efo.aio.session import open_engine
from efo.consumer.handlers.handler import BatchHandler, Flush, RecordHandler
from efo.consumer.opening import OpenOptions
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
