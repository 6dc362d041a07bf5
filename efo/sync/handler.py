"""A handler with its failure policy, for synchronous code."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import trio

from efo.adapters.calls import outside
from efo.checks import check_callable, check_count, is_async, name_of
from efo.consumer.handlers.batched import with_handler
from efo.consumer.handlers.exactly_once import ExactlyOnce, PositionMove
from efo.consumer.handlers.failure_handler import HandlerResult
from efo.consumer.handlers.handler import Handler as TrioHandler
from efo.consumer.handlers.in_thread import in_thread
from efo.errors import ConfigurationError
from efo.events import Observer
from efo.model import Batch, Record
from efo.protocol.failure import OnError
from efo.sync.deserialize import RecordValues, ValueHandler

BatchHandler = Callable[[Batch], HandlerResult | None]
"""Processes a batch of user records. When it returns, the batch is acked, unless it returns HOLD."""
RecordHandler = Callable[[Record, Batch], HandlerResult | None]
"""Processes one record of a batch. When it returns, the record is acked, unless it returns HOLD."""
Flush = Callable[[str], None]
"""Stores what the handler holds of the shard with this id (see `efo.HOLD`)."""


class Handler(TrioHandler):
    """Reads a shard by calling a plain handler: `consumer.run(Handler(handle))`.

    The arguments are those of `efo.Handler`. `handler`, `record_handler` and `flush` are plain functions, which may
    block. They are called in the thread that called `run`, one after the other. `threads`: with more than 0, so many
    threads call them instead, for several shards or keys at once. A dead-letter sink is made of a plain function by
    `efo.in_thread`, a handler of values by `efo.sync.deserialize`. `on_error` and `observer` are called in efo's own
    thread.
    """

    surface = "efo.sync"

    def __init__(
        self,
        handler: BatchHandler | None = None,
        *,
        record_handler: RecordHandler | None = None,
        on_error: OnError | None = None,
        flush: Flush | None = None,
        key_concurrency: int = 1,
        threads: int = 0,
        observer: Observer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        call = _caller(threads)
        super().__init__(
            with_handler(handler, lambda function: _moved(call, "handler", function, *self._batch_parameters)),
            record_handler=cast("Any", _moved(call, "record_handler", record_handler, "record", "batch")),
            on_error=on_error,
            flush=cast("Any", _moved(call, "flush", flush, "shard_id")),
            key_concurrency=key_concurrency,
            observer=observer,
            rng=rng,
        )


class ExactlyOnceHandler(ExactlyOnce, Handler):
    """Reads shards into a database that keeps their positions, in synchronous code: see `efo.ExactlyOnceHandler`.

    `handler` and `load_position` are plain functions, which may block, and are called in the thread that called `run`.
    `threads`: as for `Handler`.
    """

    def __init__(
        self,
        handler: Callable[[Batch, PositionMove], None],
        load_position: Callable[[str, str], str | None],
        *,
        on_error: OnError | None = None,
        threads: int = 0,
        observer: Observer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        Handler.__init__(self, handler, on_error=on_error, threads=threads, observer=observer, rng=rng)  # type: ignore[arg-type] # _batch_parameters
        self._load = cast("Any", _moved(_caller(threads), "load_position", load_position, "stream", "shard_id"))


Move = Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]


def _caller(threads: int) -> Move:
    if threads == 0:
        return outside
    check_count("threads", threads, unit=", or 0 for the calling thread")
    limiter = trio.CapacityLimiter(threads)
    return lambda function: in_thread(function, limiter=limiter)


def _moved(
    call: Move, name: str, function: Callable[..., object] | None, *parameters: str
) -> Callable[..., Awaitable[Any]] | None:
    if function is None:
        return None
    if is_async(function):
        raise ConfigurationError(
            f"{name} {name_of(function)} is async: write `def` for efo.sync, or use efo.aio on asyncio, efo on trio"
        )
    if isinstance(function, ValueHandler):
        if isinstance(function, RecordValues) != (name == "record_handler"):
            raise ConfigurationError(
                f"{name}: efo.sync.deserialize makes a handler of batches, deserialize_record a record_handler"
            )
        return function.on_trio(call)
    check_callable(name, function, f"a function of ({', '.join(parameters)})", *parameters)
    return call(function)
