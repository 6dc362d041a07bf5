"""The buffer against a model of the service: any order of requests and responses, faults, and reshards.

Whatever happens, no record is lost for any reader, and with `ordered` the records of a key keep their order.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from efo.errors import DeliveryError
from efo.producer.buffer import Buffer, PutRequest
from efo.producer.delivery import Delivery
from efo.producer.entry import AcceptedRecord, Unseen
from efo.producer.settings import ProducerSettings
from efo.producer.shard_map import ShardMap
from efo.protocol.aggregation import AggregateMode
from efo.protocol.deaggregation import deaggregate
from tests.producer_service import SILENCE, Service

KEYS = [f"key-{n}" for n in range(12)]
NONE = "no key"


class World:
    """A buffer, the service, and requests between them. `late`: requests that the buffer has given up waiting for.

    `switches`: the stream's record distribution strategy is changed at times, and some records have no key.
    """

    def __init__(self, seed: int, settings: ProducerSettings, *, switches: bool = False) -> None:
        self.switches = switches
        self.random = Random(seed)
        self.service = Service(self.random.randint(1, 3))
        self.buffer = Buffer(settings, ShardMap(self.service.listing()), self.random)
        self.now = 0.0
        self.failing = self.random.choice((0.0, 0.1, 0.5))
        self.in_flight: list[PutRequest] = []
        self.late: list[list] = []
        self.numbers = dict.fromkeys((*KEYS, NONE), 0)
        self.deliveries: list[tuple[str, int, Delivery]] = []
        self.pending: ShardMap | None = None

    def put(self) -> None:
        is_keyless = self.buffer.is_auto and self.random.random() < 0.5
        key = NONE if is_keyless else self.random.choice(KEYS)
        number = self.numbers[key]
        self.numbers[key] += 1
        delivery = Delivery(self.now, Unseen())
        data = f"{key}:{number}:".encode() + b"x" * self.random.choice((0, 1, 200))
        self.buffer.put(delivery, None if is_keyless else key, b"" if is_keyless else key.encode(), data)
        self.deliveries.append((key, number, delivery))

    def poll(self) -> None:
        if self.pending is not None:
            if self.buffer.in_flight:
                return
            if self.buffer.accepts(self.pending):
                self.buffer.apply(self.pending, self.now)
            self.pending = None
        if isinstance(polled := self.buffer.poll(self.now), PutRequest):
            assert len(polled.entries) <= 5
            self.in_flight.append(polled)
        elif not self.in_flight:
            assert polled > self.now, "a time that has come again and again"

    def respond(self) -> None:
        if not self.in_flight:
            return
        request = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
        entries = request.entries
        fate = self.random.random()
        if fate < self.failing / 4:  # it never arrives
            results = [SILENCE] * len(entries)
        elif fate < self.failing / 2:  # it arrives after the producer gave up waiting
            self.late.append([_copy(entry) for entry in entries])
            results = [SILENCE] * len(entries)
        elif fate < self.failing:  # its response is lost
            self.service.put_records(entries, self.random, self.failing)
            results = [SILENCE] * len(entries)
        else:
            results = self.service.put_records(entries, self.random, self.failing)
        self.buffer.settle(request, results, self.now)

    def arrive_late(self) -> None:
        if self.late:
            self.service.put_records(self.late.pop(), self.random, 0)

    def list_shards(self) -> None:
        if (self.buffer.is_stale or self.buffer.is_auto) and self.pending is None:
            self.pending = ShardMap(self.service.listing(), is_auto=self.service.is_auto)

    def step(self) -> None:
        self.now += self.random.choice((0.0, 0.01, 0.05, 0.3))
        action = self.random.choices(
            (self.put, self.poll, self.respond, self.arrive_late, self.list_shards, self._reshard, self._switch),
            (40, 30, 20, 2, 5, 2, 2 * self.switches),
        )[0]
        action()

    def _switch(self) -> None:
        self.service.is_auto = not self.service.is_auto

    def _reshard(self) -> None:
        self.service.reshard(self.random)

    def finish(self) -> None:
        self.buffer.is_flushing = True
        flushed = self.buffer.flush()
        self.failing = 0.0
        for _ in range(2000):
            if self.buffer.is_flushed(flushed) and not self.in_flight:
                break
            self.now += 0.5
            self.poll()
            self.respond()
            self.list_shards()
        while self.late:
            self.arrive_late()

    def read(self, mode: AggregateMode) -> list[tuple[str, int]]:
        parts = [record.data.decode().split(":") for record in self.service.read(mode)]
        return [(key, int(number)) for key, number, _ in parts]


class _copy:  # noqa: N801 - the part of an entry that is sent; the entry gives up its data when it is done
    def __init__(self, entry) -> None:
        self.partition_key, self.data, self.explicit_hash_key = entry.partition_key, entry.data, entry.explicit_hash_key


def run(seed: int, *, ordered: bool, aggregate: bool, switches: bool = False) -> World:
    world = World(
        seed,
        ProducerSettings(
            ordered=ordered,
            aggregate=aggregate,
            aggregate_bytes=400,
            max_request_records=5,
            max_request_bytes=1500,
            delivery_timeout_seconds=10_000.0,
            shard_share=inf if seed % 2 else 1.0,
        ),
        switches=switches,
    )
    for _ in range(400):
        world.step()
    world.finish()
    return world


READERS = [mode for mode in AggregateMode if mode is not AggregateMode.KEEP]


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_nothing_is_lost_and_ordered_records_keep_the_order_of_their_key(ordered, aggregate, seed):
    world = run(seed, ordered=ordered, aggregate=aggregate)
    assert world.buffer.weight == 0
    assert world.buffer.records == 0
    assert all(delivery.is_done and delivery.result() for _, _, delivery in world.deliveries)
    put = {(key, number) for key, number, _ in world.deliveries}
    for mode in READERS:
        read = world.read(mode)
        assert set(read) == put
        if ordered:
            firsts = list(dict.fromkeys(read))
            for key in KEYS:
                of_key = [number for found, number in firsts if found == key]
                assert of_key == sorted(of_key)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_readers_filter_out_of_its_aggregates_all_that_it_sends_again_elsewhere(seed):
    world = run(seed, ordered=False, aggregate=True)
    assert Counter(world.read(AggregateMode.DEDUPLICATE)) == Counter(world.read(AggregateMode.FILTER))


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_nothing_is_lost_while_the_stream_is_switched_to_auto_and_back(ordered, aggregate, seed):
    """Each record is read by any reader, or its delivery says that the stream requires a key now."""
    world = run(seed, ordered=ordered, aggregate=aggregate, switches=True)
    assert world.buffer.weight == 0
    assert world.buffer.records == 0
    stored = set()
    for key, number, delivery in world.deliveries:
        if delivery.carrier.stored is not None:
            stored.add((key, number))
            continue
        assert key == NONE
        with pytest.raises(DeliveryError, match="strategy is USER_PARTITION_KEY: put it with a key"):
            delivery.result()
    for mode in READERS:
        assert stored <= set(world.read(mode))


def test_switches_do_happen_and_are_noticed():
    worlds = [run(seed, ordered=False, aggregate=True, switches=True) for seed in range(40)]
    assert any(world.buffer.is_auto for world in worlds)
    assert any(not world.buffer.is_auto for world in worlds)
    keyless = [delivery for world in worlds for key, _, delivery in world.deliveries if key == NONE]
    assert any(delivery.carrier.stored for delivery in keyless)
    assert any(not delivery.carrier.stored for delivery in keyless)


@pytest.mark.parametrize("aggregate", [False, True])
def test_without_faults_and_reshards_nothing_is_repeated(aggregate):
    for seed in range(20):
        world = World(seed, ProducerSettings(aggregate=aggregate, aggregate_bytes=400, max_request_records=5))
        world.failing = 0.0
        for _ in range(200):
            world.put()
            world.poll()
            world.respond()
        world.finish()
        read = world.read(AggregateMode.FILTER)
        assert len(read) == len(set(read)) == len(world.deliveries)


def test_each_result_names_the_record_in_the_stream():
    for seed in range(10):
        world = run(seed, ordered=False, aggregate=True)
        stored = {
            (shard, record.sequence_number, record.sub_sequence_number): record.data
            for shard in world.service.log
            for record in _user_records(world.service, shard)
        }
        for key, number, delivery in world.deliveries:
            result = delivery.result()
            data = stored[result.shard_id, result.sequence_number, result.sub_sequence_number]
            assert data.startswith(f"{key}:{number}:".encode())


def _user_records(service: Service, shard: str):
    return [user for record in service.log[shard] for user in deaggregate(record, None).records]


def test_reshards_and_late_requests_do_happen():
    worlds = [run(seed, ordered=False, aggregate=True) for seed in range(40)]
    assert any(len(world.service.all) > 3 for world in worlds)
    repeated = [len(read) - len(set(read)) for read in (world.read(AggregateMode.FILTER) for world in worlds)]
    assert any(repeated)
    assert any(
        isinstance(d.carrier.stored, AcceptedRecord) and d.carrier.attempts > 2
        for w in worlds
        for _, _, d in w.deliveries
    )
