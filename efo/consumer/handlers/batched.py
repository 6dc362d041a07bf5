"""`efo.batched`: a handler that gets batches by number of records, bytes and time, and not one for each event."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, cast

import trio

from efo.checks import check_count, check_number, check_type, is_async, name_of, shown, signature_of
from efo.errors import ConfigurationError, HandlerError
from efo.model import Batch, Record

H = TypeVar("H", bound=Callable[..., object])

MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""How much a batch has by default: of each shard, so much may wait (rule R9)."""


class Batched:
    """What `batched` returns: a handler, and when it is called. `Handler` knows what to do with it."""

    def __init__(self, handler: Callable[..., Any], records: int, size: int, seconds: float) -> None:
        self.handler = handler
        self.records = records
        self.size = size
        self.seconds = seconds

    async def __call__(self, _batch: Batch) -> NoReturn:
        """Refuse a call: whoever makes it has no timer. It is async, so that no other wrapper takes it."""
        raise HandlerError(
            f"efo.batched({name_of(self.handler)}) was called: pass it to `consume` or a Handler as it is, as the "
            "outermost wrapper: efo.batched(efo.deserialize(...)), efo.batched(efo.in_thread(...))"
        )


def batched(handler: H, *, records: int = MAX_RECORDS, bytes: int = MAX_BYTES, seconds: float = 5.0) -> H:  # noqa: A002
    """Return a handler of batches that is called with more records at once: for sinks that want few, large writes.

    It is called when `records` user records of a shard wait, or their data has so many `bytes`, or the oldest waits for
    `seconds` (`math.inf`: for the others alone), also while nothing arrives; and with what is left when the reading of
    the shard ends, at its end or at a drain. A batch has at most so many records and bytes, unless a single record is
    larger. What waits is not acked. All else holds as for other handlers: acks, HOLD, the failure policy, which finds
    the records that fail by themselves.

    It is for `consume` and `Handler` of each surface, as the outermost wrapper, and not for `key_concurrency`. Raises
    ConfigurationError.
    """
    given: object = handler
    if not callable(given) or isinstance(given, type | Batched):
        raise ConfigurationError(f"batched({shown(handler)}): expected a handler of batches")
    check_count("records", records)
    check_count("bytes", bytes)
    check_number("seconds", seconds, infinite=True, unit=" seconds")
    return cast("H", Batched(handler, records, bytes, seconds))


def handler_in(handler: object) -> object:
    """Return the application's function that is in a `Batched`, or the handler itself."""
    return handler.handler if isinstance(handler, Batched) else handler


def with_handler(handler: object, move: Callable[[Any], Any]) -> Any:
    """Return what `move` makes of a handler; of a Batched, one whose handler is that."""
    if isinstance(handler, Batched):
        return Batched(move(handler.handler), handler.records, handler.size, handler.seconds)
    return move(handler)


class Waiting:
    """The records of a shard that wait until the handler is called: `add` batches, `take` those for a call."""

    def __init__(self, limits: Batched) -> None:
        self._limits = limits
        self._parts: deque[tuple[Batch, float]] = deque()
        self._begin = 0  # the index in the first batch of the first record that waits
        self._records = 0
        self._size = 0

    @property
    def due(self) -> float:
        """When the oldest record has waited for long enough, by the clock of `add`; infinity if none waits."""
        return self._parts[0][1] + self._limits.seconds if self._parts else inf

    def add(self, batch: Batch, now: float) -> None:
        """Add a batch that was delivered now."""
        self._parts.append((batch, now))
        self._records += len(batch.records)
        self._size += _size(batch.records)

    def take(self, now: float, is_current: Callable[[Batch], bool], *, is_last: bool) -> Batch | None:
        """Return what the handler is to be called with now, None if nothing is due.

        `is_current`: whether a batch is still to be processed; not one that was delivered before a seek. `is_last`:
        nothing more comes. The result has the number of its last batch, and its continuation if that is complete.
        """
        while self._parts and not is_current(self._parts[0][0]):
            self._drop(len(self._parts[0][0].records) - self._begin)
        is_full = self._records >= self._limits.records or self._size >= self._limits.size
        if not self._parts or not (is_full or is_last or now >= self.due):
            return None
        taken: list[Record] = []
        room = self._limits.size
        while self._parts and len(taken) < self._limits.records:
            batch = self._parts[0][0]
            count, room = self._fitting(batch.records, self._limits.records - len(taken), room, is_first=not taken)
            end = self._begin + count
            taken += batch.records[self._begin : end]
            self._drop(count)
            if end < len(batch.records):
                break
        is_complete = taken[-1] is batch.records[-1]
        continuation = batch.continuation if is_complete else None
        return Batch(batch.stream, batch.shard_id, tuple(taken), continuation, batch.millis_behind_latest, batch.number)

    def _fitting(self, records: tuple[Record, ...], count: int, room: int, *, is_first: bool) -> tuple[int, int]:
        """Return how many of the next records of a batch there is room for, and the room that is left."""
        fitting = 0
        for record in records[self._begin : self._begin + count]:
            size = len(record.data)
            if size > room and (fitting or not is_first):
                break
            room -= size
            fitting += 1
        return fitting, room

    def _drop(self, count: int) -> None:
        """Forget the next records of the first batch, and the batch after its last one."""
        records = self._parts[0][0].records
        end = self._begin + count
        self._records -= count
        self._size -= _size(records[self._begin : end])
        self._begin = end
        if end == len(records):
            self._parts.popleft()
            self._begin = 0


def _size(records: tuple[Record, ...]) -> int:
    return sum(len(record.data) for record in records)


P = ParamSpec("P")
R = TypeVar("R")


def in_thread(function: Callable[P, R], *, limiter: trio.CapacityLimiter | None = None) -> Callable[P, Awaitable[R]]:
    """Return an async function that runs a blocking function in a thread, for handlers that block.

    A thread cannot be cancelled. So a drain or a graceful hand-off waits for the running call. When a lease is lost by
    force, the call runs to its end although another worker may already process the same records.

    `limiter`: bounds the number of threads; None: trio's default of 40 for the whole process. Raises
    ConfigurationError for a function that is async already.
    """
    if not callable(function):
        raise ConfigurationError(f"in_thread({shown(function)}): expected a function")
    if is_async(function):
        raise ConfigurationError(f"in_thread({name_of(function)}): the function is async, so pass it without in_thread")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"in_thread({name_of(function)}): a call of a generator function runs nothing")
    if limiter is not None:
        check_type("limiter", limiter, trio.CapacityLimiter, "a trio.CapacityLimiter, or None")

    @functools.wraps(function, updated=())
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return await trio.to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=limiter)

    del call.__wrapped__  # the wrapped function is not async, and `is_async` looks through wrappers
    call.__signature__ = signature_of(function)  # type: ignore[attr-defined]
    return call
