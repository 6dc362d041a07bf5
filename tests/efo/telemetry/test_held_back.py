"""Events that are held back until a stream is read."""

from __future__ import annotations

from efo import events
from efo.telemetry.held_back import HeldBack

BEFORE = [events.WorkerStarted("w"), events.ConsumerOpened(None)]
LISTED = events.ShardsListed(2)
AFTER = events.ShardPaused("s")


def test_what_comes_before_the_listing_follows_the_report_that_it_is_read():
    told: list[object] = []
    observe = HeldBack(told.append, lambda: told.append("reading"))
    for event in BEFORE:
        observe(event)
    assert told == []
    observe(LISTED)
    observe(AFTER)
    observe(LISTED)
    assert told == ["reading", *BEFORE, LISTED, AFTER, LISTED]


def test_an_attempt_that_ends_before_tells_nothing():
    told: list[object] = []
    observe = HeldBack(told.append, lambda: told.append("reading"))
    for event in BEFORE:
        observe(event)
    del observe
    assert told == []
