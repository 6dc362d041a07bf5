"""A handler with its failure policy, for asyncio."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from efo.adapters.calls import outside
from efo.checks import check_async
from efo.consumer.handlers.batched import with_handler
from efo.consumer.handlers.exactly_once import ExactlyOnce, LoadPosition, PositionHandler
from efo.consumer.handlers.handler import BatchHandler, Flush, Handler as TrioHandler, RecordHandler
from efo.events import Observer
from efo.protocol.failure import FailurePolicy, OnError


class Handler(TrioHandler):
    """Reads a shard by calling a handler on asyncio: `await consumer.run(Handler(handle))`.

    The arguments are those of `efo.Handler`. `handler`, `record_handler`, `flush` and the dead-letter sink of a policy
    run on asyncio. `on_error` and `observer` are plain functions, which are called in efo's own thread.
    """

    surface = "efo.aio"

    def __init__(
        self,
        handler: BatchHandler | None = None,
        *,
        record_handler: RecordHandler | None = None,
        on_error: OnError | None = None,
        flush: Flush | None = None,
        key_concurrency: int = 1,
        observer: Observer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        # First as it is: that refuses what is no function, by the names that the application knows.
        super().__init__(handler, record_handler=record_handler, on_error=on_error, flush=flush)
        super().__init__(
            None if handler is None else with_handler(handler, outside),
            record_handler=None if record_handler is None else outside(record_handler),
            on_error=outside_policy(on_error),
            flush=None if flush is None else outside(flush),
            key_concurrency=key_concurrency,
            observer=observer,
            rng=rng,
        )


class ExactlyOnceHandler(ExactlyOnce, Handler):
    """Reads shards into a database that keeps their positions, on asyncio: see `efo.ExactlyOnceHandler`.

    `handler` and `load_position` run on asyncio.
    """

    def __init__(
        self,
        handler: PositionHandler,
        load_position: LoadPosition,
        *,
        on_error: OnError | None = None,
        observer: Observer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        check_async(load_position, "load_position", "stream", "shard_id")
        Handler.__init__(self, handler, on_error=on_error, observer=observer, rng=rng)  # type: ignore[arg-type] # _batch_parameters
        self._load = outside(load_position)


def outside_policy(on_error: OnError | None) -> OnError | None:
    """Return a policy whose dead-letter sink is called on the application's side of the surface."""
    if on_error is None or isinstance(on_error, FailurePolicy):
        return on_error if on_error is None else _moved(on_error)
    return _MovedPolicies(on_error)


class _MovedPolicies:
    """A function that returns a policy for an exception. It is a class so that messages name the function."""

    def __init__(self, on_error: Callable[[Exception], FailurePolicy]) -> None:
        self._on_error = on_error
        self.__wrapped__ = on_error

    def __call__(self, exception: Exception) -> FailurePolicy:
        policy: object = self._on_error(exception)
        return _moved(policy) if isinstance(policy, FailurePolicy) else policy  # type: ignore[return-value] # refused later


def _moved(policy: FailurePolicy) -> FailurePolicy:
    return policy if policy.dead_letter is None else replace(policy, dead_letter=outside(policy.dead_letter))
