"""efo's own consumer against every fault: nothing lost, nothing out of order, nothing repeated."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial
from typing import get_args

import pytest
import trio

from efo.consumer.consumer import ConsumerSettings, open_consumer
from efo.errors import AccessDeniedError, EfoError, InternalFailureError, KmsError, OrderError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.faults.kinds import (
    PASSING,
    ErrorCode,
    GoAway,
    NoAnswer,
    Refuse,
    Reorder,
    Reset,
    StaleListing,
    StreamException,
    WindowOverrun,
)
from efo.testing.faults.script import ALWAYS, FaultScript, When

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
    """Read a stream of two shards while records flow; return the fake, the reader and the observer's events."""
    reader, seen = reader or Reader(), []
    async with FakeKinesis(settings=FakeSettings(event_records=event_records), faults=script) as fake:
        fake.create_stream(STREAM, shards=2)
        settings = ConsumerSettings(application="app", worker_id="w", shard_sync_interval=20.0)
        async with (
            open_consumer(
                fake.kinesis(STREAM), MemoryLeaseStore(), settings, seen.append, rng=random.Random(1)
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
            await trio.sleep(60)  # what comes twice would come now
            consumer.stop()
    return fake, reader, seen


@pytest.mark.parametrize("fault", PASSING, ids=repr)
@pytest.mark.scenario("G60")
async def test_a_fault_passes_without_loss_repetition_or_disorder(fault, autojump_clock):
    script = FaultScript([(fault, When(shard=FIRST, nth=3 if fault.site == "event" else 1))])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert [fired.fault for fired in script.fired] == [fault]


@pytest.mark.parametrize("fault", [f for f in PASSING if f.site == "event" and not f.needs_event], ids=repr)
async def test_a_fault_at_a_moment_between_events_passes(fault, autojump_clock):
    script = FaultScript([(fault, When(shard=FIRST, at=31.3))])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert [fired.fault for fired in script.fired] == [fault]
    assert script.fired[0].at == pytest.approx(31.3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.scenario("G72")
async def test_faults_at_random_pass_through_a_split_and_a_merge(seed, autojump_clock):
    script = FaultScript.random(seed, rate=1 / 15, stop=300)
    _, reader, _ = await consume(script, reshard=True, seconds=5.0)
    assert reader.by_key == ALL
    assert script.fired


@pytest.mark.parametrize("kind", [Reset, GoAway])
@pytest.mark.scenario("G60")
async def test_every_error_code_of_http2_passes(kind, autojump_clock):
    codes = get_args(ErrorCode)
    script = FaultScript([(kind(code), When(shard=FIRST, nth=2 * n + 2)) for n, code in enumerate(codes)])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert [fired.fault.code for fired in script.fired] == list(codes)


@pytest.mark.parametrize(
    "code", ["InternalFailureException", "KMSThrottlingException", "ResourceInUseException", "LimitExceededException"]
)
@pytest.mark.scenario("G63")
async def test_exceptions_that_pass_are_outlived(code, autojump_clock):
    script = FaultScript([(StreamException(code), When(nth=3, times=4))])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert len(script.fired) == 2 * 4


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (StreamException("KMSAccessDeniedException"), KmsError),
        (StreamException("KMSDisabledException"), KmsError),
        (StreamException("KMSInvalidStateException"), KmsError),
        (StreamException("KMSNotFoundException"), KmsError),
        (StreamException("KMSOptInRequired"), KmsError),
        (Refuse("AccessDeniedException"), AccessDeniedError),
        (Refuse("UnrecognizedClientException"), AccessDeniedError),
        (Refuse("InvalidArgumentException"), EfoError),
    ],
    ids=repr,
)
@pytest.mark.scenario("G63")
async def test_what_trying_again_cannot_cure_is_told_by_name(fault, kind, autojump_clock):
    with pytest.raises(kind, match=fault.code):
        await consume(FaultScript([(fault, When(shard=FIRST))]))


async def test_credentials_that_ran_out_on_their_way_are_signed_anew(autojump_clock):
    script = FaultScript([(Refuse("ExpiredTokenException"), When(shard=FIRST, times=3))])
    _, reader, _ = await consume(script)
    assert reader.by_key == ALL
    assert len(script.fired) == 3


async def test_a_slow_reader_beside_a_server_that_overruns_the_window(autojump_clock):
    script = FaultScript([(WindowOverrun(2_000_000), When(shard=FIRST, nth=4))])
    _, reader, _ = await consume(script, reader=Reader(pause=1.0), seconds=1.0)
    assert reader.by_key == ALL
    assert script.fired


@pytest.mark.parametrize(
    "operation", ["ListShards", "DescribeStreamSummary", "DescribeStreamConsumer", "RegisterStreamConsumer"]
)
async def test_a_control_plane_that_fails_at_the_start_is_told_or_tried_again(operation, autojump_clock):
    script = FaultScript([(Refuse(status=503), When(operation=operation))])
    try:
        _, reader, _ = await consume(script)
    except InternalFailureError:
        pass  # an orchestrator starts it again
    else:
        assert reader.by_key == ALL
    assert script.fired


@pytest.mark.parametrize("fault", [Refuse(status=500), Refuse("LimitExceededException"), NoAnswer(15.0)], ids=repr)
async def test_a_control_plane_that_fails_later_stops_nothing(fault, autojump_clock):
    script = FaultScript([(fault, When(operation="ListShards", start=10, times=5))])
    _, reader, _ = await consume(script, reshard=True)
    assert reader.by_key == ALL
    assert script.fired


@pytest.mark.parametrize("listing", [StaleListing(45.0), StaleListing(45.0, 1), StaleListing(45.0, 0, 2)], ids=repr)
@pytest.mark.scenario("G17")
async def test_a_listing_that_lags_loses_no_shard(listing, autojump_clock):
    script = FaultScript([(listing, When(times=ALWAYS))])
    _, reader, _ = await consume(script, reshard=True)
    assert reader.by_key == ALL
    assert script.fired


async def test_events_in_the_wrong_order_are_told_and_never_passed_over(autojump_clock):
    reader = Reader()
    with pytest.raises(OrderError, match="which was read already"):
        await consume(FaultScript([(Reorder(), When(shard=FIRST, nth=1))]), reader=reader)
    assert {key: values == sorted(values) for key, values in reader.by_key.items()} == dict.fromkeys(
        reader.by_key, True
    )


async def test_an_event_that_overtakes_an_empty_one_passes(autojump_clock):
    reader = Reader()
    script = FaultScript()
    async with FakeKinesis(faults=script) as fake:
        fake.create_stream(STREAM)
        settings = ConsumerSettings(application="app", worker_id="w")
        async with (
            open_consumer(fake.kinesis(STREAM), MemoryLeaseStore(), settings) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, reader)
            await trio.sleep(10)
            script.add(Reorder(), When(shard=FIRST))  # holds an event back until an idle one has gone before it
            fake.put(STREAM, "k", b"1")
            await trio.sleep(10)
            fake.put(STREAM, "k", b"2")
            await reader.reached(2)
            consumer.stop()
    assert reader.by_key == {"k": [1, 2]}
    assert len(script.fired) == 1


def test_the_same_seed_makes_the_same_run(monkeypatch):
    # trio shuffles its tasks on purpose, and a flag of its own, made for Hypothesis, says not to.
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
