"""The functions that applications pass to efo: those that block, and those that turn out to be written wrongly."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import FrameType
from typing import Final, ParamSpec, TypeVar

import trio

from efo.checks import check_type, is_async, name_of, shown, signature_of
from efo.errors import ConfigurationError
from efo.exception_groups import leaf_exceptions
from efo.model import Batch, Record

P = ParamSpec("P")
R = TypeVar("R")

_TYPES: Final = "Batch|Record|ShardStream|DeadLetter|HandlerResult"
_ABOUT_EFO: Final = re.compile(
    rf"'(?P<quoted>{_TYPES})'|\b(?:of type|non-iterable|not) (?P<named>{_TYPES})\b|^(?P<first>{_TYPES})\(?\)? "
)
"""How Python's own messages name the type of an object: 'Record' object is not subscriptable, ... not Record."""
_REFUSED_CALL: Final = re.compile(r"\(\) (takes|missing|got (an unexpected|multiple|some positional))")
"""How Python says that arguments do not fit the parameters of a function."""
_PASSES_ON: Final = ("trio", "outcome", "functools", "contextlib", "contextvars")
"""Packages whose frames may stand between efo's call and the handler."""
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


def misuse_of_efo(error: Exception, batch: Batch | None = None) -> str | None:
    """Return why an exception of a handler comes from how it was written against efo; None if it does not.

    Such a handler fails for each record alike, whatever the record contains. So no failure policy may skip it. Of an
    exception group, any of its exceptions counts. `batch`: what the handler was called with.
    """
    return next((text for leaf in each_exception(error) if (text := _misuse(leaf, batch))), None)


def each_exception(error: Exception) -> Iterator[Exception]:
    """Yield the exceptions of a group, which a handler with a nursery raises; or the exception itself."""
    if isinstance(error, ExceptionGroup):
        yield from leaf_exceptions(error)
    else:
        yield error


def _misuse(error: Exception, batch: Batch | None) -> str | None:
    text = str(error)
    match error:
        case ConfigurationError():
            return text
        case AttributeError(obj=obj) if _is_efos(obj, batch) or "module 'efo" in text:
            return text
        case TypeError() if _names_efo(error, text):
            return text
        case TypeError() if _REFUSED_CALL.search(text) and _is_call_of_handler(error):
            return text
        case TypeError() | RuntimeError() if any(sign in text for sign in _ASYNCIO):
            return f"it awaits asyncio, and efo runs on trio: {text.partition('.')[0]}"
        case _:
            return None


def _is_efos(obj: object, batch: Batch | None) -> bool:
    """Return whether the object is one of efo's, or a field of the batch: its type is the same for each record."""
    if type(obj).__module__.partition(".")[0] == "efo" or _holds_records(obj):
        return True
    return obj is not None and batch is not None and any(obj is value for value in _fields(batch))


def _holds_records(obj: object) -> bool:
    return isinstance(obj, tuple) and bool(obj) and isinstance(obj[0], Record)


def _fields(batch: Batch) -> Iterable[object]:
    yield from (batch.stream, batch.shard_id)
    for record in batch.records:
        yield from (record.sequence_number, record.data, record.partition_key, record.tags)


def _names_efo(error: TypeError, text: str) -> bool:
    """Return whether Python's message names a type of efo, and not one of the application with the same name."""
    if (match := _ABOUT_EFO.search(text)) is None:
        return False
    name = match["quoted"] or match["named"] or match["first"]
    frames = [*_frames(error)]
    known = {**frames[-1].f_globals, **frames[-1].f_locals}.get(name) if frames else None
    return known is None or str(getattr(known, "__module__", "")).partition(".")[0] == "efo"


def _is_call_of_handler(error: TypeError) -> bool:
    """Return whether the call of the handler itself was refused: by efo's call, or by wrappers that pass it on."""
    frames = [*_frames(error)]
    while frames and not _module(frames[0]).startswith("efo.consumer."):
        del frames[0]
    return bool(frames) and all(
        bool(frame.f_code.co_flags & inspect.CO_VARARGS)
        or _module(frame).partition(".")[0] in _PASSES_ON
        or _module(frame).startswith("efo.consumer.")
        for frame in frames
    )


def _frames(error: Exception) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
