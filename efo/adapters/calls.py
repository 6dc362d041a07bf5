"""Calls a function of the application on its side of a surface, from a trio task, and waits for the result."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, cast

import trio

from efo.adapters.mailbox import TrioMailbox
from efo.adapters.process_end import ForkedError
from efo.checks import signature_of
from efo.errors import EfoError, HandlerError

P = ParamSpec("P")
T = TypeVar("T")

ENDED: Final = "it is closed: use it within its `with` block, before `timeout=` or an error ends it"


class Call:
    """One call of an application's function. Its side of the surface runs it, and says how it ended.

    `context`: the context variables of the trio task, with them the current span. `is_cancelled`: trio wants it to end:
    the application's side cancels it if it can, and does not begin it any more.
    """

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...], side: ApplicationSide) -> None:
        self.function = function
        self.args = args
        self.context: Context = copy_context()
        self.is_cancelled = False
        self.running: object = None  # what the application's side keeps about it
        self._task = trio.lowlevel.current_task()
        self._side = side
        self._raise_cancel: Callable[[], NoReturn] | None = None
        self._result: object = None
        self._error: Exception | None = None
        self._ended_early = False
        self._has_resumed = False  # in the trio thread
        self.has_ended = False

    def returned(self, result: object) -> None:
        """Note what the function returned, and let the trio task go on."""
        self._result = result
        self._resume()

    def raised(self, error: Exception) -> None:
        """Note what the function raised."""
        self._error = error
        self._resume()

    def was_cancelled(self) -> None:
        """Note that the call was cancelled, or never begun."""
        self._ended_early = True
        self._resume()

    def end_early(self, _task: object = None) -> None:
        """Note that it was interrupted, or that its task was cancelled before it could begin, unless it has ended."""
        if not self.has_ended:
            self.was_cancelled()

    def _resume(self) -> None:
        self._side.post(self._reschedule)
        self.has_ended = True  # afterwards: Ctrl-C between them may let it end twice, but never not at all

    def _reschedule(self) -> None:
        if not self._has_resumed:
            self._has_resumed = True
            trio.lowlevel.reschedule(self._task)

    async def result(self, cancel: Callable[[Call], None]) -> object:
        """Wait for the end of the call; return its result or raise its error. `cancel`: asks for an early end."""

        def abort(raise_cancel: Callable[[], NoReturn]) -> trio.lowlevel.Abort:
            self._raise_cancel, self.is_cancelled = raise_cancel, True
            cancel(self)
            return trio.lowlevel.Abort.FAILED  # the task goes on when the call has really ended

        await trio.lowlevel.wait_task_rescheduled(abort)
        if self._error is not None:
            raise self._error
        if self._ended_early:
            if self._raise_cancel is not None:
                self._raise_cancel()
            raise HandlerError("the application cancelled a call of efo, so its batch is not done")
        return self._result


class ApplicationSide(ABC):
    """The application's side of a surface.

    `fail`: ends what is open with an error that nobody else gets. Safe in any thread. `is_forked`: this process
    is a forked child, which has no trio thread.
    """

    def __init__(self) -> None:
        self.is_forked = False
        self.trio_side: TrioMailbox  # these are set before the first call
        self.token: trio.lowlevel.TrioToken
        self.fail: Callable[[Exception], object]

    @abstractmethod
    def begin(self, call: Call) -> None:
        """Begin a call soon. Called in the trio thread. Raises EfoError if that side is gone."""

    @abstractmethod
    def cancel(self, call: Call) -> None:
        """Let a call end early, if that is possible. Called in the trio thread."""

    def check_process(self) -> None:
        """Refuse to ask anything in a forked child. Raises ForkedError."""
        if self.is_forked:
            raise ForkedError

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the trio thread soon, in order. No effect if that thread has ended. Raises ForkedError."""
        self.check_process()
        with suppress(trio.RunFinishedError):
            self.trio_side.post(function, *args)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the trio thread, after all that was posted before; return what it returns, or raise.

        It blocks for as long as a step of a trio task takes: a few milliseconds at most. Raises EfoError if that thread
        has ended.
        """
        self.check_process()
        try:
            return trio.from_thread.run_sync(self._after_posts, function, args, trio_token=self.token)
        except trio.RunFinishedError:
            raise EfoError(ENDED) from None

    def call_or_closed(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the trio thread, or here if that thread has ended. Raises ForkedError."""
        self.check_process()
        try:
            return trio.from_thread.run_sync(self._after_posts, function, args, trio_token=self.token)
        except trio.RunFinishedError:
            return function(*args)

    def _after_posts(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        self.trio_side.run()
        return function(*args)


SIDE: ContextVar[ApplicationSide] = ContextVar("efo_application_side")
"""The application's side, for the tasks of a consumer behind a surface."""


def outside(function: Callable[P, object]) -> Callable[P, Awaitable[Any]]:
    """Return an async function for trio that calls `function` on the application's side of the surface."""

    @functools.wraps(function, updated=())
    async def call_outside(*args: P.args, **_: P.kwargs) -> object:
        side = SIDE.get(None)
        if side is None:
            raise EfoError("a function for efo.aio or efo.sync was called by a consumer of trio: use the same surface")
        call = Call(function, args, side)
        side.begin(call)
        return await call.result(side.cancel)

    del call_outside.__wrapped__  # it need not be async, and `is_async` looks through wrappers
    call_outside.__signature__ = signature_of(function)  # type: ignore[attr-defined]
    return cast("Callable[P, Awaitable[Any]]", call_outside)
