"""The application's side of the asyncio surface: calls run as tasks of its event loop, which waits for trio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

from efo.adapters.calls import ApplicationSide, Call
from efo.adapters.engine import Engine, Run
from efo.adapters.mailbox import Mailbox
from efo.errors import EfoError
from efo.event_loops import require_asyncio

_LOOP_CLOSED = "the event loop was closed before the consumer: leave `async with` first"


class LoopSide(ApplicationSide):
    """Runs calls as tasks of the running event loop. Made in the thread of that loop."""

    def __init__(self) -> None:
        super().__init__()
        require_asyncio("efo.aio")
        self.loop = asyncio.get_running_loop()
        self._mailbox = Mailbox(self._wake, lambda error: self.fail(error))  # noqa: PLW0108 - set later

    def begin(self, call: Call) -> None:
        """Begin a call as a task. Raises EfoError if the loop is closed."""
        if self.loop.is_closed():
            raise EfoError(_LOOP_CLOSED)
        self.post_to_loop(self._start, call)

    def cancel(self, call: Call) -> None:
        """Cancel the call's task."""
        self.post_to_loop(_cancel, call)

    def post_to_loop(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop's thread, in order. Called in the trio thread."""
        self._mailbox.post(function, *args)

    def _wake(self, run: Callable[[], None]) -> None:
        self.trio_side.at_end_of_step(partial(self._wake_loop, run))

    def _wake_loop(self, run: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(run)
        except RuntimeError:
            raise EfoError(_LOOP_CLOSED) from None

    def _start(self, call: Call) -> None:
        if call.is_cancelled:
            call.was_cancelled()
            return
        call.running = task = self.loop.create_task(_run(call), context=call.context)
        task.add_done_callback(call.end_early)


async def _run(call: Call) -> None:
    """Call the function and report how it ended; the loop itself raises KeyboardInterrupt and SystemExit.

    It reports here and not in a callback of the task, which would cost another round of the loop.
    """
    if isinstance(call.running, asyncio.Task):
        call.running.remove_done_callback(call.end_early)
    try:
        result = call.function(*call.args)
        if isawaitable(result):
            result = await result
    except Exception as error:  # noqa: BLE001 - the failure policy decides
        call.raised(error)
    except asyncio.CancelledError:
        call.was_cancelled()
        raise
    except BaseException:
        call.was_cancelled()
        if (task := asyncio.current_task()) is not None:
            task.add_done_callback(asyncio.Task.exception)  # so that it is not logged too
        raise
    else:
        call.returned(result)


def _cancel(call: Call) -> None:
    if isinstance(call.running, asyncio.Task):
        call.running.cancel()


T = TypeVar("T")


async def outcome_of(run: Run[T]) -> T:
    """Return what a function in the trio thread returns, or raise. A cancellation cancels it, and waits for its end."""
    ended = asyncio.wrap_future(run.ended)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        run.cancel()
        await finish(ended)
        raise


async def finish(future: asyncio.Future[Any]) -> None:
    """Wait for a future to its end, whatever cancels this task meanwhile; raise nothing."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    future.exception()  # the cancellation counts


@asynccontextmanager
async def open_engine(engine: Engine[Any]) -> AsyncIterator[None]:
    """Start an engine and wait until it is open; close it at the end. An exception of the block cancels it."""
    engine.start()
    opened, closed = asyncio.wrap_future(engine.opened), asyncio.wrap_future(engine.closed)
    try:
        await asyncio.shield(opened)
        yield
    except BaseException:
        engine.cancel()
        await finish(closed)  # the block's own exception counts
        if opened.done():
            opened.exception()
        raise
    engine.close()
    try:
        await asyncio.shield(closed)
    except asyncio.CancelledError:
        engine.cancel()
        await finish(closed)
        raise
