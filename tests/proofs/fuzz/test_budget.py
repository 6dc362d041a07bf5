"""An input that takes too much CPU time for its size is a failure of its target."""

import pytest

from proofs.fuzz.target import BUDGET, BUDGET_PER_BYTE, Target
from proofs.fuzz.targets import TARGETS


class Clock:
    """CPU time that only the checks take."""

    def __init__(self, *seconds):
        self.now = 0.0
        self.runs = 0
        self._seconds = seconds

    def __call__(self):
        return self.now

    def check(self, _data):
        self.now += self._seconds[min(self.runs, len(self._seconds) - 1)]
        self.runs += 1


def run(clock, length):
    Target("name", "description", clock.check, list).run(bytes(length), clock)


def test_an_input_may_take_a_budget_for_each_byte():
    clock = Clock(BUDGET + 900 * BUDGET_PER_BYTE)
    run(clock, 1000)
    assert clock.runs == 1
    with pytest.raises(AssertionError, match=r"800 bytes took 0\.240 s of CPU time, and may take 0\.230 s"):
        run(Clock(BUDGET + 900 * BUDGET_PER_BYTE), 800)


def test_an_input_is_slow_only_if_it_is_slow_twice():
    clock = Clock(9.0, 0.01)
    run(clock, 10)
    assert clock.runs == 2


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_keep_the_budget(name):
    for seed in TARGETS[name].seeds():
        TARGETS[name].run(seed)
