"""The drain: a signal starts it, a deadline or a second signal cuts it short."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

import structlog
import trio

from efo_service.errors import DrainDeadlineError

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Drain:
    """Stops the work inside `scope`: asks it to finish, and cancels it after `seconds`.

    Enter `scope` around the work. Run `watch` concurrently, outside the scope.
    """

    def __init__(self, seconds: float) -> None:
        self.scope = trio.CancelScope()
        self._seconds = seconds
        self._finish: Callable[[], None] | None = None
        self._is_stopping = False

    def finish_with(self, finish: Callable[[], None]) -> None:
        """Set the function that asks the work to finish. Before this call, a signal cancels the work at once."""
        self._finish = finish
        if self._is_stopping:
            finish()

    async def watch(
        self, on_stop: Callable[[], None], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Wait for SIGTERM or SIGINT, call `on_stop`, and ask the work to finish. Runs until cancelled."""
        log = structlog.get_logger()
        with trio.open_signal_receiver(*SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                name = signal.Signals(number).name
                if self._is_stopping:
                    log.warning("drain_cut_short", signal=name)
                    self.scope.cancel()
                    continue
                log.info("draining", signal=name, seconds=self._seconds)
                on_stop()
                self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        if self._finish is None:
            self.scope.cancel()
            return
        self.scope.deadline = trio.current_time() + self._seconds
        self._finish()

    def check(self) -> None:
        """Raise DrainDeadlineError if the work had begun and was cut short."""
        if self.scope.cancelled_caught and self._finish is not None:
            raise DrainDeadlineError(
                f"the drain was cut short (it may take {self._seconds:g} s, see [service] drain_seconds): "
                "records that are not committed will be read again"
            )
