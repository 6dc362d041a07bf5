"""Opens consumers and producers for the surfaces: engines whose thread is not started yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from efo.adapters.calls import ApplicationSide
from efo.adapters.engine import Engine
from efo.checks import shown
from efo.consumer.consumer import Consumer
from efo.consumer.opening import OpenOptions, open_consumer
from efo.errors import ConfigurationError
from efo.kinesis.client import KinesisClient
from efo.producer.opening import ProducerOptions, open_producer
from efo.producer.producer import Producer

Stream = str | AbstractAsyncContextManager[KinesisClient]
"""The name or the ARN of a stream; or what `efo.open_kinesis` returned, which the surface opens in its trio thread."""


def consumer_engine(stream: Stream, options: OpenOptions, side: ApplicationSide) -> Engine[Consumer]:
    """Return an engine of a consumer. Raises ConfigurationError."""
    check_stream(stream)
    return Engine(_open_consumer(stream, options), side, Consumer.drain)


def producer_engine(stream: Stream, options: ProducerOptions, side: ApplicationSide) -> Engine[Producer[Any]]:
    """Return an engine of a producer. Raises ConfigurationError."""
    check_stream(stream)
    return Engine(_open_producer(stream, options), side, Producer.close, lambda producer: producer.buffered_records)


def check_stream(stream: object) -> None:
    """Refuse an open client. Raises ConfigurationError."""
    if isinstance(stream, KinesisClient):
        raise ConfigurationError(
            f"stream={shown(stream)}: an open client belongs to the trio run that opened it: pass the stream's name, "
            "or efo.open_kinesis(...) without `async with`"
        )


@asynccontextmanager
async def _open_consumer(stream: Stream, options: OpenOptions) -> AsyncIterator[Consumer]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(stream) if isinstance(stream, AbstractAsyncContextManager) else stream
        yield await stack.enter_async_context(open_consumer(client, **options))


@asynccontextmanager
async def _open_producer(stream: Stream, options: ProducerOptions) -> AsyncIterator[Producer[Any]]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(stream) if isinstance(stream, AbstractAsyncContextManager) else stream
        yield await stack.enter_async_context(open_producer(client, **options))
