"""A pytest plugin for runs of a mutant: a test that does not end is ended by SIGALRM, and the run with it.

EFO_TEST_SECONDS: the limit of one test, in whole seconds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Limit the time of a test with its fixtures. No code can catch the signal's default action."""
    signal.alarm(int(os.environ["EFO_TEST_SECONDS"]))
    try:
        return (yield)
    finally:
        signal.alarm(0)
