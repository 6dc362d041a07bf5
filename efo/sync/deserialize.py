"""`efo.sync.deserialize`: handlers of values with types, for plain functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from efo.checks import check_callable
from efo.consumer.handlers.deserialize import (
    deserialize as deserialize_on_trio,
    deserialize_record as deserialize_record_on_trio,
)
from efo.consumer.handlers.failure_handler import HandlerResult
from efo.deserializers.base import Deserializer
from efo.model import Batch, Record

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
