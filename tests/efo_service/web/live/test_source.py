"""None"""

from __future__ import annotations

import logging

import trio

from efo.consumer.status import ConsumerStatus, ShardStatus
from efo.events import (
    BatchDelivered,
    EventReceived,
    LeaseLost,
    RecordsProcessed,
    ShardStarted,
    ShardStopped,
    WorkerStarted,
)
from efo.health import LeaseCounts
from efo.model import Checkpoint, HashKeyRange, Lease, Shard
from efo_service.web.health import Health
from efo_service.web.live.shard_map import Live, Rate
from efo_service.web.live.source import (
    KEPT,
    RecentEvents,
    Sentence,
    Snapshot,
    StreamSource,
    Traffic,
    WorkerView,
    changes,
    workers_of,
)
from tests.efo_service.web.live.views import place, view

ALL = HashKeyRange("0", str(2**128 - 1))
SHARD = Shard("s-0", ALL, "1")
LEASE = Lease("s-0", Checkpoint("5"), "w-1")


class FakeConsumer:
    def __init__(self) -> None:
        self.listed = [SHARD]
        self.leases = {"s-0": LEASE}

    def status(self) -> ConsumerStatus:
        shard = ShardStatus("s-0", Checkpoint("7"), 0, state="live", lag=0.0)
        return ConsumerStatus("w-1", True, False, (shard,), None, leases=LeaseCounts({}, 1, {}))

    def lineage(self):
        return self.listed, self.leases


def source_of(consumer) -> StreamSource:
    source = StreamSource({"stream": "orders", "worker_id": "w-1"}, Health(clock=lambda: 0.0))
    source.consumer = consumer
    return source


def test_before_the_consumer_is_open_the_page_shows_what_is_missing():
    view = source_of(None).view()
    assert (view.stream, view.worker_id, view.lease_table, view.places) == ("orders", "w-1", "unknown", ())
    assert "the fan-out consumer is not registered and ACTIVE yet" in view.problems


async def test_a_view_has_shards_rates_and_events_of_the_same_moment(autojump_clock):
    source = source_of(FakeConsumer())
    source(WorkerStarted("w-1"))
    source(ShardStarted("s-0", Checkpoint("5")))
    source.view()
    source(EventReceived("s-0", 10, 2000, 0, None))
    source(BatchDelivered("s-0", 10))
    source(RecordsProcessed("s-0", 10, 0.1, None, None))
    await trio.sleep(2)
    view = source.view()
    (shard,) = view.live
    assert (shard.state, shard.checkpoint, shard.records, shard.bytes) == ("current", "7", 5.0, 1000.0)
    assert [event.text for event in view.events] == ["s-0: started after 5"]
    assert (view.lease_table, [worker.id for worker in view.workers]) == ("known", ["w-1"])


async def test_places_are_computed_again_after_a_listing_or_when_leases_come_or_go():
    consumer = FakeConsumer()
    source = source_of(consumer)
    first = source.view().places
    assert source.view().places is first
    consumer.leases = {"s-0": LEASE, "s-1": Lease("s-1", Checkpoint("5"), parents=("s-0",))}
    assert [place.id for place in source.view().places] == ["s-0", "s-1"]
    consumer.listed = []
    assert [place.low for place in source.view().places] == [None, None]


def received(traffic: Traffic, *, records: int, size: int) -> None:
    traffic(EventReceived("s-0", records, size, 0, None))
    traffic(RecordsProcessed("s-0", records, 0.1, None, None))


def test_a_rate_is_measured_over_the_kept_samples():
    traffic = Traffic()
    assert traffic.sample(10.0) == {}
    received(traffic, records=10, size=1000)
    assert traffic.sample(11.0) == {"s-0": Rate(10.0, 1000.0)}
    assert traffic.sample(12.0) == {"s-0": Rate(5.0, 500.0)}
    for second in range(13, 20):
        rates = traffic.sample(float(second))
    assert rates == {"s-0": Rate(0.0, 0.0)}


def test_samples_from_before_nobody_looked_are_forgotten():
    traffic = Traffic()
    traffic.sample(0.0)
    received(traffic, records=10, size=1000)
    assert traffic.sample(100.0) == {}


def test_a_shard_that_is_read_anew_has_no_negative_rate():
    traffic = Traffic()
    received(traffic, records=10, size=1000)
    traffic.sample(1.0)
    traffic(ShardStopped("s-0"))
    received(traffic, records=1, size=100)
    assert traffic.sample(2.0) == {"s-0": Rate(0.0, 0.0)}


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
