"""Repeats a call that fails, until it succeeds, cannot, or has failed for too long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

import trio

from efo.errors import EfoError

T = TypeVar("T")


async def retry(
    call: Callable[[], Awaitable[T]],
    wait: Callable[[], float],
    *,
    seconds: float = inf,
    attempts: float = inf,
    repeats: Callable[[EfoError], bool] = lambda error: error.retryable,
    on_failure: Callable[[EfoError, float], object] = lambda _error, _delay: None,
) -> T:
    """Return what `call` returns as soon as it succeeds.

    `wait`: returns the seconds before the next call, such as `Backoff.next`. `seconds`, `attempts`: for how long after
    the first failure, and how often, it is called; then the last error is raised. `repeats`: whether an error is worth
    another call; other errors are raised at once, and so is every exception that is not an EfoError. `on_failure`:
    called before each wait, with the error and the seconds.
    """
    first: float | None = None
    while True:
        try:
            return await call()
        except EfoError as error:
            attempts -= 1
            now = trio.current_time()
            first = now if first is None else first
            left = first + seconds - now
            if left <= 0 or attempts <= 0 or not repeats(error):
                raise
            delay = min(wait(), left)
            on_failure(error, delay)
        await trio.sleep(delay)
