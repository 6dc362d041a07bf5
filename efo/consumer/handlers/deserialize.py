"""`efo.deserialize`: handlers of values with types. A record that cannot be deserialized goes to the failure policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Final, TypeVar

import trio

from efo.checks import check_async, check_callable
from efo.consumer.handlers.failure_handler import HandlerResult
from efo.consumer.handlers.handler import BatchHandler, RecordHandler
from efo.deserializers.base import Deserializer
from efo.errors import SchemaNotLoadedError
from efo.model import Batch, Record

T = TypeVar("T")

BatchValueHandler = Callable[[Sequence[T], Batch], Awaitable[HandlerResult | None]]
"""Processes the values of a batch, one for each of its records. When it returns, the batch is acked."""
RecordValueHandler = Callable[[T, Record, Batch], Awaitable[HandlerResult | None]]
"""Processes the value of one record of a batch. When it returns, the record is acked."""

STEP: Final = 0.01
"""Seconds after which other tasks get a turn while the records of a batch are deserialized."""
_CLOCK_EVERY: Final = 16
"""The clock is read once for so many records."""


def deserialize(handler: BatchValueHandler[T], deserializer: Deserializer[T]) -> BatchHandler:
    """Return a handler of batches for a function that takes their values: `handler(values, batch)`.

    `deserializer`: see `efo.deserializers`, or any function of a record. What it raises goes to the failure policy: the
    batch is split, as for each failure of a handler, until the record that cannot be deserialized is alone. The handler
    never sees a batch that has one. A DeserializationError is not retried. Raises ConfigurationError.
    """
    check_async(handler, "handler", "values", "batch")
    _check(deserializer)

    async def handle(batch: Batch) -> HandlerResult | None:
        return await handler(await _values(deserializer, batch), batch)

    return handle


def deserialize_record(record_handler: RecordValueHandler[T], deserializer: Deserializer[T]) -> RecordHandler:
    """Return a handler of records for a function that takes their value: `record_handler(value, record, batch)`.

    `deserializer`, and what it raises: as for `deserialize`. Raises ConfigurationError.
    """
    check_async(record_handler, "record_handler", "value", "record", "batch")
    _check(deserializer)

    async def handle(record: Record, batch: Batch) -> HandlerResult | None:
        try:
            value = deserializer(record)
        except SchemaNotLoadedError:
            value = await _value(deserializer, record)
        return await record_handler(value, record, batch)

    return handle


def _check(deserializer: object) -> None:
    check_callable("deserializer", deserializer, "a deserializer, such as efo.deserializers.json(Order)", "record")


async def _values(deserializer: Deserializer[T], batch: Batch) -> list[T]:
    values: list[T] = []
    began = perf_counter()
    for number, record in enumerate(batch.records):
        try:
            values.append(deserializer(record))
        except SchemaNotLoadedError:
            values.append(await _value(deserializer, record))
        if number % _CLOCK_EVERY == 0 and perf_counter() - began > STEP:
            await _pass()
            began = perf_counter()
    return values


async def _value(deserializer: Deserializer[T], record: Record) -> T:
    """Return the value of a record that names schemas which are not loaded."""
    while True:
        try:
            return deserializer(record)
        except SchemaNotLoadedError as error:
            load = error.load
        await load()


async def _pass() -> None:
    """Give other tasks a turn: those of trio, or of asyncio, whose handlers may be wrapped too."""
    if trio.lowlevel.in_trio_task():
        await trio.lowlevel.checkpoint()
    else:
        import asyncio  # noqa: PLC0415 - slow to import, and seldom used

        await asyncio.sleep(0)
