"""Traps that a watchdog tells, in each form: one advice on each, in the log and in the status."""

from __future__ import annotations

import logging
import re
from typing import get_args

import pytest
import trio

import efo
from efo import events
from efo.consumer.advice import TAKEOVERS
from efo.telemetry.log import LoggingObserver
from efo.testing import FakeKinesis
from tests.efo.adapters.programs import STREAM, World
from tests.paths import ROOT

SHARD = "shardId-000000000000"


def advice(world, topic):
    return [event for event in world.seen if isinstance(event, events.AdviceGiven) and event.topic == topic]


# --- acks that are missing ------------------------------------------------------------------------------------------


@pytest.mark.promise("acks that are missing at the end are reported")
def test_acks_that_are_missing_at_a_drain_are_reported(program):
    records = []

    def forget(consumer, batch):
        records.extend(batch.records)
        if len(records) == 20:
            consumer.drain()
        return False

    forgets(program, forget)


@pytest.mark.promise("acks that are missing at the end are reported")
def test_acks_that_are_missing_at_the_end_are_reported(program):
    forgets(program, lambda _consumer, _batch: False, until="now")


def forgets(program, on_batch, **options):
    world = World(shards=2)
    world.put(*range(20))
    program(world, on_batch, **options)
    (reported,) = advice(world, "unacked")
    assert (
        "20 records of 2 shards (shardId-000000000000, shardId-000000000001) were delivered and not ack"
        in reported.what
    )
    assert "consumer.ack(batch)" in reported.remedy
    assert reported.is_warning


@pytest.mark.promise("acks that are missing at the end are reported")
def test_a_program_that_acks_everything_is_reported_nothing(program):
    world = World(shards=2)
    world.put(*range(20))
    program(world, lambda _consumer, _batch: True, until="now")
    assert [event for event in world.seen if isinstance(event, events.AdviceGiven)] == []


async def test_records_that_are_acked_singly_are_counted_singly(autojump_clock):
    seen = []

    async def read(shard):
        async for batch in shard:
            shard.ack_record(batch, batch.records[1])
            shard.ack_record(batch, batch.records[0])
            shard.ack_record(batch, batch.records[3])
            consumer.drain()

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [("key", b"CANARY")] * 5)
        opening = efo.open_consumer(fake.kinesis(STREAM), application="app", leases="memory:", observer=seen.append)
        async with opening as consumer:
            await consumer.run(read)
            (kept,) = consumer.status().advice
    assert kept in seen
    assert kept.what.startswith(f"2 records of {SHARD} were delivered")


async def test_a_consumer_that_is_cancelled_tells_what_was_not_acked(autojump_clock):
    seen = []

    async def hang(_batch):
        await trio.sleep_forever()

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [("key", b"x")] * 5)
        with trio.move_on_after(3):
            options = {"application": "app", "leases": "memory:", "observer": seen.append}
            await efo.consume(fake.kinesis(STREAM), hang, **options)
    (reported,) = [event for event in seen if isinstance(event, events.AdviceGiven)]
    assert reported.what.startswith(f"5 records of {SHARD} were delivered")


async def test_a_handler_that_fails_is_reported_by_its_error_alone(autojump_clock):
    seen = []

    async def fail(_batch):
        raise ValueError

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [("key", b"x")] * 5)
        options = {"application": "app", "leases": "memory:", "observer": seen.append}
        with pytest.raises(ValueError, match=r"^$"):
            await efo.consume(fake.kinesis(STREAM), fail, **options)
    assert not [event for event in seen if isinstance(event, events.AdviceGiven)]


# --- shards and positions -------------------------------------------------------------------------------------------


@pytest.mark.promise("ids of shards that do not exist are reported")
def test_ids_of_shards_that_do_not_exist_are_reported(program):
    world = World(shards=2)
    world.put(*range(9))
    settings = efo.ConsumerSettings(shards=[SHARD, "shardId-000000000007"])
    program(world, lambda _consumer, _batch: True, until="now", settings=settings)
    (reported,) = advice(world, "unknown_shards")
    assert reported.what == "shards= names shardId-000000000007, which the stream orders does not have"
    assert reported.remedy == "write ids that it has: shardId-000000000000, shardId-000000000001"


