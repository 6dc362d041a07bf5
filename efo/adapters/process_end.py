"""What becomes of open consumers and producers when their process ends, or forks.

A forked child has a copy of everything but the threads: nobody there would ever answer. So in the child, all that waits
or is asked raises ForkedError. At the end of the process, what is open is closed in order, and reported: nothing else
would save what was acked, or send what is in a buffer.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from concurrent.futures import Future
from typing import Any, Final, Protocol
from weakref import WeakSet

from efo.errors import EfoError, class_name_of

EXIT_SECONDS: Final = 10.0
"""For all together: an orchestrator kills a process after 30 s."""
_LOG: Final = logging.getLogger("efo")


class Ending(Protocol):
    """What ends with its process: `efo.adapters.engine.Engine`. `closed`: resolved when it has ended."""

    closed: Future[None]

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        ...

    def describe(self) -> str:
        """Return what is open, and how much it has to send."""
        ...

    def end_with_process(self) -> str:
        """End it because its process ends; return what to do instead, in words."""
        ...

    def forked(self) -> None:
        """Let all that waits raise ForkedError: this process is a forked child."""
        ...


_open: Final[WeakSet[Ending]] = WeakSet()


class ForkedError(EfoError):
    """This process is a fork of the one that opened a consumer or a producer."""

    error_type = "forked"

    def __init__(self) -> None:
        super().__init__(
            "this process was forked (os.fork, multiprocessing, gunicorn --preload) from the one that opened it, whose "
            "thread it does not have: open it here, after the fork, or start processes with "
            "multiprocessing.get_context('spawn')"
        )


def watch(engine: Ending) -> None:
    """Let an engine end with its process, and in a forked child."""
    _open.add(engine)


def end_in_child(future: Future[Any]) -> None:
    """Let a future raise ForkedError, unless it is done."""
    future._condition = threading.Condition()  # noqa: SLF001 - a thread that does not exist here may hold its lock
    if not future.done():
        future.set_exception(ForkedError())


def _in_child() -> None:
    for engine in list(_open):
        engine.forked()
    _open.clear()


def _at_exit() -> None:
    """Close what is open, at the same time, and tell what cannot be saved."""
    engines = [engine for engine in list(_open) if engine.is_running]
    for engine in engines:
        _LOG.warning("a %s is still open at the end of the process: %s", engine.describe(), engine.end_with_process())
    deadline = time.monotonic() + EXIT_SECONDS
    for engine in engines:
        try:
            error = engine.closed.exception(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            _LOG.error("a %s did not end within %g s: what it has is lost", engine.describe(), EXIT_SECONDS)
        else:
            if error is not None:
                _LOG.error("a %s could not be closed: %s", engine.describe(), _text(error))


def _text(error: BaseException) -> str:
    """Return what may be logged of an error: the text of other libraries' errors may quote anything."""
    return str(error) if isinstance(error, EfoError) else class_name_of(error)


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
