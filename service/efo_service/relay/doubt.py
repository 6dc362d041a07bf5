"""One damaged answer is no damage: what looks wrong in a log is read again, before anybody believes it.

A proxy may put a page in the place of an object, a body may be cut, a cache may be old. An operator who then restores
an earlier version makes damage of it. So a finding is believed if it stays: `read_again` repeats a read at once, and a
service that starts, or is about to commit, waits with `Doubt` (rule R16).
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from efo_service.relay.errors import (
    LogError,
    LogOwnerError,
    LogVersionError,
    SegmentGoneError,
    SinkError,
    StoreUnfitError,
    TopicNotFoundError,
)

P = ParamSpec("P")
T = TypeVar("T")

READS: Final = 4
"""How often what looks damaged is read in all."""
PAUSE: Final = 0.05
"""The longest pause before the second read, in seconds; twice as long before each next one, with jitter."""
SECONDS: Final = 30.0
"""How long a finding must stay, in a service, until it is believed."""


def is_doubtful(error: SinkError) -> bool:
    """Return whether an error says what is in a log, or what its store can do: that is read from answers."""
    if isinstance(error, SegmentGoneError | TopicNotFoundError):  # these are looked after by whoever expects them
        return False
    return isinstance(error, LogError | StoreUnfitError)


def read_again(read: Callable[P, T]) -> Callable[P, T]:
    """Let a function that reads, and blocks, read again if it finds damage. It raises what it found last."""

    @functools.wraps(read)
    def again(*args: P.args, **kwargs: P.kwargs) -> T:
        for attempt in range(READS - 1):
            try:
                return read(*args, **kwargs)
            except SinkError as error:
                if not is_doubtful(error):
                    raise
            time.sleep(PAUSE * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 - not used for security
        return read(*args, **kwargs)

    return again


class Doubt:
    """How long the findings of one task have stayed. `seconds`: until they are believed."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def is_final(self, error: SinkError, now: float) -> bool:
        """Return whether to try again cannot help. `now`: monotonic, in seconds."""
        if error.retryable or not is_doubtful(error) or isinstance(error, LogOwnerError | LogVersionError):
            return not error.retryable  # the last two are what an intact object says
        if self._since is None:
            self._since = now
        return now - self._since >= self._seconds

    def shown(self, error: SinkError) -> SinkError:
        """Return the error as it is reported while it is not believed yet."""
        if error.retryable:
            return error
        return type(error)(f"perhaps one damaged answer, so it is read again for {self._seconds:g} s: {error}")

    def settled(self) -> None:
        """Note that a try has succeeded."""
        self._since = None
