"""Events that are held back until a stream is read."""

from __future__ import annotations

from efo import events
from efo.telemetry.combined import HeldBack

BEFORE = [events.WorkerStarted("w"), events.ConsumerOpened(None)]
LISTED = events.ShardsListed(2)
AFTER = events.ShardPaused("s")


def test_what_comes_before_the_listing_follows_the_report_that_it_is_read():
    reported: list[object] = []
    observe = HeldBack(reported.append, lambda: reported.append("reading"))
    for event in BEFORE:
        observe(event)
    assert reported == []
    observe(LISTED)
    observe(AFTER)
    observe(LISTED)
    assert reported == ["reading", *BEFORE, LISTED, AFTER, LISTED]


def test_an_attempt_that_ends_before_tells_nothing():
    reported: list[object] = []
    observe = HeldBack(reported.append, lambda: reported.append("reading"))
    for event in BEFORE:
        observe(event)
    del observe
    assert reported == []
