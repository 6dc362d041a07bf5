"""The application's side of the synchronous surface: calls run in the thread that waits for the consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from efo.adapters.calls import ApplicationSide, Call
from efo.adapters.engine import Run
from efo.adapters.process_end import ForkedError
from efo.errors import ConfigurationError
from efo.sync.wakeup import Wakeup


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
