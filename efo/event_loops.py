"""Which event loop runs here, so that what belongs to another one is refused at the call, with the right name."""

from __future__ import annotations

import sys

import trio

from efo.errors import ConfigurationError


def require_trio(name: str, instead: str = "") -> None:
    """Refuse a function of `efo` that is awaited elsewhere than on trio. `instead`: its name on asyncio.

    Raises ConfigurationError.
    """
    if trio.lowlevel.in_trio_run():
        return
    if _in_asyncio():
        use = f"use {instead or name.replace('efo.', 'efo.aio.', 1)}"
        raise ConfigurationError(f"{name} runs on trio, and this is asyncio: {use}, or call it by trio.run")
    raise ConfigurationError(
        f"{name} runs on trio: call it by trio.run, or use {name.replace('efo.', 'efo.sync.', 1)} in synchronous code"
    )


def require_asyncio(name: str) -> None:
    """Refuse a function of `efo.aio` that is awaited elsewhere than on asyncio. Raises ConfigurationError."""
    if _in_asyncio():
        return
    where = "this is trio" if trio.lowlevel.in_trio_run() else "no event loop runs here"
    raise ConfigurationError(
        f"{name} runs on asyncio, and {where}: call it by asyncio.run, or use {name.replace('efo.aio.', 'efo.', 1)} on"
        f" trio, {name.replace('efo.aio.', 'efo.sync.', 1)} in synchronous code"
    )


def _in_asyncio() -> bool:
    events = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None  # noqa: SLF001 - without an exception
