from __future__ import annotations

import logging

from efo.events import BatchDelivered, LeaseLost, ShardStarted, WorkerStarted
from efo.model import Checkpoint
from efo_service.web.live.recent import KEPT, RecentEvents


def test_events_are_kept_as_the_sentences_of_the_log_with_level_and_worker(caplog):
    recent = RecentEvents(clock=lambda: 7.5)
    recent(WorkerStarted("w-1"))
    recent(ShardStarted("s-0", Checkpoint("5")))
    recent(BatchDelivered("s-0", 10))
    recent(LeaseLost("s-0", "taken"))
    first, second = recent.sentences()
    assert (first.text, first.level, first.at, first.worker) == ("s-0: started after 5", "info", 7.5, "w-1")
    assert (second.text, second.level, second.number) == ("s-0: the lease is no longer held: taken", "warning", 2)
    assert caplog.records == []  # the service's log has its own lines


def test_only_the_last_ones_are_kept_and_two_services_keep_their_own():
    recent, other = RecentEvents(), RecentEvents()
    for number in range(KEPT + 50):
        recent(ShardStarted(f"s-{number}", Checkpoint("5")))
    assert len(recent.sentences()) == KEPT
    assert recent.sentences()[-1].number == KEPT + 50
    assert other.sentences() == ()
    assert RecentEvents.__module__ not in logging.root.manager.loggerDict