@pytest.mark.promise("an initial position without effect is reported")
def test_an_initial_position_that_checkpoints_override_is_reported(program):
    world = World(shards=2)
    world.put(*range(20))
    done = lambda _consumer, _batch: True  # noqa: E731 - what a program does with a batch
    program(world, done, until="now", initial_position="TRIM_HORIZON")
    assert advice(world, "initial_position") == []
    program(world, done, until="now")
    assert advice(world, "initial_position") == []
    program(world, done, until="now", initial_position="TRIM_HORIZON")
    program(world, done, until="now", initial_position="2025-12-31T23:00:00Z")
    reported, time = advice(world, "initial_position")
    assert time.is_warning
    assert time.what.startswith("initial_position=2025-12-31T23:00:00Z has no effect on 2 shards (shardId-000000000000")
    assert reported.what == (
        "initial_position=TRIM_HORIZON has no effect on 2 shards (shardId-000000000000, shardId-000000000001), of 2:"
        " the leases say where to go on"
    )
    assert not reported.is_warning


async def nothing(_batch):
    """Do nothing."""


# --- leases and other programs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("leases", ["efo-leases.sqlite", "sqlite:efo-leases.sqlite"])
async def test_a_lease_file_in_the_working_directory_is_reported_with_its_whole_path(
    autojump_clock, tmp_path, monkeypatch, leases
):
    monkeypatch.chdir(tmp_path)
    seen = []
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        options = {"application": "app", "leases": leases, "observer": seen.append}
        async with efo.open_consumer(fake.kinesis(STREAM), **options) as consumer:
            (kept,) = consumer.status().advice
    assert kept.topic == "lease_file"
    assert str(tmp_path / "efo-leases.sqlite") in kept.what
    assert not kept.is_warning


async def test_another_worker_with_the_same_id_is_reported(autojump_clock):
    store, seen = efo.leases.MemoryLeaseStore(), {"first": [], "second": []}
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM, shards=2)

        async def work(name):
            options = {"application": "app", "leases": store, "worker_id": "same", "observer": seen[name].append}
            await efo.consume(fake.kinesis(STREAM), nothing, **options)

        nursery.start_soon(work, "first")
        await trio.sleep(20)
        nursery.start_soon(work, "second")
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    reported = [event for name in seen for event in seen[name] if isinstance(event, events.AdviceGiven)]
    assert {event.topic for event in reported} >= {"worker_id"}
    text = next(event.what for event in reported if event.topic == "worker_id")
    assert text.startswith(f"another worker renews leases under this worker's id same, first that of {SHARD}")


async def test_a_restart_says_that_kinesis_lets_it_wait(autojump_clock):
    seen = []
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=2)
        for _ in range(2):
            options = {"application": "app", "leases": "memory:", "observer": seen.append}
            with trio.move_on_after(2):
                await efo.consume(fake.kinesis(STREAM), nothing, **options)
    (reported,) = [event for event in seen if isinstance(event, events.AdviceGiven)]
    assert reported.topic == "subscribe_wait"
    assert "for up to 5 s" in reported.what
    assert "app" in reported.what
    assert not reported.is_warning


async def test_two_lease_stores_of_one_application_are_reported_by_their_takeovers(autojump_clock):
    seen = []
    async with FakeKinesis() as fake, trio.open_nursery() as nursery:
        fake.create_stream(STREAM)

        async def work():
            options = {"application": "app", "leases": "memory:", "observer": seen.append}
            await efo.consume(fake.kinesis(STREAM), nothing, **options)

        nursery.start_soon(work)
        nursery.start_soon(work)
        await trio.sleep(120)
        nursery.cancel_scope.cancel()
    reported = [event for event in seen if isinstance(event, events.AdviceGiven) and event.topic == "taken_over"]
    assert reported
    assert f"has taken the subscription of {SHARD} over {TAKEOVERS} times in" in reported[0].what
    assert "keeps its leases in another store" in reported[0].what


async def test_a_batch_that_takes_minutes_is_in_the_status_while_it_does(autojump_clock):
    kept = []

    async def slow(_batch):
        await trio.sleep(100)
        kept.append(consumer.status().advice)

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [("key", b"x")] * 5)
        opening = efo.open_consumer(fake.kinesis(STREAM), application="app", leases="memory:", until="now")
        async with opening as consumer:
            await consumer.run(efo.Handler(slow))
            assert consumer.status().advice == ()
    ((reported,),) = kept
    assert reported.topic == "slow_batch"
    assert reported.what.startswith(f"{SHARD}: 5 records were delivered and are not acked, the first for 100 s")


def test_an_advice_is_one_line_at_its_level(caplog):
    with caplog.at_level(logging.INFO, logger="efo"):
        LoggingObserver()(events.AdviceGiven("unacked", "two are not acked", "ack them"))
        LoggingObserver()(events.AdviceGiven("lease_file", "the leases are here", "look", is_warning=False))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "two are not acked; ack them"),
        (logging.INFO, "the leases are here; look"),
    ]


def test_each_topic_is_on_the_page_of_troubleshooting():
    page = (ROOT / "docs" / "troubleshooting.md").read_text().partition("## Advice")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(get_args(events.AdviceTopic))
