"""Exponential backoff with jitter (AWS Architecture Blog: "Exponential Backoff And Jitter")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from efo.errors import ClockSkewError, CredentialsError, EfoError, ExpiredCredentialsError, RejectedCredentialsError

OF_CREDENTIALS: Final = (CredentialsError, ExpiredCredentialsError, RejectedCredentialsError, ClockSkewError)
"""Errors that end when the credentials or the clock are right again. Whoever waits for that learns it at once."""
CREDENTIALS_PAUSE: Final = 1.0
"""The longest wait after such an error, in seconds. The credentials are looked for once a second, whoever asks."""
_MAX_DOUBLINGS = 60

Random = Callable[[], float]
"""Returns a number from 0 to 1."""


def backoff(failures: int, *, initial: float, limit: float, random: Random | None = None, jitter: float = 1.0) -> float:
    """Return the seconds to wait after so many failures, at least one: `initial` doubled with each, at most `limit`.

    `jitter`: the share of it that is random: 1 is full jitter. `random`: the source; None: nothing is random.
    """
    ceiling = min(limit, initial * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return ceiling if random is None else ceiling * (1 - jitter + jitter * random())


class Backoff:
    """The waits after one failure after the other. The arguments are those of `backoff`."""

    __slots__ = ("_failures", "_initial", "_jitter", "_limit", "_random")

    def __init__(
        self, random: Random | None = None, *, initial: float = 0.5, limit: float = 30.0, jitter: float = 1.0
    ) -> None:
        self._random = random
        self._initial = initial
        self._limit = limit
        self._jitter = jitter
        self._failures = 0

    def next(self, error: EfoError | None = None) -> float:
        """Return the seconds to wait now. `error`: why; while credentials are missing, the wait does not grow."""
        if isinstance(error, OF_CREDENTIALS):
            return CREDENTIALS_PAUSE * (1 + (self._random or _certain)()) / 2
        self._failures += 1
        return backoff(
            self._failures, initial=self._initial, limit=self._limit, random=self._random, jitter=self._jitter
        )

    def reset(self) -> None:
        """Start again with the initial wait, after a success."""
        self._failures = 0


def _certain() -> float:
    return 1.0
