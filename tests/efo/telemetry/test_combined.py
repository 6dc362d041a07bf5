"""Combined observers: who is called with what, and holding back frequent events, of which none is lost or overtaken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from efo import events
from efo.events import BatchDelivered, Event, EventReceived, ShardPaused
from efo.telemetry.combined import MAX_HELD, MAX_SECONDS, Combined, combine_observers
from efo.telemetry.log import LoggingObserver

SHARD = "shardId-000000000000"


class Holding:
    """An observer that takes frequent events some at a time."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.drain: Callable[[], None] = lambda: None

    def __call__(self, event: Event) -> None:
        self.seen.append(event)

    def observe_many(self, held: Sequence[Event]) -> None:
        self.seen.extend(held)

    def held_by(self, drain: Callable[[], None]) -> None:
        self.drain = drain


class Burst:
    """An observer that takes many events, beside one that takes each at once; a manual clock."""

    def __init__(self) -> None:
        self.now = 5.0
        self.holding = Holding()
        self.prompt: list[Event] = []
        self.observe = Combined((self.holding, self.prompt.append), lambda: self.now)
        self.observed: list[Event] = []

    def add(self, times: int = 1) -> None:
        for _ in range(times):
            self.pass_on(BatchDelivered("s-0", len(self.observed)))

    def pass_on(self, event: Event) -> None:
        self.observed.append(event)
        self.observe(event)


@pytest.fixture
def burst():
    return Burst()


def test_combined_observers_are_all_called_in_order():
    seen = []
    observe = combine_observers(lambda event: seen.append((1, event)), lambda event: seen.append((2, event)))
    event = events.ShardPaused(SHARD)
    observe(event)
    assert seen == [(1, event), (2, event)]


def test_a_combined_observer_passes_events_only_to_those_that_observe_them():
    class Selective:
        def __init__(self) -> None:
            self.seen: list[events.Event] = []

        def observes(self, event_type: type) -> bool:
            return event_type is events.ShardsListed

        def __call__(self, event: events.Event) -> None:
            self.seen.append(event)

    every: list[events.Event] = []
    selective = Selective()
    observe = combine_observers(combine_observers(selective, every.append), events.ignore_events)
    listed, paused = events.ShardsListed(4), events.ShardPaused(SHARD)
    for event in (listed, paused, listed):
        observe(event)
    assert (every, selective.seen) == ([listed, paused, listed], [listed, listed])


def test_a_single_function_is_not_wrapped():
    seen: list[Event] = []
    observe = seen.append
    assert combine_observers(observe, events.ignore_events) is observe
    assert combine_observers() is events.ignore_events


def test_the_first_event_of_a_second_is_passed_on_with_those_before_it(burst):
    burst.add()
    assert burst.holding.seen == burst.observed
    burst.add(5)
    assert burst.holding.seen == burst.observed[:1]
    burst.now += MAX_SECONDS
    burst.add()
    assert burst.holding.seen == burst.observed


def test_no_more_events_are_held_back_than_allowed(burst):
    burst.add(1 + MAX_HELD - 1)
    assert burst.holding.seen == burst.observed[:1]
    burst.add()
    assert burst.holding.seen == burst.observed


def test_an_observer_that_holds_nothing_back_gets_each_event_at_once(burst):
    burst.add(3)
    assert burst.prompt == burst.observed


def test_an_event_that_is_not_frequent_comes_at_once_after_those_that_were_held(burst):
    burst.add(3)
    burst.pass_on(ShardPaused(SHARD))
    assert burst.holding.seen == burst.prompt == burst.observed


def test_an_observer_gets_what_is_held_back_when_it_asks(burst):
    burst.add(3)
    burst.holding.drain()
    assert burst.holding.seen == burst.observed


def test_observers_that_were_combined_before_are_held_once():
    holding, other = Holding(), Holding()
    observe = combine_observers(combine_observers(holding, events.ignore_events), other)
    received = [EventReceived("s-0", 1, 2, 3, None) for _ in range(3)]
    for event in received:
        observe(event)
    holding.drain()
    assert holding.seen == other.seen == received


def test_a_subclass_with_a_call_of_its_own_gets_every_event():
    class Noting(LoggingObserver):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Event] = []

        def __call__(self, event: Event) -> None:
            self.seen.append(event)

    noting = Noting()
    delivered = BatchDelivered("s-0", 1)
    combine_observers(noting, events.ignore_events)(delivered)
    assert noting.seen == [delivered]
