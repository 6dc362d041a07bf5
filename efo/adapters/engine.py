"""A consumer or a producer in a trio thread of its own, for applications that do not run on trio.

The thread is trio's alone. So an application that blocks does not hold up the renewal of leases (rule R10), and one
whose thread runs an event loop already, such as a Jupyter notebook, is not disturbed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

import trio

from efo.adapters.calls import ENDED, SIDE, ApplicationSide
from efo.adapters.mailbox import TrioMailbox
from efo.adapters.process_end import end_in_child, watch
from efo.errors import EfoError
from efo.exception_groups import collapse_groups, shorten

O = TypeVar("O")  # noqa: E741 - what is opened
T = TypeVar("T")

run_trio: Final = trio.run
"""What runs trio in the thread; tests run it in virtual time."""


class Run(Generic[T]):
    """One async function in the trio thread. `ended`: resolved when it has ended, with what it returned or raised."""

    def __init__(self, post: Callable[..., None]) -> None:
        self.ended: Future[T] = Future()
        self.scope = trio.CancelScope()
        self._post = post

    def cancel(self) -> None:
        """Cancel it: what it has begun is ended in order."""
        if not self.ended.done():
            self._post(self.scope.cancel)


class _LeftError(Exception):
    """What was opened is left as by an exception: it ends in order, but takes less time than for a regular end."""


class Engine(Generic[O]):
    """Opens something in a thread of its own, and keeps it open.

    `side`: where the functions of the application are called. `value`: what was opened. `opened`: resolved when it is
    open, or could not be opened. `closed`: resolved when the thread has ended. `before_close`: called with the value
    when it is to be closed. `pending`: returns how much the value has still to send; None if it sends nothing.
    """

    def __init__(
        self,
        opening: AbstractAsyncContextManager[O],
        side: ApplicationSide,
        before_close: Callable[[O], object],
        pending: Callable[[O], int] | None = None,
    ) -> None:
        self.value: O
        self.side = side
        self.opened: Future[None] = Future()
        self.closed: Future[None] = Future()
        side.trio_side, side.fail = TrioMailbox(self._wake, self._fail), self.fail
        self._opening = opening
        self._pending = pending
        self.before_close = before_close
        self._has_begun = threading.Event()
        self._closing: trio.Event
        self._nursery: trio.Nursery
        self._everything = trio.CancelScope()
        self._is_open = self._is_cancelled = False
        self._failure: Exception | None = None
        self._runs: set[Run[Any]] = set()
        run = copy_context().run  # the application's context variables are those of its handlers too
        self._thread = threading.Thread(target=run, args=(self._thread_main,), name="efo", daemon=True)

    def start(self) -> None:
        """Start the thread. Then wait for `opened`."""
        watch(self)
        self._thread.start()
        self._has_begun.wait()  # some milliseconds: from now on it can be cancelled

    def close(self) -> None:
        """Close it, after what runs has ended. Then wait for `closed`."""
        self.post(self._close)

    def cancel(self) -> None:
        """Cancel everything: what was acked is saved, leases are released. Then wait for `closed`."""
        if self.closed.done():
            return  # also in a forked child
        if self._thread.ident is None:  # Ctrl-C came before it was started
            self.closed.set_result(None)
        else:
            self._has_begun.wait()
            self.post(self._cancel)

    def wait_closed(self) -> None:
        """Wait for `closed`, whatever it raises, unless the thread cannot end: a finalizer may run anywhere."""
        if threading.current_thread() is not self._thread and not sys.is_finalizing():
            self.closed.exception()

    def run(self, function: Callable[..., Awaitable[T]], *args: Any) -> Run[T]:
        """Start an async function in the trio thread. Raises EfoError if the thread has ended."""
        run = Run[T](self.post)
        self.begin(run, function, *args)
        return run

    def begin(self, run: Run[T], function: Callable[..., Awaitable[T]], *args: Any) -> None:
        """Start an async function as a run that the caller has already, and can cancel if Ctrl-C comes meanwhile."""
        self.side.check_process()
        self._runs.add(run)
        try:
            self.side.trio_side.post(self._start_run, run, function, args)
        except trio.RunFinishedError:
            self._runs.discard(run)
            raise EfoError(ENDED) from None

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the trio thread soon, in order. No effect if the thread has ended."""
        self.side.post(function, *args)

    def fail(self, error: Exception) -> None:
        """End everything with an error, in order. What runs, and the end, raise it on the application's side."""
        self.post(self._fail, error)

    # --- the end of the process --------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._thread.ident is not None and not self.closed.done()

    def describe(self) -> str:
        """Return what is open, and how much it has to send."""
        if self._pending is None:
            return "consumer"
        return f"producer with {self._pending(self.value) if self._is_open else 0} records in its buffer"

    def end_with_process(self) -> str:
        """End it because its process ends: a producer sends what it has. Return what to do instead, in words."""
        if self._pending is None or not self._is_open:
            self.cancel()  # nobody calls its handlers any more
            return "what was acked is saved; leave its `with` block, so that it drains"
        self.close()
        return "they are sent now; leave its `with` block, and see there whether all could be stored"

    def forked(self) -> None:
        """Let all that waits, and all that is asked from now on, raise ForkedError: this process is a forked child."""
        self.side.is_forked = True
        for future in (self.opened, self.closed, *(run.ended for run in self._runs)):
            end_in_child(future)
        self._runs.clear()

    def _wake(self, run: Callable[[], None]) -> None:
        self.side.token.run_sync_soon(run)

    # --- in the trio thread ------------------------------------------------------------------------------------------

    def _thread_main(self) -> None:
        failure: BaseException | None = None
        try:
            run_trio(self._main)
        except BaseException as error:  # noqa: BLE001 - raised on the application's side
            failure = shorten(error)
        self._has_begun.set()
        for run in list(self._runs):
            run.ended.set_exception(failure or EfoError("it was closed while it was running"))
        if not self.opened.done():
            self.opened.set_exception(failure or EfoError("it was closed while it was opening"))
            failure = None  # raised once
        if failure is None:
            self.closed.set_result(None)
        else:
            self.closed.set_exception(failure)

    async def _main(self) -> None:
        self.side.token, self._closing = trio.lowlevel.current_trio_token(), trio.Event()
        self.side.trio_side.open()
        self._has_begun.set()
        try:
            await self._hold_open()
        finally:
            self.side.trio_side.close()
        if self._failure is not None:
            raise self._failure

    async def _hold_open(self) -> None:
        with suppress(_LeftError), collapse_groups(), self._everything:
            async with self._opening as self.value:
                async with trio.open_nursery() as self._nursery:
                    self._is_open = True
                    self.opened.set_result(None)
                    await self._closing.wait()
                self._is_open = False  # from now on, a cancellation is that of the end
                if self._is_cancelled:
                    raise _LeftError

    def _close(self) -> None:
        self.before_close(self.value)
        self._closing.set()

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._is_open:
            self._nursery.cancel_scope.cancel()
        else:
            self._everything.cancel()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._cancel()

    def _start_run(self, run: Run[T], function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        try:
            self._nursery.start_soon(self._run, run, function, args)
        except RuntimeError:  # the nursery has ended, and what was opened is being closed
            self._runs.discard(run)
            run.ended.set_exception(EfoError("it is being closed: no more can be begun"))

    async def _run(self, run: Run[T], function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        SIDE.set(self.side)  # for the tasks of the shards, which inherit it
        try:
            with run.scope:
                result = await function(*args)
        except Exception as error:  # noqa: BLE001 - raised on the application's side
            self._runs.discard(run)
            run.ended.set_exception(shorten(error))
            return
        self._runs.discard(run)
        if run.scope.cancelled_caught:
            run.ended.set_exception(EfoError("it was cancelled"))
        else:
            run.ended.set_result(result)
