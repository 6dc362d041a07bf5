"""Holding back the events of a burst: nothing is lost, nothing changes its place."""

from __future__ import annotations

import pytest

from efo.events import BatchDelivered, Event
from efo.telemetry.bursts import AT_ONCE, MAX_HELD, Bursts


class Burst:
    """A `Bursts` with a manual clock, and what it passed on."""

    def __init__(self) -> None:
        self.now = 5.0
        self.seen: list[Event] = []
        self.bursts = Bursts(self.seen.append, lambda: self.now)
        self.added: list[Event] = []

    def add(self, times: int = 1) -> None:
        for _ in range(times):
            self.added.append(BatchDelivered("s-0", len(self.added)))
            self.bursts.add(self.added[-1])


@pytest.fixture
def burst():
    return Burst()


def test_a_quiet_consumer_waits_for_nothing(burst):
    for _ in range(10):
        burst.add(AT_ONCE)
        assert burst.seen == burst.added
        burst.now += 1


def test_in_a_burst_several_events_are_passed_on_together_in_their_order(burst):
    burst.add(AT_ONCE + MAX_HELD - 1)
    assert burst.seen == burst.added[:AT_ONCE]
    burst.add()
    assert burst.seen == burst.added
    burst.add(3)
    burst.bursts.drain()
    assert burst.seen == burst.added


def test_after_a_burst_the_next_event_passes_on_what_was_held_before_it(burst):
    burst.add(AT_ONCE + 5)
    burst.now += 1
    burst.add()
    assert burst.seen == burst.added
