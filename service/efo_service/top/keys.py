"""Waits, and sees the key that ends `efo top`."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TextIO

_SLICE: Final = 0.2
"""Seconds of one system call at most. A signal that comes just before a call does not end it, and is seen after it."""


@contextmanager
def quit_key(stdin: TextIO | None) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits for some seconds, or until q is pressed, and returns whether it was.

    A terminal passes on keys at once, without echo, until the context ends. Another stdin has no keys.
    """
    if stdin is None or not stdin.isatty():
        yield _sleep
        return
    terminal = stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield partial(_wait, terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _SLICE))
    return False


def _wait(terminal: int, seconds: float) -> bool:
    end, left = time.monotonic() + seconds, seconds
    while left >= 0:
        if select.select([terminal], [], [], min(left, _SLICE))[0]:
            keys = os.read(terminal, 1024)
            if not keys or b"q" in keys.lower():  # no keys: the terminal is gone
                return True
        left = end - time.monotonic()
    return False
