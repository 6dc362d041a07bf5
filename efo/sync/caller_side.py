"""The application's side of the synchronous surface: calls run in the thread that waits, which signals reach."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait as wait_for
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from efo.adapters.calls import ApplicationSide, Call
from efo.adapters.engine import Engine, Run
from efo.adapters.process_end import ForkedError
from efo.errors import ConfigurationError


class CallerSide(ApplicationSide):
    """Runs calls, one after the other, in the thread that calls `serve`."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: deque[Call] = deque()  # the first one may be running, or have ended
        self._wakeup = Wakeup()
        self._is_serving = False

    def begin(self, call: Call) -> None:
        """Begin a call when those before it have ended."""
        self._calls.append(call)
        self.trio_side.at_end_of_step(self._wakeup.wake)

    def cancel(self, call: Call) -> None:
        """End a call that nobody will run any more.

        One that runs cannot be cancelled, and `serve` begins none that is cancelled.
        """
        if not self._is_serving:
            call.end_early()

    def serve(self, run: Run[None], begin: Callable[[], object]) -> None:
        """Begin the consumer's run, and run its calls until it has ended; raise what it raised.

        Ctrl-C, and SystemExit of a handler, cancel the run: the running call is interrupted, no other one begins, and
        what was acked is saved. That takes some seconds at most, and is not interrupted by a second Ctrl-C.
        """
        if self._is_serving:
            raise ConfigurationError("another thread runs this consumer: run it in one, or use Handler(..., threads=N)")
        run.ended.add_done_callback(lambda _ended: self._wakeup.wake())
        exiting: BaseException | None = None
        self._is_serving = True
        try:
            begin()
            while not run.ended.done() or self._calls:
                try:
                    self._serve_next(run, is_exiting=exiting is not None)
                except ForkedError:  # a handler forked, and the child returned from it
                    raise
                except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt, SystemExit: an Exception was reported
                    exiting = exiting or error
                    run.cancel()
                    if self._calls:
                        self._calls[0].end_early()
        finally:
            self._is_serving = False
            if not run.ended.done():  # Ctrl-C came outside of what is caught above
                run.cancel()
                for call in list(self._calls):
                    call.end_early()
        if exiting is not None:
            raise exiting
        run.ended.result()

    def _serve_next(self, run: Run[None], *, is_exiting: bool) -> None:
        """Run the first call, or sleep until there is one. It stays the first one until it has ended."""
        if not self._calls:
            self._wakeup.sleep_unless(lambda: self._calls or run.ended.done())
            return
        call = self._calls[0]
        if not call.has_ended:
            if is_exiting or call.is_cancelled:
                call.was_cancelled()
            else:
                _run(call)
        self._calls.popleft()


def _run(call: Call) -> None:
    try:
        result = call.context.run(_call, call.function, call.args)
    except Exception as error:  # noqa: BLE001 - the failure policy decides
        call.raised(error)
    else:
        call.returned(result)


def _call(function: Callable[..., object], args: tuple[Any, ...]) -> object:
    return function(*args)


T = TypeVar("T")

NAP_SECONDS: Final = 0.5
"""The longest sleep. Python calls signal handlers between two steps of the main thread: a signal that comes after the
last step and before the sleep does not end it, so its handler waits for the next step."""


class Wakeup:
    """Wakes all threads that sleep until `wake`. Ctrl-C may interrupt a sleep at any moment, without harm."""

    def __init__(self) -> None:
        self._sleeping: deque[SimpleQueue[None]] = deque()  # changed by single steps of the interpreter

    def wake(self) -> None:
        """Wake the threads that sleep or are about to. Safe in any thread and in a signal handler."""
        while self._sleeping:
            try:
                sleeper = self._sleeping.popleft()
            except IndexError:  # another thread wakes them too
                return
            sleeper.put(None)

    def sleep_unless(self, is_ready: Callable[[], object]) -> None:
        """Sleep until `wake`, unless something is ready. It may end early: look again what there is."""
        mine: SimpleQueue[None] = SimpleQueue()
        self._sleeping.append(mine)  # before the look: whoever makes something ready afterwards wakes it
        if not is_ready():
            with suppress(Empty):
                mine.get(timeout=NAP_SECONDS)
                return
        with suppress(ValueError):  # it was woken meanwhile
            self._sleeping.remove(mine)


def result_of(future: Future[T], timeout: float | None = None) -> T:
    """Wait for a future, and return its result or raise its error. A signal handler runs meanwhile, whenever it came.

    `timeout`: seconds. Raises TimeoutError after them.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while not future.done():
        left = NAP_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        wait_for([future], timeout=min(left, NAP_SECONDS))
    return future.result()


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
