"""A fuzz target."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

BUDGET: Final = 0.150
"""CPU seconds that the check of any input may take, instrumented by atheris: 20 times what the slowest seed needs."""
BUDGET_PER_BYTE: Final = 100e-6
"""CPU seconds that each byte of an input adds to that. The seeds need up to 8 µs: a check parses them repeatedly."""
STEP: Final = 0.050
"""CPU seconds that a step of a task may take (`tests/step_meter.py`): the budget of what is called within one step."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parser to fuzz.

    `check`: takes any bytes. Raises AssertionError, or lets another exception through, if a property does not hold.
    `seeds`: makes inputs from real frames. `dictionary`: byte strings that the fuzzer may insert. `max_length`: the
    maximum length of an input, in bytes. `budget`: CPU seconds of any input, besides those of its bytes.
    """

    name: str
    description: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    dictionary: tuple[bytes, ...] = ()
    max_length: int = 4096
    budget: float = BUDGET

    def run(self, data: bytes, clock: Callable[[], float] = time.thread_time) -> None:
        """Check an input, and its CPU time: AssertionError, if it exceeds the budget twice. `clock`: CPU seconds."""
        budget = self.budget + BUDGET_PER_BYTE * len(data)
        spent = float("inf")
        for _ in range(2):  # the first one may import modules, or collect the garbage of many inputs
            began = clock()
            self.check(data)
            spent = min(spent, clock() - began)
            if spent <= budget:
                return
        raise AssertionError(f"{len(data)} bytes took {spent:.3f} s of CPU time, and may take {budget:.3f} s")


def require(condition: object, message: str) -> None:
    """Raise AssertionError unless the condition holds. Unlike `assert`, this also works under `python -O`."""
    if not condition:
        raise AssertionError(message)
