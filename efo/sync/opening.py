"""Opening a consumer behind the synchronous surface, and `efo.sync.consume`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Unpack

from efo.adapters.opening import Stream, consumer_engine
from efo.consumer.opening import OpenOptions
from efo.protocol.failure import OnError
from efo.sync.caller_side import CallerSide
from efo.sync.consumer import Consumer
from efo.sync.handler import BatchHandler, Flush, Handler, RecordHandler
from efo.sync.session import open_engine


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
