"""What is done about a worker process that ended, and which exit code stands for all: decisions only."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Final

from efo_service.exit_codes import Exit, most_surprising

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
LONG_RUN: Final = 60.0
"""Seconds after which a worker counts as one that works: if it dies then, its pauses begin anew."""
_FINAL: Final = frozenset({Exit.USAGE, Exit.CONFIGURATION})


class Restarts:
    """How long to wait before one worker is started again: 1 s after its first death, then twice as long each time."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def pause(self, seconds_alive: float) -> float:
        """Return the seconds to wait, after a run that lasted so long."""
        pause = FIRST_PAUSE if seconds_alive >= LONG_RUN else self._next
        self._next = min(LONGEST_PAUSE, 2 * pause)
        return pause


def is_final(code: int, *, has_been_ready: bool) -> bool:
    """Tell whether a worker's end ends all.

    A wrong configuration does not mend itself. And until one of them was ready, there is no reason to believe that
    another try would be better: who starts us shall hear of it.
    """
    return code in _FINAL or not has_been_ready


def worst(codes: Iterable[int]) -> Exit:
    """Return the exit code that stands for those of all workers."""
    return most_surprising(_exit_of(code) for code in codes)


def _exit_of(code: int) -> Exit:
    """Read what a process returned. One that was asked to stop before it listened to signals had nothing begun."""
    if code == -signal.SIGTERM:
        return Exit.OK
    return Exit(code) if code in set(Exit) else Exit.INTERNAL
