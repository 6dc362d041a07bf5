"""efo's consumer with every fault: it loses, repeats and reorders no records."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial
from typing import get_args

import pytest
import trio

from efo.errors import EfoError, InternalFailureError, OrderError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.faults.kinds import (
    PASSING,
    ErrorCode,
    GoAway,
    NoResponse,
    Refuse,
    Reorder,
    Reset,
    StaleListing,
    StreamException,
    WindowOverrun,
)
from efo.testing.faults.script import ALWAYS, FaultScript, When
from tests.workers import open_worker

STREAM = "orders"
FIRST = "shardId-000000000000"
KEYS = 12
ROUNDS = 30
ALL = {f"key-{k}": list(range(ROUNDS)) for k in range(KEYS)}


class Reader:
    def __init__(self, pause=0.0):
        self.by_key = defaultdict(list)
        self.pause = pause
        self.count = 0
        self.changed = trio.Event()

    async def __call__(self, shard):
        async for batch in shard:
            await trio.sleep(self.pause)
            for record in batch.records:
                self.by_key[record.partition_key].append(int(record.data))
                self.count += 1
            shard.ack(batch)
            self.changed.set()
            self.changed = trio.Event()

    async def reached(self, count):
        while self.count < count:
            await self.changed.wait()


async def consume(script, *, reshard=False, seconds=2.0, reader=None, event_records=5):
    """Read a stream of two shards while records are put. Return the fake, the reader and the diagnostic events."""
    reader, events = reader or Reader(), []
    async with FakeKinesis(settings=FakeSettings(event_records=event_records), faults=script) as fake:
        fake.create_stream(STREAM, shards=2)
        settings = ConsumerSettings(shard_sync_seconds=20.0)
        async with (
            open_worker(
                fake.kinesis(STREAM), MemoryLeaseStore(), settings, events.append, rng=random.Random(1)
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            for n in range(ROUNDS):
                fake.put_many(STREAM, [(f"key-{k}", b"%d" % n) for k in range(KEYS)])
                if reshard and n == 10:
                    fake.split(STREAM, FIRST)
                if reshard and n == 20:
                    fake.merge(STREAM, *fake.open_shards(STREAM)[:2])
                await trio.sleep(seconds)
            with trio.fail_after(3600):
                await reader.reached(ROUNDS * KEYS)
            await trio.sleep(60)  # repeated records would arrive now
            consumer.drain()
    return fake, reader, events


@pytest.mark.parametrize("fault", PASSING, ids=repr)
@pytest.mark.scenario("G60")
async def test_a_transient_fault_loses_repeats_and_reorders_nothing(fault, autojump_clock):
    script = FaultScript([(fault, When(shard=FIRST, nth=3 if fault.site == "event" else 1))])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert [fired.fault for fired in script.fired] == [fault]


@pytest.mark.parametrize("fault", [f for f in PASSING if f.site == "event" and not f.needs_event], ids=repr)
async def test_a_fault_between_events_loses_repeats_and_reorders_nothing(fault, autojump_clock):
    script = FaultScript([(fault, When(shard=FIRST, at=31.3))])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert [fired.fault for fired in script.fired] == [fault]
    assert script.fired[0].at == pytest.approx(31.3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.scenario("G72")
async def test_random_faults_during_a_split_and_a_merge_lose_nothing(seed, autojump_clock):
    script = FaultScript.random(seed, rate=1 / 15, stop=300)
    _, reader, _ = await consume(script, reshard=True, seconds=5.0)
    assert reader.by_key == ALL
    assert script.fired


@pytest.mark.parametrize("kind", [Reset, GoAway])
@pytest.mark.scenario("G60")
async def test_every_http2_error_code_is_retried(kind, autojump_clock):
    codes = get_args(ErrorCode)
    script = FaultScript([(kind(code), When(shard=FIRST, nth=2 * n + 2)) for n, code in enumerate(codes)])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert [fired.fault.code for fired in script.fired] == list(codes)


@pytest.mark.parametrize(
    "code", ["InternalFailureException", "KMSThrottlingException", "ResourceInUseException", "LimitExceededException"]
)
@pytest.mark.scenario("G63")
async def test_a_transient_exception_is_retried(code, autojump_clock):
    script = FaultScript([(StreamException(code), When(nth=3, times=4))])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert len(script.fired) == 2 * 4


@pytest.mark.parametrize(
    "fault",
    [
        StreamException("KMSAccessDeniedException"),
        StreamException("KMSDisabledException"),
        StreamException("KMSInvalidStateException"),
        StreamException("KMSNotFoundException"),
        StreamException("KMSOptInRequired"),
        Refuse("AccessDeniedException"),
        Refuse("UnrecognizedClientException"),
    ],
    ids=repr,
)
@pytest.mark.scenario("G63")
async def test_a_refusal_that_somebody_lifts_is_waited_for(fault, autojump_clock):
    script = FaultScript([(fault, When(shard=FIRST, times=3))])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert len(script.fired) == 3


async def test_a_refusal_that_no_repetition_cures_is_raised(autojump_clock):
    with pytest.raises(EfoError, match="InvalidArgumentException"):
        await consume(FaultScript([(Refuse("InvalidArgumentException"), When(shard=FIRST))]))


async def test_an_expired_token_is_retried_with_a_new_signature(autojump_clock):
    script = FaultScript([(Refuse("ExpiredTokenException"), When(shard=FIRST, times=3))])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert len(script.fired) == 3


async def test_a_slow_reader_loses_nothing_after_a_window_overrun(autojump_clock):
    script = FaultScript([(WindowOverrun(2_000_000), When(shard=FIRST, nth=4))])
    _, reader, _ = await consume(script, reader=Reader(pause=1.0), seconds=1.0)
    assert reader.by_key == ALL
    assert script.fired


@pytest.mark.parametrize(
    "operation", ["ListShards", "DescribeStreamSummary", "DescribeStreamConsumer", "RegisterStreamConsumer"]
)
async def test_a_control_plane_error_at_the_start_is_raised_or_retried(operation, autojump_clock):
    script = FaultScript([(Refuse(status=503), When(operation=operation))])
    try:
        _, reader, _ = await consume(script)
    except InternalFailureError:
        pass  # the supervisor restarts the worker
    else:
        assert reader.by_key == ALL
    assert script.fired


@pytest.mark.parametrize("fault", [Refuse(status=500), Refuse("LimitExceededException"), NoResponse(15.0)], ids=repr)
async def test_a_later_control_plane_error_does_not_stop_the_consumer(fault, autojump_clock):
    script = FaultScript([(fault, When(operation="ListShards", start=10, times=5))])
    _, reader, _ = await consume(script, reshard=True)
    assert reader.by_key == ALL
    assert script.fired


@pytest.mark.parametrize("listing", [StaleListing(45.0), StaleListing(45.0, 1), StaleListing(45.0, 0, 2)], ids=repr)
@pytest.mark.scenario("G17")
async def test_a_stale_listing_loses_no_shard(listing, autojump_clock):
    script = FaultScript([(listing, When(times=ALWAYS))])
    _, reader, _ = await consume(script, reshard=True)
    assert reader.by_key == ALL
    assert script.fired


async def test_reordered_events_raise_an_order_error(autojump_clock):
    reader = Reader()
    with pytest.raises(OrderError, match="which was read already"):
        await consume(FaultScript([(Reorder(), When(shard=FIRST, nth=1))]), reader=reader)
    assert {key: values == sorted(values) for key, values in reader.by_key.items()} == dict.fromkeys(
        reader.by_key, True
    )


async def test_an_event_that_arrives_before_an_earlier_empty_event_is_read(autojump_clock):
    reader = Reader()
    script = FaultScript()
    async with FakeKinesis(faults=script) as fake:
        fake.create_stream(STREAM)
        settings = ConsumerSettings()
        async with (
            open_worker(fake.kinesis(STREAM), MemoryLeaseStore(), settings) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            await trio.sleep(10)
            script.add(Reorder(), When(shard=FIRST))  # sends the next event after the idle event that follows it
            fake.put(STREAM, "k", b"1")
            await trio.sleep(10)
            fake.put(STREAM, "k", b"2")
            await reader.reached(2)
            consumer.drain()
    assert reader.by_key == {"k": [1, 2]}
    assert len(script.fired) == 1


def test_the_same_seed_results_in_the_same_run(monkeypatch):
    # trio runs its tasks in random order. This flag, which exists for Hypothesis, disables it.
    monkeypatch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
    shuffle = trio._core._run._r

    def run():
        shuffle.seed(1)
        script = FaultScript.random(3, rate=1 / 15, stop=300)
        clock = trio.testing.MockClock(autojump_threshold=0)
        _, reader, _ = trio.run(partial(consume, script, reshard=True, seconds=5.0), clock=clock)
        assert reader.by_key == ALL
        return script.fired

    state = shuffle.getstate()
    try:
        assert run() == run()
    finally:
        shuffle.setstate(state)
