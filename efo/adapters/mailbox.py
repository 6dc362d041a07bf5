"""Passes calls from one thread to another, in order, and wakes the other one no more often than needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import trio

Wake = Callable[[Callable[[], None]], object]
"""Lets the other thread call a function soon; called in any thread."""


class Mailbox:
    """Functions for another thread to call. `wake(run)` lets that thread call `run` soon, from any thread.

    A wake costs system calls and a switch between threads. So there is one for each pause of the other thread, and none
    while it is at work. `failed`: called in the other thread with what a function raised.
    """

    __slots__ = ("_failed", "_pause", "_posted", "_wake", "_woken")

    def __init__(self, wake: Wake, failed: Callable[[Exception], object]) -> None:
        self._wake = wake
        self._failed = failed
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._pause = 1  # the number of the pause that the other thread makes, or will make next
        self._woken = 0  # the pause from which it was woken

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Let the other thread call a function. Safe in any thread and in a signal handler.

        Raises what `wake` raises.
        """
        self._posted.append((function, args))
        pause = self._pause
        if pause != self._woken:
            try:
                self._wake(self.run)
            except Exception:  # the other thread has ended
                self._posted.clear()
                raise
            self._woken = pause  # afterwards: if Ctrl-C comes between, there is a second wake, and not none

    def run(self) -> None:
        """Call what was posted. Called in the other thread."""
        try:
            self._call_all()
        except BaseException:  # KeyboardInterrupt: what is left is called later
            self._pause += 1
            self._wake(self.run)
            raise

    def _call_all(self) -> None:
        while True:  # also if nothing is posted: a wake that finds nothing is the one of a pause, and ends it
            self._call_posted()
            self._pause += 1
            if not self._posted:  # look again: what came just before was posted by someone who saw a thread at work
                return

    def _call_posted(self) -> None:
        while self._posted:
            function, args = self._posted.popleft()
            try:
                function(*args)
            except Exception as error:  # noqa: BLE001 - the owner of the surface ends what is open with it
                self._failed(error)


class TrioMailbox(Mailbox, trio.abc.Instrument):
    """Functions for the trio thread to call. They are called between two steps of trio's loop, outside of its tasks.

    While it is open, trio says when it waits for I/O. So nothing wakes it as long as it has something to do.
    """

    __slots__ = ("_at_end", "_is_open")

    def __init__(self, wake: Wake, failed: Callable[[Exception], object]) -> None:
        super().__init__(wake, failed)
        self._is_open = False
        self._at_end: dict[Callable[[], object], None] = {}  # an ordered set

    def open(self) -> None:
        """Begin to look at what was posted in each step of trio's loop. Called in a trio task."""
        self._is_open = True
        trio.lowlevel.add_instrument(self)

    def close(self) -> None:
        """Leave it to `wake` to have everything called, which refuses it when trio has ended. Called in a trio task."""
        trio.lowlevel.remove_instrument(self)
        self._is_open = False
        self._end_step()
        self._pause += 1
        self.run()

    def at_end_of_step(self, function: Callable[[], object]) -> None:
        """Call a function, which wakes the application, when this step of trio's loop ends. Called in the trio thread.

        The application would wait for the interpreter until then. So it is woken once for all that the step has for it.
        """
        self._at_end[function] = None
        if not self._is_open:
            self._end_step()
            self.run()

    def before_io_wait(self, timeout: float) -> None:
        """Make the calls for the end of the step, and note that trio may sleep from now on."""
        if self._at_end:
            self._end_step()
        if timeout > 0:
            self._pause += 1
            if self._posted:
                self._wake(self.run)

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 - the instrument's interface
        """Call what was posted. The tasks that it wakes run in this step of the loop."""
        self._woken = self._pause  # it is at work
        if self._posted:
            self._call_posted()

    def _end_step(self) -> None:
        for function in self._at_end:
            try:
                function()
            except Exception as error:  # noqa: BLE001 - as what a posted function raises
                self._posted.append((self._failed, (error,)))
        self._at_end.clear()

    def _call_all(self) -> None:
        if self._is_open:
            self._call_posted()
        else:
            super()._call_all()
