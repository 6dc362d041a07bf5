"""A pytest plugin for runs of a mutant: a test that does not end is ended, and the run with it.

A busy machine makes each test slow, so the clock alone shows nothing. A test is ended after EFO_TEST_SECONDS of CPU
time, for what loops, or after EFO_IDLE_SECONDS in which this process has hardly used any, for what waits.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Final

import pytest

_IDLE_SHARE: Final = 0.01
"""A process that gets less of a core than this is waiting. One that is ready to run gets more on any machine."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Limit a test with its fixtures. No code can catch SIGPROF's default action, nor SIGKILL."""
    idle_seconds = float(os.environ["EFO_IDLE_SECONDS"])
    used_before = time.process_time()

    def end_if_idle(_signal: int, _frame: object) -> None:
        nonlocal used_before
        used = time.process_time()
        if used - used_before < _IDLE_SHARE * idle_seconds:
            os.kill(os.getpid(), signal.SIGKILL)
        used_before = used

    previous = signal.signal(signal.SIGALRM, end_if_idle)
    signal.setitimer(signal.ITIMER_PROF, float(os.environ["EFO_TEST_SECONDS"]))
    signal.setitimer(signal.ITIMER_REAL, idle_seconds, idle_seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGALRM, previous)
