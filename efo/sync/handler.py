"""Handlers of bytes, of values and record processors, for synchronous code: with their failure policy."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import trio

from efo.adapters.calls import outside
from efo.adapters.consumer import ProcessorReader as DoorProcessorReader
from efo.checks import check_callable, check_count, is_async, name_of
from efo.consumer.handlers.batched import in_thread, with_handler
from efo.consumer.handlers.deserialize import (
    deserialize as deserialize_on_trio,
    deserialize_record as deserialize_record_on_trio,
)
from efo.consumer.handlers.exactly_once import ExactlyOnce, PositionMove
from efo.consumer.handlers.failure_handler import HandlerResult
from efo.consumer.handlers.handler import Handler as TrioHandler
from efo.consumer.handlers.processor import Checkpointer
from efo.deserializers.base import Deserializer
from efo.errors import ConfigurationError
from efo.events import Observer
from efo.model import Batch, Checkpoint, Record
from efo.protocol.failure import OnError

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
    `efo.in_thread`, a handler of values by `efo.sync.handler`. `on_error` and `observer` are called in efo's own
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
                f"{name}: efo.sync.handler makes a handler of batches, deserialize_record a record_handler"
            )
        return function.on_trio(call)
    check_callable(name, function, f"a function of ({', '.join(parameters)})", *parameters)
    return call(function)


T = TypeVar("T")

BatchValueHandler = Callable[[Sequence[T], Batch], HandlerResult | None]
"""Processes the values of a batch, one for each of its records. When it returns, the batch is acked."""
RecordValueHandler = Callable[[T, Record, Batch], HandlerResult | None]
"""Processes the value of one record of a batch. When it returns, the record is acked."""


class ValueHandler:
    """A plain function that takes values; `efo.sync.Handler` deserializes them in efo's thread before it calls it."""

    def __init__(self, function: Callable[..., Any], deserializer: Deserializer[Any]) -> None:
        self.__wrapped__ = function
        self._deserializer = deserializer

    def on_trio(self, call: Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]) -> Callable[..., Any]:
        """Return a handler for trio. `call`: makes an async function of the application's one."""
        return deserialize_on_trio(call(self.__wrapped__), self._deserializer)

    def __call__(self, batch: Batch) -> HandlerResult | None:
        """Call the function with the values of a batch, as in a test of it."""
        result: HandlerResult | None = self.__wrapped__([self._deserializer(record) for record in batch], batch)
        return result


class RecordValues(ValueHandler):
    """The same for a function that takes the value of one record."""

    def on_trio(self, call: Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]) -> Callable[..., Any]:
        """Return a handler of records for trio."""
        return deserialize_record_on_trio(call(self.__wrapped__), self._deserializer)

    def __call__(self, record: Record, batch: Batch) -> HandlerResult | None:  # type: ignore[override]
        """Call the function with the value of a record, as in a test of it."""
        result: HandlerResult | None = self.__wrapped__(self._deserializer(record), record, batch)
        return result


def deserialize(handler: BatchValueHandler[T], deserializer: Deserializer[T]) -> ValueHandler:
    """Return a handler of batches for a plain function that takes their values: `handler(values, batch)`.

    It is `efo.deserialize` for `efo.sync.consume` and `efo.sync.Handler`. Raises ConfigurationError.
    """
    _check("handler", handler, deserializer, "values", "batch")
    return ValueHandler(handler, deserializer)


def deserialize_record(record_handler: RecordValueHandler[T], deserializer: Deserializer[T]) -> RecordValues:
    """Return a handler of records for a plain function that takes their value: `record_handler(value, record, batch)`.

    It is `efo.deserialize_record` for synchronous code. Raises ConfigurationError.
    """
    _check("record_handler", record_handler, deserializer, "value", "record", "batch")
    return RecordValues(record_handler, deserializer)


def _check(name: str, function: object, deserializer: object, *parameters: str) -> None:
    expected = f"a plain function of ({', '.join(parameters)}); for async ones there is efo.deserialize"
    check_callable(name, function, expected, *parameters)
    check_callable("deserializer", deserializer, "a deserializer, such as efo.deserializers.json(Order)", "record")


class RecordProcessor:
    """Processes the records of one shard: `efo.RecordProcessor` with plain methods, which may block."""

    def initialize(self, shard_id: str, checkpoint: Checkpoint) -> None:
        """Begin with a shard, after this checkpoint."""

    def process_records(self, batch: Batch, checkpointer: Checkpointer) -> None:
        """Process a batch of at least one record. Checkpoint when the records are done, now or later."""
        raise NotImplementedError

    def lease_lost(self) -> None:
        """Clean up: another worker reads the shard now. Nothing can be checkpointed any more."""

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """Finish a shard that has no more records. It must checkpoint, or the shard's children would never start."""
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Finish before the shard is released: in a drain, or because another worker asked for the lease."""
        checkpointer.checkpoint()


class ProcessorReader(DoorProcessorReader):
    """Reads shards by record processors, for `efo.sync`: as `efo.ProcessorReader`, with plain methods."""

    processor_type = RecordProcessor
    are_async = False
    surface = "efo.sync"
