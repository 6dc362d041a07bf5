"""Stopping: a signal asks for it, a deadline or a second signal cuts it short."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

import structlog
import trio

from efo_service.errors import DrainDeadlineError

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Drain:
    """How the work of `scope` ends: asked first, cancelled after `seconds`.

    Enter `scope` around the work, and run `watch` beside it, outside of the scope.
    """

    def __init__(self, seconds: float) -> None:
        self.scope = trio.CancelScope()
        self._seconds = seconds
        self._ask: Callable[[], None] | None = None
        self._asked = False

    def finish_with(self, ask: Callable[[], None]) -> None:
        """Tell how the work is asked to finish. Until then a stop simply cancels it: nothing has begun."""
        self._ask = ask
        if self._asked:
            ask()

    async def watch(
        self, on_stop: Callable[[], None], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Wait for SIGTERM or SIGINT; call `on_stop`, then let the work finish. Runs until it is cancelled."""
        log = structlog.get_logger()
        with trio.open_signal_receiver(*SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                name = signal.Signals(number).name
                if self._asked:
                    log.warning("drain_cut_short", signal=name)
                    self.scope.cancel()
                    continue
                log.info("draining", signal=name, seconds=self._seconds)
                on_stop()
                self._stop()

    def _stop(self) -> None:
        self._asked = True
        if self._ask is None:
            self.scope.cancel()
            return
        self.scope.deadline = trio.current_time() + self._seconds
        self._ask()

    def check(self) -> None:
        """Raise DrainDeadlineError if the work had begun and was cut short."""
        if self.scope.cancelled_caught and self._ask is not None:
            raise DrainDeadlineError(
                f"stopped before the work in flight was finished (at most {self._seconds:g} s are given, see "
                "[service] drain_seconds): what was not committed will be read again"
            )
