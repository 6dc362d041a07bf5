"""Checks of the functions that applications pass to efo: at the call, and when one of them raises."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, ParamSpec, TypeVar

import trio

from efo.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")

_EFO_TYPES: Final = re.compile(r"\b(Batch|Record|ShardStream|DeadLetter|HandlerResult)\b")
_ASYNCIO: Final = ("unrecognized yield message", "no running event loop", "no current event loop")
"""Texts of the exceptions that trio and asyncio raise when an asyncio function is awaited on trio."""


def in_thread(function: Callable[P, R], *, limiter: trio.CapacityLimiter | None = None) -> Callable[P, Awaitable[R]]:
    """Return an async function that runs a blocking function in a thread, for handlers that block.

    A thread cannot be cancelled. So a drain or a graceful hand-off waits for the running call. When a lease is lost by
    force, the call runs to its end although another worker may already process the same records.

    `limiter`: bounds the number of threads; None: trio's default of 40 for the whole process. Raises
    ConfigurationError for a function that is async already.
    """
    if not callable(function):
        raise ConfigurationError(f"in_thread({function!r}): expected a function")
    if is_async(function):
        raise ConfigurationError(f"in_thread({name_of(function)}): the function is async, so pass it without in_thread")

    @functools.wraps(function, updated=())
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return await trio.to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=limiter)

    del call.__wrapped__  # the wrapped function is not async, and `is_async` looks through wrappers
    call.__signature__ = _signature(function)  # type: ignore[attr-defined]
    return call


def check_async(function: object, name: str, *parameters: str) -> None:
    """Raise ConfigurationError unless the function is async and accepts these positional arguments.

    `name`: the argument that the function was passed as, for the message.
    """
    if not callable(function):
        raise ConfigurationError(f"{name} is {function!r}: expected an async function of ({', '.join(parameters)})")
    if not is_async(function):
        raise ConfigurationError(
            f"{name} {name_of(function)} is not an async function: write `async def`, or pass "
            f"efo.in_thread({name_of(function)}) for code that blocks"
        )
    if (signature := _signature(function)) is None:
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        raise ConfigurationError(
            f"{name} {name_of(function)}{signature} cannot be called with ({', '.join(parameters)}): {error}"
        ) from None


def is_async(function: Callable[..., object]) -> bool:
    """Return whether a call of the function gives a coroutine: also through partials, wrappers and `__call__`."""
    unwrapped = inspect.unwrap(function)
    while isinstance(unwrapped, functools.partial):
        unwrapped = inspect.unwrap(unwrapped.func)
    return inspect.iscoroutinefunction(unwrapped) or inspect.iscoroutinefunction(type(unwrapped).__call__)


def misuse_of_efo(error: Exception) -> str | None:
    """Return why an exception of a handler comes from how it was written against efo; None if it does not.

    Such a handler fails for each record alike, whatever the record contains. So no failure policy may skip it.
    """
    text = str(error)
    match error:
        case AttributeError(obj=obj) if type(obj).__module__.partition(".")[0] == "efo" or "module 'efo" in text:
            return text
        case TypeError() if _EFO_TYPES.search(text):
            return text
        case TypeError() if _is_from_efo(error.__traceback__):
            return text
        case TypeError() | RuntimeError() if any(sign in text for sign in _ASYNCIO):
            return f"it awaits asyncio, and efo runs on trio: {text.partition('.')[0]}"
        case _:
            return None


def name_of(function: object) -> str:
    """Return the qualified name of a function, for messages."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # builtins, and callables of compiled code, may have none
        return None


def _is_from_efo(traceback: TracebackType | None) -> bool:
    """Return whether the innermost frame is efo's own call of the handler, so that the call itself was refused."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and str(traceback.tb_frame.f_globals.get("__name__", "")).startswith("efo.consumer.")
