"""What libraries log of efo's calls: at DEBUG the headers with the session token, bodies, and answers with credentials.

An application that sets the root logger to DEBUG would have them in its log. So the loggers of these libraries stay at
INFO or above, unless the application sets the level of one of them itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


def keep_at(level: int, *names: str) -> None:
    """Let these loggers, and those below them, log from a level of `logging` on, unless theirs is set already."""
    for name in names:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)


class _Silence(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int | None] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread not in self.threads


_SILENCE: Final = _Silence()


@contextmanager
def silence(*packages: str) -> Iterator[None]:
    """Drop what these packages log in this thread: also warnings, whose tracebacks quote the answers."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in packages:
            logging.getLogger(name).addFilter(_SILENCE)
    thread = threading.get_ident()
    _SILENCE.threads.add(thread)
    try:
        yield
    finally:
        _SILENCE.threads.discard(thread)
