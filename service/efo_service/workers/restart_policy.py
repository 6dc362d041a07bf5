"""Decides when a worker process that ended is restarted, and which exit code represents all workers. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Final

from efo_service.exit_codes import Exit, most_severe

INITIAL_DELAY: Final = 1.0
MAX_DELAY: Final = 30.0
STABLE_AFTER: Final = 60.0
"""A worker that ran for this many seconds counts as stable: the next restart has the initial delay again."""
_PERMANENT: Final = frozenset({Exit.USAGE, Exit.CONFIGURATION})


class RestartBackoff:
    """The delay before a worker is restarted: 1 s after it first ends, then doubled each time, up to MAX_DELAY."""

    def __init__(self) -> None:
        self._next = INITIAL_DELAY

    def next_delay(self, seconds_alive: float) -> float:
        """Return the delay in seconds after a run of `seconds_alive`."""
        delay = INITIAL_DELAY if seconds_alive >= STABLE_AFTER else self._next
        self._next = min(MAX_DELAY, 2 * delay)
        return delay


def stops_all(code: int, *, has_been_ready: bool) -> bool:
    """Return whether the end of a worker with exit code `code` stops all workers.

    A restart does not correct a wrong configuration. And until one worker was ready, a restart is unlikely to help:
    the failure is reported to the caller of efo instead.
    """
    return code in _PERMANENT or not has_been_ready


def combined_exit_code(codes: Iterable[int]) -> Exit:
    """Return the exit code that represents those of all workers."""
    return most_severe(_exit_of(code) for code in codes)


def _exit_of(code: int) -> Exit:
    """Return the exit code for the return code of a process.

    SIGTERM kills only a worker that does not handle signals yet, and so has begun nothing.
    """
    if code == -signal.SIGTERM:
        return Exit.OK
    return Exit(code) if code in set(Exit) else Exit.INTERNAL
