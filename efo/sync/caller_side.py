"""The application's side of the synchronous door: calls run in the thread that waits for the consumer."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from efo.doors.calls import ApplicationSide, Call
from efo.doors.engine import Run


class CallerSide(ApplicationSide):
    """Runs calls, one after the other, in the thread that calls `serve`."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: SimpleQueue[Call | None] = SimpleQueue()

    def begin(self, call: Call) -> None:
        """Begin a call when those before it have ended."""
        self._calls.put(call)

    def cancel(self, call: Call) -> None:
        """Do nothing: a call that runs cannot be cancelled, and `serve` does not begin one that is cancelled."""

    def serve(self, run: Run[None]) -> None:
        """Run calls until the consumer's run has ended; raise what it raised.

        Ctrl-C, and SystemExit of a handler, cancel the run: the running call is interrupted, no other one begins, and
        what was acked is saved. That takes some seconds at most, and is not interrupted by a second Ctrl-C.
        """
        run.ended.add_done_callback(lambda _ended: self._calls.put(None))
        exiting: BaseException | None = None
        while True:
            call: Call | None = None
            try:
                if (call := self._calls.get()) is None:
                    break
                if exiting is not None or call.is_cancelled:
                    call.was_cancelled()
                else:
                    _run(call)
            except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt, SystemExit: an Exception was reported
                exiting = exiting or error
                run.cancel()
                if call is not None and not call.has_ended:
                    call.was_cancelled()
        if exiting is not None:
            raise exiting
        run.ended.result()


def _run(call: Call) -> None:
    try:
        result = call.context.run(_call, call.function, call.args)
    except Exception as error:  # noqa: BLE001 - the failure policy decides
        call.raised(error)
    else:
        call.returned(result)


def _call(function: Callable[..., object], args: tuple[Any, ...]) -> object:
    return function(*args)
