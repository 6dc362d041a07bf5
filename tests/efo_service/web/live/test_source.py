from __future__ import annotations

import trio

from efo.consumer.status import ConsumerStatus, ShardStatus
from efo.events import BatchDelivered, EventReceived, RecordsProcessed, ShardStarted, WorkerStarted
from efo.health import LeaseCounts
from efo.model import Checkpoint, HashKeyRange, Lease, Shard
from efo_service.web.health import Health
from efo_service.web.live.source import StreamSource, snapshot_of

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


async def test_before_the_consumer_is_open_the_page_shows_what_is_missing():
    (view,) = (await snapshot_of([source_of(None)])).streams
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
