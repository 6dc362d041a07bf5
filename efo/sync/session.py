"""The block in which an engine is open, in synchronous code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from efo.adapters.engine import Engine, Run
from efo.sync.wakeup import result_of

T = TypeVar("T")


@contextmanager
def open_engine(engine: Engine[Any]) -> Iterator[None]:
    """Start an engine and wait until it is open; close it at the end. An exception of the block cancels it."""
    try:
        engine.start()
        result_of(engine.opened)
        yield
    except BaseException:
        engine.cancel()
        engine.wait_closed()  # the block's own exception counts
        raise
    engine.close()
    try:
        result_of(engine.closed)
    except KeyboardInterrupt:
        engine.cancel()
        engine.wait_closed()
        raise


def outcome_of(run: Run[T], timeout: float | None = None) -> T:
    """Return what a function in the trio thread returns, or raise. Ctrl-C cancels it, and waits for its end.

    `timeout`: seconds, after which it is cancelled too. Raises TimeoutError.
    """
    try:
        return result_of(run.ended, timeout)
    except BaseException:
        run.cancel()
        run.ended.exception()
        raise
