"""Opening a consumer: what it is opened with, what is undone at its end, and how long a lease store is waited for."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import efo
from efo import events
from efo.consumer import opening
from efo.consumer.consumer import Consumer
from efo.consumer.opening import LEASE_STORE_SECONDS, SharedLimits
from efo.errors import ConfigurationError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.kinesis.pacing import SubscribePacer
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, Lease
from efo.protocol.joint_assignment import JointAssignment
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis

STREAM = "orders"


@asynccontextmanager
async def fake_stream():
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        yield fake


def opened(fake: FakeKinesis, seen: list[events.Event], **options: Any):
    settings = options.pop("settings", ConsumerSettings(read_mode="polling"))
    options = {"application": "app", "leases": MemoryLeaseStore(), "worker_id": "ann", "settings": settings, **options}
    return opening.open_consumer(fake.kinesis(STREAM), observer=seen.append, **options)


async def read(shard: Any) -> None:
    async for batch in shard:
        shard.ack(batch)


async def test_the_first_events_are_of_the_worker_and_of_its_consumer(autojump_clock):
    seen: list[events.Event] = []
    async with fake_stream() as fake, opened(fake, seen) as consumer:
        assert seen[0] == events.WorkerStarted("ann")
        (made,) = [event for event in seen if isinstance(event, events.ConsumerOpened)]
        assert made.readings is consumer
        assert not consumer.is_closed
    assert consumer.is_closed
    assert consumer.failure is None


async def test_without_a_worker_id_one_is_chosen(autojump_clock):
    async with fake_stream() as fake, opened(fake, [], worker_id=None) as consumer:
        assert consumer.worker_id


async def test_an_error_of_the_application_is_not_the_consumers(autojump_clock):
    seen: list[events.Event] = []
    kept: list[Consumer] = []
    with pytest.raises(LookupError):  # noqa: PT012
        async with fake_stream() as fake, opened(fake, seen) as consumer:
            kept.append(consumer)
            raise LookupError("bad")
    assert (kept[0].failure, kept[0].is_closed) == (None, True)
    assert not [event for event in seen if isinstance(event, events.ConsumerFailed)]


async def test_an_error_of_what_is_behind_a_consumer_is_noted_and_ends_it(autojump_clock):
    class Corrupt(MemoryLeaseStore):
        is_corrupt = False

        async def list(self):
            if self.is_corrupt:
                raise LeaseStoreCorruptError("not a lease")
            return await super().list()

    seen: list[events.Event] = []
    store, kept = Corrupt(), []
    with pytest.raises(LeaseStoreCorruptError):  # noqa: PT012
        async with fake_stream() as fake, opened(fake, seen, leases=store) as consumer:
            kept.append(consumer)
            store.is_corrupt = True
            with trio.fail_after(60):
                await trio.sleep_forever()
    assert "not a lease" in kept[0].failure
    assert len([event for event in seen if isinstance(event, events.ConsumerFailed)]) == 1


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_an_ephemeral_fan_out_consumer_is_deregistered_at_the_end(autojump_clock, ephemeral):
    settings = ConsumerSettings(ephemeral=ephemeral, read_mode="fanout")
    async with fake_stream() as fake:
        async with opened(fake, [], settings=settings) as consumer:
            assert consumer.status().consumer_active
        await trio.sleep(60)
        plane = fake.kinesis(STREAM).control_plane
        left = await plane.list_consumers((await plane.describe_stream()).arn)
    assert bool(left) is not ephemeral


@pytest.mark.parametrize("path", [None, "leases.sqlite"])
async def test_a_lease_file_with_a_relative_name_is_an_advice(autojump_clock, monkeypatch, path):
    monkeypatch.setattr(opening, "relative_file", lambda _store: path)
    async with fake_stream() as fake, opened(fake, []) as consumer:
        assert [advice.topic for advice in consumer.status().advice] == ([] if path is None else ["lease_file"])


@pytest.mark.parametrize(("position", "topics"), [(None, []), ("TRIM_HORIZON", ["initial_position"])])
async def test_a_chosen_position_that_has_no_effect_is_an_advice(autojump_clock, position, topics):
    store = MemoryLeaseStore()
    async with fake_stream() as fake:
        await store.create(Lease(fake.open_shards(STREAM)[0], Checkpoint(fake.put(STREAM, "key", b"1")[1])))
        async with (
            opened(fake, [], leases=store, initial_position=position) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, read)
            await trio.sleep(5)
            assert [advice.topic for advice in consumer.status().advice] == topics
            consumer.drain()


async def test_a_consumer_of_several_shares_its_budget_and_its_balance(autojump_clock):
    joint, pacer = JointAssignment(), SubscribePacer(5.0)
    shared = SharedLimits(pacer.of_stream(STREAM), joint.table(STREAM))
    seen: list[events.Event] = []
    async with fake_stream() as fake:
        opening_it = opening.open_sharing(
            shared,
            fake.kinesis(STREAM),
            application="app",
            leases=MemoryLeaseStore(),
            worker_id="ann",
            settings=ConsumerSettings(read_mode="polling", shards=["no-such-shard"]),
            on_service_error="isolate",
            observer=seen.append,
            tracing=None,
        )
        async with opening_it as consumer:
            assert consumer._is_one_of_several
            assert consumer._sources._limiter is shared.limiter
            assert not consumer._sources._waits
            assert consumer._advice._prefix == f"{STREAM}/"
            assert not consumer._advice._position_is_chosen
        async with opened(fake, seen) as alone:
            assert not alone._is_one_of_several
            assert alone._sources._limiter is not shared.limiter
            assert alone._sources._waits
            assert alone._advice._prefix == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"application": ""}, "application is empty"),
        ({"worker_id": 7}, "worker_id=7: expected a name"),
        ({"on_service_error": "skip"}, "on_service_error='skip': expected 'stop' or 'isolate'"),
        ({"leases": 7}, "leases=7"),
        ({"region": "eu-west-1"}, "region"),
        ({"settings": 7}, "settings=7"),
    ],
)
async def test_a_wrong_argument_is_refused_before_anything_is_opened(autojump_clock, options, message):
    seen: list[events.Event] = []
    async with fake_stream() as fake:
        with pytest.raises(ConfigurationError, match=message):
            async with opened(fake, seen, **options):
                pytest.fail("it is open")
    assert seen == []


@pytest.mark.parametrize("observer", [7, lambda: None])
async def test_an_observer_that_takes_no_event_is_refused(autojump_clock, observer):
    async with fake_stream() as fake:
        with pytest.raises(ConfigurationError, match="observer"):
            async with opening.open_consumer(fake.kinesis(STREAM), application="app", observer=observer):
                pytest.fail("it is open")


def test_a_consumer_needs_trio():
    async def main() -> None:
        async with opening.open_consumer(STREAM, application="app"):
            pytest.fail("it is open")

    with pytest.raises(efo.errors.ConfigurationError, match=r"efo.open_consumer"):
        main().send(None)


# --- the lease store ---------------------------------------------------------------------------------------


class Opening:
    """Opens a lease store that is unavailable `failures` times. `first`: how many seconds the first attempt takes."""

    def __init__(self, failures: float, first: float = 0.0) -> None:
        self.failures, self.first = failures, first
        self.times: list[float] = []
        self.seen: list[events.StartDelayed] = []
        self.closed = False

    @asynccontextmanager
    async def __call__(self):
        self.times.append(trio.current_time())
        await trio.sleep(self.first)
        self.first = 0.0
        if len(self.times) <= self.failures:
            raise LeaseStoreUnavailableError("throttled")
        yield "the store"
        self.closed = True

    async def open(self) -> object:
        async with AsyncExitStack() as stack:
            random_at_most: Any = SimpleNamespace(random=lambda: 1.0)
            return await opening._opened(stack, self, self.seen.append, random_at_most)


async def test_a_lease_store_is_waited_for_with_growing_pauses_and_closed_at_the_end(autojump_clock):
    store = Opening(4)
    assert await store.open() == "the store"
    assert (store.times, store.closed) == ([0.0, 1.0, 3.0, 7.0, 15.0], True)
    assert store.seen[0] == events.StartDelayed("leases", "lease_store_unavailable", "throttled", 1.0)
    assert [event.delay for event in store.seen] == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("first", "times"), [(0.0, [0.0, 1.0, 3.0, 7.0, 15.0, 25.0]), (5.0, [0.0, 6.0, 8.0, 12.0, 20.0])]
)
async def test_a_lease_store_is_waited_for_no_longer_than_half_a_minute(autojump_clock, first, times):
    store = Opening(99, first)
    with pytest.raises(LeaseStoreUnavailableError, match="throttled"):
        await store.open()
    assert store.times == times
    assert LEASE_STORE_SECONDS == 30.0


# --- consume -----------------------------------------------------------------------------------------------


async def test_consume_starts_with_its_consumer_and_processes_one_key_at_a_time(autojump_clock, monkeypatch):
    read_by, consumer = [], SimpleNamespace()

    async def run(reader: Any) -> None:
        read_by.append(reader._key_concurrency)
        await trio.sleep(1)

    consumer.run = run

    @asynccontextmanager
    async def open_it(_stream: object, **_options: object):
        yield consumer

    async def handle(_batch: efo.Batch) -> None:
        """Process nothing."""

    monkeypatch.setattr(opening, "open_consumer", open_it)
    async with trio.open_nursery() as nursery:
        started = await nursery.start(partial(opening.consume, STREAM, handle, application="app"))
        assert started is consumer
    assert (read_by, trio.current_time()) == ([1], 1.0)
