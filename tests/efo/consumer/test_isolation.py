"""Isolated shards: one shard stops, its lease is released, and it is read again after the cooldown (rule R11)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import trio

import efo
from efo import events
from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_task import LAST_SAVE_TIMEOUT
from efo.errors import AccessDeniedError, IsolateShardError, KmsError, LeaseStoreUnavailableError
from efo.leases.row_store import Change
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Lease, checkpoint_of
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis
from efo.testing.faults.kinds import Refuse, TcpCut
from efo.testing.faults.script import ALWAYS, When
from tests.workers import open_worker

STREAM = "orders"


def settings(**changes: object) -> ConsumerSettings:
    return ConsumerSettings(**changes)


class Reader:
    """A reader that keeps and acks its records. `reached` waits for a number of records."""

    def __init__(self) -> None:
        self.by_shard: dict[str, list] = {}
        self._changed = trio.Event()

    async def __call__(self, shard: ShardStream) -> None:
        async for batch in shard:
            self.by_shard.setdefault(shard.shard_id, []).extend(batch.records)
            shard.ack(batch)
            self._changed.set()
            self._changed = trio.Event()

    async def reached(self, count: int) -> None:
        while sum(map(len, self.by_shard.values())) < count:
            await self._changed.wait()


@pytest.mark.scenario("G63")
async def test_a_shard_that_the_service_rejects_is_isolated_and_the_others_are_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, reader, seen = MemoryLeaseStore(), Reader(), list[events.Event]()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        denied, other = fake.open_shards(STREAM)
        kinesis, is_denied = fake.kinesis(STREAM), True

        async def sign(target: str, body: bytes) -> list[tuple[str, str]]:
            await trio.lowlevel.checkpoint()
            if is_denied and denied.encode() in body:
                raise KmsError("KMSDisabledException", "the key is disabled")
            return []

        kinesis = replace(kinesis, sign=sign)
        fake.put_many(STREAM, [(f"key-{n}", b"%d" % n) for n in range(20)])
        short_cooldown = settings(shard_cooldown_seconds=40)
        async with (
            open_worker(kinesis, store, short_cooldown, seen.append, on_service_error="isolate") as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            await trio.sleep(20)
            assert {lease.key: lease.owner for lease in await store.list()} == {denied: None, other: "worker"}
            assert [shard.shard_id for shard in consumer.status().isolated] == [denied]
            assert reader.by_shard[other] == fake.records(STREAM)[other]
            assert denied not in reader.by_shard
            is_denied = False
            await reader.reached(20)
            consumer.drain()
    (isolated,) = [event for event in seen if isinstance(event, events.ShardIsolated)]
    assert isolated == events.ShardIsolated(denied, 40, "kms", "KMSDisabledException: the key is disabled")
    assert next(event.error_type for event in seen if isinstance(event, events.ShardStopped)) == "kms"


async def test_by_default_a_shard_that_the_service_rejects_stops_everything(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def sign(target: str, body: bytes) -> list[tuple[str, str]]:
        await trio.lowlevel.checkpoint()
        raise AccessDeniedError("AccessDeniedException", "no kinesis:SubscribeToShard")

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        with pytest.raises(AccessDeniedError, match="kinesis:SubscribeToShard"):
            async with open_worker(
                replace(fake.kinesis(STREAM), sign=sign), MemoryLeaseStore(), settings()
            ) as consumer:
                await consumer.run(Reader())


@pytest.mark.parametrize("read_mode", ["fanout", "polling", "auto"])
@pytest.mark.parametrize("code", ["AccessDeniedException", "KMSDisabledException", "UnrecognizedClientException"])
async def test_after_the_first_success_a_denial_is_waited_for(
    code: str, read_mode: efo.ReadMode, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("efo.consumer.shard_sources.FANOUT_RETRY_INTERVAL", 5.0)
    store, reader, seen = MemoryLeaseStore(), Reader(), list[events.Event]()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=2)
        fake.put_many(STREAM, [(f"key-{n}", b"%d" % n) for n in range(20)])
        how = settings(read_mode=read_mode)
        async with open_worker(fake.kinesis(STREAM), store, how, seen.append) as consumer:
            nursery.start_soon(consumer.run, reader)
            await reader.reached(20)
            rules = [
                fake.faults.add(Refuse(code), When(operation=operation, times=ALWAYS))
                for operation in ("SubscribeToShard", "GetRecords", "GetShardIterator")
            ]
            fake.faults.add(TcpCut(), When(nth=1))
            fake.put_many(STREAM, [(f"key-{n}", b"%d" % n) for n in range(20, 40)])
            await trio.sleep(90)
            assert any(getattr(event, "error_type", None) is not None for event in seen)
            for rule in rules:
                fake.faults.remove(rule)
            await reader.reached(40)
            assert not any(isinstance(event, events.ShardStopped) for event in seen)
            consumer.drain()


async def test_a_denial_at_the_start_may_pass_within_the_grace(autojump_clock: trio.testing.MockClock) -> None:
    reader = Reader()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        fake.put(STREAM, "k", b"1")
        fake.faults.add(Refuse("AccessDeniedException"), When(operation="SubscribeToShard", times=3))
        async with open_worker(fake.kinesis(STREAM), MemoryLeaseStore(), settings()) as consumer:
            nursery.start_soon(consumer.run, reader)
            await reader.reached(1)
            consumer.drain()


async def test_the_lease_of_an_isolated_shard_expires_if_the_store_cannot_release_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class FailingRelease(MemoryLeaseStore):
        failures = 1

        async def release(self, lease: Lease) -> Lease:
            if self.failures:
                self.failures -= 1
                raise LeaseStoreUnavailableError("down")
            return await super().release(lease)

    async def isolate(shard: ShardStream) -> None:
        raise IsolateShardError("no", cooldown=1000)

    store, reader = FailingRelease(), Reader()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        fake.put(STREAM, "k", b"1")
        async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="a") as a:
            nursery.start_soon(a.run, isolate)
            await trio.sleep(5)
            async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="b") as b:
                nursery.start_soon(b.run, reader)
                await reader.reached(1)  # the lease expired although worker a is still running
                assert [lease.owner for lease in await store.list()] == ["b"]
                b.drain()
                a.drain()


async def test_what_was_acked_is_saved_before_the_release_though_the_store_was_slow_at_the_end_of_the_task(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class SlowRenewal(MemoryLeaseStore):
        def __init__(self) -> None:
            super().__init__()
            self.is_slow, self.hangs = False, trio.Event()

        async def _write(self, key: str, change: Change) -> Lease:
            if self.is_slow:
                self.is_slow = False
                self.hangs.set()
                await trio.sleep(1.5 * LAST_SAVE_TIMEOUT)
            return await super()._write(key, change)

    store = SlowRenewal()

    async def isolate(shard: ShardStream) -> None:
        batch = await anext(shard)
        store.is_slow = True
        await store.hangs.wait()
        shard.ack(batch)
        raise IsolateShardError("no", cooldown=1000)

    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        fake.put(STREAM, "k", b"1")
        async with open_worker(fake.kinesis(STREAM), store) as consumer:
            nursery.start_soon(consumer.run, isolate)
            await store.hangs.wait()
            await trio.sleep(2 * LAST_SAVE_TIMEOUT)
            (lease,) = await store.list()
            (record,) = fake.records(STREAM)[lease.key]
            assert (lease.owner, lease.checkpoint) == (None, checkpoint_of(record))
            consumer.drain()


async def test_a_lease_is_released_although_the_run_is_cancelled_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Otherwise it would have to expire before another worker can take it."""
    releasing = trio.Event()

    class SlowRelease(MemoryLeaseStore):
        async def release(self, lease: Lease) -> Lease:
            releasing.set()
            await trio.sleep(1)
            return await super().release(lease)

    async def isolate(shard: ShardStream) -> None:
        raise IsolateShardError("no")

    store = SlowRelease()
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        async with open_worker(fake.kinesis(STREAM), store) as consumer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, isolate)
                await releasing.wait()
                nursery.cancel_scope.cancel()
            assert [lease.owner for lease in await store.list()] == [None]


