"""Waits for conditions of threads, servers and other processes, which set no trio event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

TIMEOUT: Final = 120.0
"""Seconds until a wait fails. Long, because the machine may be busy."""


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    with trio.fail_after(TIMEOUT):
        while not condition():  # noqa: ASYNC110 - no event to wait for
            await trio.sleep(0.01)
