"""CPU as an oracle: what one step of a task, from one checkpoint to the next, takes of the thread's CPU time.

While a step runs, no other task does: no lease is renewed, no PING answered. CPU time and not the clock's, since other
processes of a busy machine take turns. They also take the caches, and machines differ: so a step is compared with a
fixed piece of work that is done right before and after it, and a test takes the smallest of a few runs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import trio

BOUND: Final = 0.050
"""Seconds that a step may take: a small part of the shortest intervals, those of lease renewal (R10) and PING (R8).

Of a machine that does the fixed work in `_FIXED_WORK` seconds, and longer on a slower one.
"""
_FIXED_WORK: Final = 0.010
"""What `_fixed_work` takes on the machine for which `BOUND` was chosen: a core of a server of 2023."""
_RUNS: Final = 3


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


def slowness() -> float:
    """Return how many times as long as that machine this thread takes now for the fixed work; 1 if it is faster."""
    began = time.thread_time()
    _fixed_work()
    return max(1.0, (time.thread_time() - began) / _FIXED_WORK)


def _fixed_work() -> None:
    """Do what steps of efo mostly do: build, look up and sort small objects, in pure Python."""
    rows = {f"shardId-{number:012}": (number % 7, str(number)) for number in range(6000)}
    _ = [key for key in sorted(rows, key=lambda key: rows[key]) if rows[key][1] in key]


async def slowest_step(
    scenario: Callable[[StepMeter], Awaitable[None]], *, slowness: Callable[[], float] = slowness
) -> Step:
    """Return the slowest step of a scenario: of the best of a few runs, which end with the first within BOUND.

    The scenario measures with the meter that it gets. Its time is divided by the `slowness` of the machine around it.
    AssertionError: it measured no step.
    """
    best = Step(float("inf"), "none")
    for _ in range(_RUNS):
        meter = StepMeter()
        before = slowness()
        await scenario(meter)
        if not meter.steps:
            raise AssertionError("no step of a task of efo was measured")
        fair = meter.slowest.seconds / max(before, slowness())
        best = min(best, Step(fair, meter.slowest.task))
        if best.seconds <= BOUND:
            break
    return best
