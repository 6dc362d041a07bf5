"""Opening a consumer of many streams behind the synchronous surface, and `efo.sync.consume_streams`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Unpack

from efo.adapters.streams import Clients, StreamLike, streams_engine
from efo.checks import check_callable, is_async, name_of
from efo.consumer.handlers.in_thread import in_thread
from efo.consumer.streams.opening import StreamsOptions
from efo.errors import ConfigurationError
from efo.protocol.failure import OnError
from efo.sync.caller_side import CallerSide
from efo.sync.consumer import MultiStreamConsumer
from efo.sync.handler import BatchHandler, Flush, Handler, RecordHandler
from efo.sync.session import open_engine

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
