"""Opening consumers behind the synchronous surface: `efo.sync.consume`, and the same of many streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Unpack

from efo.adapters.opening import Clients, Stream, StreamLike, consumer_engine, streams_engine
from efo.checks import check_callable, is_async, name_of
from efo.consumer.handlers.batched import in_thread
from efo.consumer.opening import OpenOptions
from efo.consumer.streams.opening import StreamsOptions
from efo.errors import ConfigurationError
from efo.protocol.failure import OnError
from efo.sync.caller_side import CallerSide, open_engine
from efo.sync.consumer import Consumer, MultiStreamConsumer
from efo.sync.handler import BatchHandler, Flush, Handler, RecordHandler


@contextmanager
def open_consumer(stream: Stream, **options: Unpack[OpenOptions]) -> Iterator[Consumer]:
    """Open a consumer for synchronous code: `efo.open_consumer`, with the same arguments.

    `stream`: the stream's name or ARN, or `efo.open_kinesis(...)` as it was returned, not entered. The consumer runs in
    a thread of its own, also where an event loop runs already, as in a Jupyter cell. Observers and `start_at` are
    called in it. Leaving the context drains the consumer and releases the leases; an exception cancels it. A batch that
    is not acked by then is delivered again. Raises EfoError.
    """
    side = CallerSide()
    engine = consumer_engine(stream, options, side)
    with open_engine(engine):
        yield Consumer(engine, side)


def consume(
    stream: Stream,
    handler: BatchHandler | None = None,
    *,
    record_handler: RecordHandler | None = None,
    on_error: OnError | None = None,
    flush: Flush | None = None,
    key_concurrency: int = 1,
    threads: int = 0,
    **options: Unpack[OpenOptions],
) -> None:
    """Read a stream by enhanced fan-out and call a plain handler with each batch, until Ctrl-C or done.

    It is `efo.consume` for synchronous code, with the same arguments, and `threads`: see `Handler`. To drain it, or to
    pause and seek, use `open_consumer` and `consumer.run(efo.sync.Handler(handle))`. Raises EfoError, and what the
    handler raises.
    """
    reader = Handler(
        handler,
        record_handler=record_handler,
        on_error=on_error,
        flush=flush,
        key_concurrency=key_concurrency,
        threads=threads,
    )
    with open_consumer(stream, **options) as consumer:
        consumer.run(reader)


StreamTracker = Callable[[], Iterable[StreamLike]]
"""Returns the streams to read from now on (KCL: MultiStreamTracker)."""


@contextmanager
def open_streams(
    streams: Iterable[StreamLike] | StreamTracker, **options: Unpack[StreamsOptions]
) -> Iterator[MultiStreamConsumer]:
    """Open a consumer of many streams for synchronous code: `efo.open_streams`, with the same arguments.

    `streams`: names, ARNs, StreamConfigs of them, or `efo.open_kinesis(...)` as it was returned, not entered. Or a
    function that returns names, ARNs and StreamConfigs, which is called every `refresh_interval` seconds. The consumer
    runs in a thread of its own; observers, `start_at` and a function that is `leases` are called there.
    A function that is `streams` is called in a thread of its own, so that it may block. Leaving the context drains the
    consumer; an exception cancels it. Raises EfoError.
    """
    side, clients = CallerSide(), Clients()
    engine = streams_engine(_tracker(streams) if callable(streams) else streams, options, side, clients)
    with open_engine(engine):
        yield MultiStreamConsumer(engine, side, clients)


def _tracker(track: StreamTracker) -> Callable[[], Any]:
    if is_async(track):
        raise ConfigurationError(
            f"streams {name_of(track)} is async: write `def` for efo.sync, or use efo.aio on asyncio, efo on trio"
        )
    check_callable("streams", track, "a function without parameters that returns streams")
    return in_thread(track)


def consume_streams(
    streams: Iterable[StreamLike] | StreamTracker,
    handler: BatchHandler | None = None,
    *,
    record_handler: RecordHandler | None = None,
    on_error: OnError | None = None,
    flush: Flush | None = None,
    key_concurrency: int = 1,
    threads: int = 0,
    **options: Unpack[StreamsOptions],
) -> None:
    """Read many streams and call a plain handler with each batch, until Ctrl-C or done. `batch.stream` is its stream.

    It is `efo.consume_streams` for synchronous code, with the same arguments, and `threads`: see `Handler`; they are
    those of all streams. To add and remove streams, use `open_streams`. Raises EfoError, and what the handler and a
    tracker raise.
    """
    reader = Handler(
        handler,
        record_handler=record_handler,
        on_error=on_error,
        flush=flush,
        key_concurrency=key_concurrency,
        threads=threads,
    )
    with open_streams(streams, **options) as consumer:
        consumer.run(reader)