@pytest.mark.parametrize(("cooldown", "expected"), [(None, 40), (0, 0), (7, 7)])
async def test_a_reader_isolates_its_shard_for_its_own_time_or_that_of_the_settings(
    autojump_clock: trio.testing.MockClock, cooldown: float | None, expected: float
) -> None:
    seen: list[events.Event] = []

    async def isolate(shard: ShardStream) -> None:
        raise IsolateShardError("no", cooldown=cooldown)

    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        async with open_worker(
            fake.kinesis(STREAM), MemoryLeaseStore(), settings(shard_cooldown_seconds=40), seen.append
        ) as consumer:
            nursery.start_soon(consumer.run, isolate)
            await trio.sleep(3)
            consumer.drain()
    assert {event.cooldown for event in seen if isinstance(event, events.ShardIsolated)} == {expected}


async def test_a_shard_is_isolated_until_its_cooldown_ends(autojump_clock: trio.testing.MockClock) -> None:
    ends_at = 0.0

    async def isolate(shard: ShardStream) -> None:
        nonlocal ends_at
        ends_at = ends_at or trio.current_time() + 50
        raise IsolateShardError("no", cooldown=50)

    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        async with open_worker(fake.kinesis(STREAM), MemoryLeaseStore()) as consumer:
            nursery.start_soon(consumer.run, isolate)
            await trio.sleep(3)
            (shard,) = consumer.status().isolated
            assert shard.seconds_left == pytest.approx(ends_at - trio.current_time())
            await trio.sleep_until(ends_at)
            assert consumer.status().isolated == ()
            consumer.drain()


