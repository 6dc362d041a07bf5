"""Opens consumers and producers for the surfaces: engines whose thread is not started yet; of many streams too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from efo.adapters.calls import ApplicationSide
from efo.adapters.consumer import StreamConsumer
from efo.adapters.engine import Engine
from efo.adapters.merge import Merge
from efo.checks import shown
from efo.consumer.consumer import Consumer
from efo.consumer.opening import OpenOptions, open_consumer
from efo.consumer.streams.config import StreamConfig, StreamLike as TrioStreamLike, StreamTracker, stream_config
from efo.consumer.streams.consumer import MultiStreamConsumer, StreamStatus
from efo.consumer.streams.opening import StreamsOptions, open_streams
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


StreamLike = str | StreamConfig | AbstractAsyncContextManager[KinesisClient]
"""A stream: its name or ARN; a StreamConfig of one of them; or what `efo.open_kinesis` returned, which the surface
opens in its trio thread."""


class Clients:
    """The clients that were opened for the surface, by the names of their streams. A name that is added finds them."""

    def __init__(self) -> None:
        self._clients: dict[str, KinesisClient] = {}

    async def open(self, streams: Iterable[StreamLike], stack: AsyncExitStack) -> list[TrioStreamLike]:
        """Open what is to be opened, until the stack is left; return all streams for `efo.open_streams`."""
        found: list[TrioStreamLike] = []
        for stream in streams:
            if isinstance(stream, AbstractAsyncContextManager):
                client = await stack.enter_async_context(stream)
                self._clients[client.stream] = client
                found.append(client)
            else:
                found.append(stream)
        return found

    def find(self, stream: object) -> StreamConfig:
        """Return a stream that is named while the consumer is open. Raises ConfigurationError."""
        if isinstance(stream, AbstractAsyncContextManager):
            raise ConfigurationError(
                f"stream {shown(stream)}: only a consumer that is being opened opens a client: pass the stream's name"
            )
        check_streams([stream])
        config = stream_config(stream)  # type: ignore[arg-type] # it refuses what is none
        client = self._clients.get(config.name)
        return config if client is None or config.stream != config.name else replace(config, stream=client)


def check_streams(streams: Iterable[object]) -> None:
    """Refuse open clients. Raises ConfigurationError."""
    for stream in streams:
        check_stream(stream.stream if isinstance(stream, StreamConfig) else stream)


def streams_engine(
    streams: Iterable[StreamLike] | Callable[[], Awaitable[Iterable[StreamLike]]],
    options: StreamsOptions,
    side: ApplicationSide,
    clients: Clients,
) -> Engine[MultiStreamConsumer]:
    """Return an engine of a consumer of many streams. `streams`: if it is a function, one for trio.

    Raises ConfigurationError.
    """
    if not callable(streams):
        streams = _several(streams)
        check_streams(streams)
    return Engine(_open(streams, options, clients), side, MultiStreamConsumer.drain)


@asynccontextmanager
async def _open(
    streams: list[StreamLike] | Callable[[], Awaitable[Iterable[StreamLike]]], options: StreamsOptions, clients: Clients
) -> AsyncIterator[MultiStreamConsumer]:
    async with AsyncExitStack() as stack:
        if callable(streams):
            opening = open_streams(_tracker(streams, clients), **options)
        else:
            opening = open_streams(await clients.open(streams, stack), **options)
        yield await stack.enter_async_context(opening)


def _tracker(track: Callable[[], Awaitable[Iterable[StreamLike]]], clients: Clients) -> StreamTracker:
    async def tracker() -> Iterable[StreamConfig]:
        return [clients.find(stream) for stream in _several(await track())]

    return tracker


class AdaptedStreams:
    """The streams of a consumer of many, in a trio thread. Its methods may be called in any thread.

    They do what those of `efo.MultiStreamConsumer` do.
    """

    _engine: Engine[MultiStreamConsumer]
    _merge: Merge
    _clients: Clients

    @property
    def failure(self) -> str | None:
        """What ended the consumer, and where; None unless an error did. It may be read after the end."""
        return self._engine.value.failure

    def add(self, stream: str | StreamConfig) -> None:
        """Read a stream too, from now on: see `efo.MultiStreamConsumer.add`. Raises ConfigurationError.

        A name of a client that the consumer was opened with is that client's stream.
        """
        self._engine.side.call(self._engine.value.add, self._clients.find(stream))

    def remove(self, stream: str) -> None:
        """Read a stream no more: its shards finish what they hold, and its leases are released.

        `stream`: its name. Raises ConfigurationError if it is not read.
        """
        self._engine.side.call(self._engine.value.remove, stream)

    def update(self, streams: Iterable[str | StreamConfig]) -> None:
        """Read exactly these streams from now on. Those that stay as they are go on. Raises ConfigurationError."""
        if isinstance(streams, str | bytes):
            raise ConfigurationError(f"streams={shown(streams)}: expected several, such as ['orders', 'clicks']")
        found = [self._clients.find(stream) for stream in streams]
        self._engine.side.call(self._engine.value.update, found)

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams that are to be read."""
        return self._engine.side.call(lambda: self._engine.value.streams)

    def consumer(self, stream: str) -> StreamConsumer:
        """Return the consumer of one stream, to pause, seek and release its shards.

        It is another one after the stream was opened again. Raises ConfigurationError if the stream is not read now.
        """
        found = self._engine.side.call(self._engine.value.consumer, stream)
        return StreamConsumer(self._engine.side, self._merge, found)

    def caught_up(self) -> bool:
        """Return whether all records of all streams that had arrived are acked: see `efo.Consumer.caught_up`."""
        return self._engine.side.call_or_closed(self._engine.value.caught_up)

    def status(self) -> Mapping[str, StreamStatus]:
        """Return the state of each stream by name, those that are being left included."""
        return self._engine.side.call_or_closed(self._engine.value.status)


def _several(streams: object) -> list[StreamLike]:
    """Return streams as a list. Raises ConfigurationError for what is none, such as a single name."""
    if isinstance(streams, str | bytes) or not isinstance(streams, Iterable):
        raise ConfigurationError(f"streams={shown(streams)}: expected several, such as ['orders', 'clicks']")
    return [*streams]
