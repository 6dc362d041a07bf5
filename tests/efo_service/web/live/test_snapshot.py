from __future__ import annotations

from efo_service.web.live.recent import Sentence
from efo_service.web.live.shard_map import Live
from efo_service.web.live.snapshot import Snapshot, WorkerView, changes, workers_of
from tests.efo_service.web.live.views import place, view

A, B = Live("a", "current", lag=0.0), Live("b", "current", lag=0.0)
FIRST, SECOND = Sentence(1, 1.0, "info", "one"), Sentence(2, 2.0, "info", "two")


def test_changes_have_only_the_shards_and_events_that_changed():
    later = Live("b", "paused", lag=1.0)
    before = Snapshot((view(A, B, events=(FIRST,)),))
    changed = changes(before, Snapshot((view(A, later, events=(FIRST, SECOND), problems=("b: paused",)),)))
    assert changed is not None
    (stream,) = changed.streams
    assert (stream.places, stream.live, stream.events, stream.problems) == ((), (later,), (SECOND,), ("b: paused",))


def test_a_reshard_or_another_stream_needs_a_whole_snapshot():
    before = Snapshot((view(A, B),))
    assert changes(before, Snapshot((view(A, B, places=(place("a"), place("b", 1))),))) is None
    assert changes(before, Snapshot((view(A, B, stream="clicks"),))) is None
    assert changes(before, Snapshot((view(A, B), view(A)))) is None


def test_workers_are_the_holders_of_leases_that_are_not_finished():
    shards = [Live("a", "current", "w-1"), Live("b", "other_worker", "w-2"), Live("c", "finished", "w-3")]
    assert workers_of(shards, "w-1") == (WorkerView("w-1", 1), WorkerView("w-2", 1, answers=False))
    assert workers_of([], "w-1") == (WorkerView("w-1", 0),)
