"""The application's side of the asyncio door: calls run as tasks of its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from efo.doors.calls import ApplicationSide, Call
from efo.doors.mailbox import Mailbox
from efo.errors import EfoError


class LoopSide(ApplicationSide):
    """Runs calls as tasks of the running event loop. Made in the thread of that loop."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self._mailbox = Mailbox(self.loop.call_soon_threadsafe)

    def begin(self, call: Call) -> None:
        """Begin a call as a task. Raises EfoError if the loop is closed."""
        self.post_to_loop(self._start, call)

    def cancel(self, call: Call) -> None:
        """Cancel the call's task."""
        self.post_to_loop(_cancel, call)

    def post_to_loop(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop's thread, in order. Raises EfoError if the loop is closed."""
        try:
            self._mailbox.post(function, *args)
        except RuntimeError:
            raise EfoError("the event loop was closed before the consumer: leave `async with` first") from None

    def _start(self, call: Call) -> None:
        if call.is_cancelled:
            call.was_cancelled()
            return
        task = self.loop.create_task(_run(call), context=call.context)
        call.running = task
        task.add_done_callback(lambda ended: _report(call, ended))


async def _run(call: Call) -> object:
    result = call.function(*call.args)
    return await result if isawaitable(result) else result


def _cancel(call: Call) -> None:
    if isinstance(call.running, asyncio.Task):
        call.running.cancel()


def _report(call: Call, task: asyncio.Task[object]) -> None:
    """Report the end of a call; the loop itself raises KeyboardInterrupt and SystemExit."""
    error = None if task.cancelled() else task.exception()
    if task.cancelled() or (error is not None and not isinstance(error, Exception)):
        call.was_cancelled()
    elif error is not None:
        call.raised(error)
    else:
        call.returned(task.result())