async def test_consume_isolates_a_shard_that_the_service_rejects(autojump_clock: trio.testing.MockClock) -> None:
    handled, seen = [], list[events.Event]()

    async def handle(batch: efo.Batch) -> None:
        await trio.lowlevel.checkpoint()
        handled.extend(batch.records)

    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=2)
        denied, other = fake.open_shards(STREAM)

        async def sign(target: str, body: bytes) -> list[tuple[str, str]]:
            await trio.lowlevel.checkpoint()
            if denied.encode() in body:
                raise KmsError("KMSDisabledException", "the key is disabled")
            return []

        fake.put_many(STREAM, [(f"key-{n}", b"%d" % n) for n in range(20)])
        consumer = await nursery.start(
            partial(
                efo.consume,
                replace(fake.kinesis(STREAM), sign=sign),
                handle,
                application="app",
                leases=MemoryLeaseStore(),
                on_error=efo.FailurePolicy(then="isolate"),
                on_service_error="isolate",
                observer=seen.append,
            )
        )
        await trio.sleep(20)
        assert handled == fake.records(STREAM)[other]
        assert [shard.shard_id for shard in consumer.status().isolated] == [denied]
        consumer.drain()
    assert [event.shard_id for event in seen if isinstance(event, events.ShardIsolated)] == [denied]


async def test_a_consumer_that_has_ended_reports_no_shard_that_it_had_given_up(autojump_clock) -> None:
    seen: list[events.Event] = []
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        (shard_id,) = fake.open_shards(STREAM)
        fake.put(STREAM, "k", b"1")
        reader = Reader()
        async with open_worker(
            fake.kinesis(STREAM), MemoryLeaseStore(), settings(shard_cooldown_seconds=60), seen.append
        ) as consumer:
            nursery.start_soon(consumer.run, reader)
            await reader.reached(1)
            consumer.release(shard_id)
            await trio.sleep(5)
            (opened,) = [event for event in seen if isinstance(event, events.ConsumerOpened)]
            assert [shard.state for shard in opened.readings.shards()] == ["isolated"]
            consumer.drain()
        await trio.sleep(5)
        assert opened.readings.shards() == []  # what the gauges of a stream that was removed would export for ever


async def test_a_released_shard_is_taken_by_another_worker_and_nothing_is_lost_or_repeated(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, first, second = MemoryLeaseStore(), Reader(), Reader()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        (shard_id,) = fake.open_shards(STREAM)
        fake.put(STREAM, "k", b"1")
        async with open_worker(
            fake.kinesis(STREAM), store, settings(shard_cooldown_seconds=60), worker_id="ann"
        ) as ann:
            nursery.start_soon(ann.run, first)
            await first.reached(1)
            ann.release(shard_id)
            await trio.sleep(5)
            status = ann.status()
            assert [(shard.condition, shard.lag) for shard in status.shards] == [("isolated", 0.0)]
            assert [(shard.error_type, shard.seconds_left) for shard in status.isolated] == [("released", 55.0)]
            fake.put(STREAM, "k", b"2")
            async with open_worker(fake.kinesis(STREAM), store, settings(), worker_id="bob") as bob:
                nursery.start_soon(bob.run, second)
                await second.reached(1)
                assert [record.data for record in second.by_shard[shard_id]] == [b"2"]
                await trio.sleep(5)
                assert ann.status().shards == ()
                with pytest.raises(efo.errors.ShardNotReadError):
                    ann.release(shard_id)
                bob.drain()
                ann.drain()


async def test_a_released_shard_is_read_again_after_the_cooldown_if_nobody_else_does(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, reader = MemoryLeaseStore(), Reader()
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        (shard_id,) = fake.open_shards(STREAM)
        fake.put(STREAM, "k", b"1")
        async with open_worker(
            fake.kinesis(STREAM), store, settings(shard_cooldown_seconds=60), worker_id="ann"
        ) as ann:
            nursery.start_soon(ann.run, reader)
            await reader.reached(1)
            ann.release(shard_id)
            fake.put(STREAM, "k", b"2")
            await trio.sleep(59)
            assert len(reader.by_shard[shard_id]) == 1
            await reader.reached(2)
            assert [record.data for record in reader.by_shard[shard_id]] == [b"1", b"2"]
            ann.drain()


async def test_an_isolated_shard_is_reported_with_its_record_until_something_of_it_is_acked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    attempts = 0

    async def fail_once(shard: ShardStream) -> None:
        nonlocal attempts
        attempts += 1
        async for batch in shard:
            if attempts == 1:
                raise IsolateShardError("it is refused", cooldown=20, record="77/3")
            await trio.sleep(30)  # its second reading has not succeeded yet
            shard.ack(batch)

    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)
        fake.put(STREAM, "k", b"x")
        async with open_worker(fake.kinesis(STREAM), MemoryLeaseStore()) as consumer:
            nursery.start_soon(consumer.run, fail_once)
            await trio.sleep(10)
            (shard,) = consumer.isolated()
            assert (shard.detail, shard.record, shard.seconds_left > 0) == ("it is refused", "77/3", True)
            await trio.sleep(30)
            assert attempts == 2
            assert [(shard.record, shard.seconds_left) for shard in consumer.isolated()] == [("77/3", 0.0)]
            await trio.sleep(60)
            assert consumer.isolated() == []
            consumer.drain()
