"""`efo.deserialize`: handlers of values with types. A record that cannot be deserialized goes to the failure policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final, TypeVar, cast

import trio

from efo.checks import check_async, check_callable
from efo.consumer.handlers.failure_handler import HandlerResult, PartDone
from efo.consumer.handlers.handler import BatchHandler, RecordHandler
from efo.deserializers.base import Deserializer
from efo.deserializers.compressed import unpacked
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
_LARGE: Final = 16 * 1024
"""The clock is read once for so many records, and for so many bytes of them, with those that were decompressed."""
MAX_UNPACKED: Final = 16 * 1024 * 1024
"""Bytes that the records of one call of a handler are without compression, if it is not a single record: a megabyte of
the stream may be gigabytes without it."""


def deserialize(handler: BatchValueHandler[T], deserializer: Deserializer[T]) -> BatchHandler:
    """Return a handler of batches for a function that takes their values: `handler(values, batch)`.

    `deserializer`: see `efo.deserializers`, or any function of a record. What it raises goes to the failure policy: the
    batch is split, as for each failure of a handler, until the record that cannot be deserialized is alone. The handler
    never sees a batch that has one. A DeserializationError is not retried. Data that is very large without its
    compression comes in several batches, each acked by itself. Raises ConfigurationError.
    """
    check_async(handler, "handler", "values", "batch")
    _check(deserializer)

    turns = _Turns()

    async def handle(batch: Batch) -> HandlerResult | PartDone | None:
        values = await _values(deserializer, batch, turns)
        if (count := len(values)) == len(batch):
            return await handler(values, batch)
        return PartDone(count, await handler(values, replace(batch, records=batch.records[:count])))

    return cast("BatchHandler", handle)


def deserialize_record(record_handler: RecordValueHandler[T], deserializer: Deserializer[T]) -> RecordHandler:
    """Return a handler of records for a function that takes their value: `record_handler(value, record, batch)`.

    `deserializer`, and what it raises: as for `deserialize`. Raises ConfigurationError.
    """
    check_async(record_handler, "record_handler", "value", "record", "batch")
    _check(deserializer)
    turns = _Turns()

    async def handle(record: Record, batch: Batch) -> HandlerResult | None:
        if turns.spent > STEP:
            turns.spent = 0.0
            await _pass()
        began = perf_counter()
        try:
            value = deserializer(record)
        except SchemaNotLoadedError:
            value = await _value(deserializer, record)
        finally:
            turns.spent += perf_counter() - began
        return await record_handler(value, record, batch)

    return handle


def _check(deserializer: object) -> None:
    check_callable("deserializer", deserializer, "a deserializer, such as efo.deserializers.json(Order)", "record")


class _Turns:
    """`spent`: the seconds that a deserializer took since other tasks had a turn, with the calls that failed."""

    spent = 0.0


async def _values(deserializer: Deserializer[T], batch: Batch, turns: _Turns) -> list[T]:
    """Return the values of the first records of the batch: of as many as MAX_UNPACKED allows, which are mostly all."""
    values: list[T] = []
    unseen, room = 0, MAX_UNPACKED
    began = perf_counter() - turns.spent
    try:
        for number, record in enumerate(batch.records):
            if number % _CLOCK_EVERY == 0 or unseen > _LARGE:
                unseen = 0
                if perf_counter() - began > STEP:
                    await _pass()
                    began = perf_counter()
            before = unpacked.size
            try:
                values.append(deserializer(record))
            except SchemaNotLoadedError:
                values.append(await _value(deserializer, record))
            size = unpacked.size - before
            room -= size
            unseen += size + len(record.data)
            if room <= 0:
                break
    finally:
        turns.spent = perf_counter() - began
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
