"""`efo.in_thread`: a blocking function as an async handler."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import trio

from efo.checks import check_type, is_async, name_of, shown, signature_of
from efo.errors import ConfigurationError

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
