"""Decides whether a worker process that ended is restarted, and which exit code represents all workers. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Final

from efo_service.exit_codes import Exit, most_severe

_PERMANENT: Final = frozenset({Exit.USAGE, Exit.CONFIGURATION})


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
