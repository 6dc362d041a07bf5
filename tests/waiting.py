"""Waiting for what threads, servers and other processes do: they give no event to wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

PATIENCE: Final = 120.0
"""Seconds after which what is waited for has failed. Long, for a machine that has much else to do."""


async def until(condition: Callable[[], object]) -> None:
    """Look until it is so."""
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - there is no event
            await trio.sleep(0.01)
