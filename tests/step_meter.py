"""CPU as an oracle: what one step of a task, from one checkpoint to the next, takes of the thread's CPU time.

While a step runs, no other task does: no lease is renewed, no PING answered. CPU time and not the clock's, since other
processes of a busy machine take turns; a test still takes the smallest of a few runs, as they also take the caches.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import trio

BOUND: Final = 0.050
"""Seconds that a step may take: a small part of the shortest intervals, those of lease renewal (R10) and PING (R8)."""
_RUNS: Final = 2


class Step(NamedTuple):
    """A step: its CPU time in seconds, and the name of its task."""

    seconds: float
    task: str


class StepMeter(trio.abc.Instrument):
    """Measures the steps of the tasks that efo started, without those of its fake: they run in this thread too.

    `modules`: where the functions of the measured tasks are. `slowest`: of the steps so far. `steps`: their number.
    """

    def __init__(
        self, modules: tuple[str, ...] = ("efo.", "efo_service."), but: tuple[str, ...] = ("efo.testing.",)
    ) -> None:
        self.slowest = Step(0.0, "none")
        self.steps = 0
        self._modules = modules
        self._but = but
        self._began: float | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Start the measurement, if the task is one of those."""
        # Its frame is gone after its last step.
        module = task.coro.cr_frame.f_globals["__name__"]
        measured = module.startswith(self._modules) and not module.startswith(self._but)
        self._began = time.thread_time() if measured else None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """End it."""
        if self._began is None:
            return
        self.steps += 1
        seconds = time.thread_time() - self._began
        if seconds > self.slowest.seconds:
            self.slowest = Step(seconds, task.name)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure the steps of the current trio.run within this context.

        The garbage collector is off: its passes take time by all objects of the process, and here most of them are of
        the fake and of other tests. So this measures what a step does, not what its garbage costs.
        """
        gc.collect()
        gc.disable()
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)
            gc.enable()


async def slowest_step(scenario: Callable[[StepMeter], Awaitable[None]]) -> Step:
    """Return the slowest step of a scenario: of the better of two runs, which end with the first within BOUND.

    The scenario measures with the meter that it gets. AssertionError: it measured no step.
    """
    best = Step(float("inf"), "none")
    for _ in range(_RUNS):
        meter = StepMeter()
        await scenario(meter)
        if not meter.steps:
            raise AssertionError("no step of a task of efo was measured")
        best = min(best, meter.slowest)
        if best.seconds <= BOUND:
            break
    return best
