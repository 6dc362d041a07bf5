"""Repeats a call that fails, until it succeeds, cannot, or has failed for too long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

import trio

from efo.errors import EfoError
from efo.protocol.backoff import Backoff

T = TypeVar("T")


async def retry(
    call: Callable[[], Awaitable[T]],
    backoff: Backoff,
    *,
    seconds: float = inf,
    on_failure: Callable[[EfoError, float], Awaitable[None] | None] = lambda _error, _delay: None,
    repeats: Callable[[EfoError], bool] = lambda error: error.retryable,
) -> T:
    """Return what `call` returns as soon as it succeeds.

    `seconds`: since the first failure; when they are over, the last error is raised. `on_failure`: called with the
    error and the seconds until the next call. `repeats`: whether an error is worth another call; other errors are
    raised, and so is every exception that is not an EfoError.
    """
    first: float | None = None
    while True:
        try:
            return await call()
        except EfoError as error:
            now = trio.current_time()
            first = now if first is None else first
            left = first + seconds - now
            if left <= 0 or not repeats(error):
                raise
            delay = min(backoff.next(), left)
            if (reported := on_failure(error, delay)) is not None:
                await reported
        await trio.sleep(delay)
