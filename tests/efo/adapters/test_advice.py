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
from efo.testing.faults import Refuse
from efo.testing.faults.script import FaultScript, When
from efo.testing.state.streams import hash_key_of
from tests.efo.adapters.programs import STREAM, World
from tests.paths import ROOT

SHARD = "shardId-000000000000"


def advice(world, topic):
    return [event for event in world.events(events.AdviceGiven) if event.topic == topic]


def ack(_consumer, _batch):
    return True


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
    program(world, ack, until="now")
    assert world.events(events.AdviceGiven) == []


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
    program(world, ack, until="now", settings=settings)
    (reported,) = advice(world, "unknown_shards")
    assert reported.what == "shards= names shardId-000000000007, which the stream orders does not have"
    assert reported.remedy == "write ids that it has: shardId-000000000000, shardId-000000000001"


@pytest.mark.promise("ids of shards that do not exist are reported")
def test_an_assignment_of_shards_that_do_not_exist_is_reported(program):
    world = World(shards=2)
    world.put(*range(9))
    prefix, other = (f"{STREAM}/", "clicks/") if program.reads_many else ("", "")
    names = [
        f"{prefix}{SHARD}",
        f"{prefix}shardId-000000000007",
        "shardId-000000000008",
        f"{other}shardId-000000000009",
    ]
    settings = efo.ConsumerSettings(assignment=efo.leases.manual_assignment(dict.fromkeys(names, "worker")))
    program(world, ack, until="now", settings=settings)
    (reported,) = advice(world, "unknown_shards")
    unknown = sorted(names[1:3] if program.reads_many else names[1:])
    assert reported.what == f"manual_assignment names {', '.join(unknown)}, which the stream orders does not have"
    assert reported.remedy.endswith(f": {prefix}{SHARD}, {prefix}shardId-000000000001")


@pytest.mark.promise("an initial position without effect is reported")
def test_an_initial_position_that_checkpoints_override_is_reported(program):
    world = World(shards=2)
    world.put(*range(20))
    program(world, ack, until="now", initial_position="TRIM_HORIZON")
    assert advice(world, "initial_position") == []
    program(world, ack, until="now")
    assert advice(world, "initial_position") == []
    program(world, ack, until="now", initial_position="TRIM_HORIZON")
    program(world, ack, until="now", initial_position="2025-12-31T23:00:00Z")
    reported, time = advice(world, "initial_position")
    assert time.is_warning
    assert time.what.startswith("initial_position=2025-12-31T23:00:00Z has no effect on 2 shards (shardId-000000000000")
    assert reported.what == (
        "initial_position=TRIM_HORIZON has no effect on 2 shards (shardId-000000000000, shardId-000000000001), of 2:"
        " the leases say where to go on"
    )
    assert not reported.is_warning


# --- leases and other programs --------------------------------------------------------------------------------------


async def nothing(_batch):
    """Do nothing."""


def another(world, after=0.0, **options):
    """Let a consumer of the same application run beside the program. `after`: seconds until it starts."""

    async def run(fake):
        await trio.sleep(after)
        await efo.consume(
            fake.kinesis(STREAM), nothing, **{**world.options(**options), "observer": lambda _event: None}
        )

    world.beside.append(run)


@pytest.mark.promise("a relative lease file is reported")
def test_a_lease_file_in_the_working_directory_is_reported_with_its_whole_path(program_of_each, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for leases in ("efo-leases.sqlite", "sqlite:efo-leases.sqlite"):
        world = World()
        program_of_each(world, ack, until="now", leases=leases)
        (given,) = advice(world, "lease_file")
        assert str(tmp_path / "efo-leases.sqlite") in given.what
        assert not given.is_warning


@pytest.mark.promise("another worker with the same id is reported")
def test_another_worker_with_the_same_id_is_reported(program_for_minutes):
    world = World(shards=2)
    another(world, after=10.0)  # of two that start at once, only the one that loses a lease is sure to see the other
    program_for_minutes(world, ack, timeout=80)
    (given,) = advice(world, "worker_id")
    assert given.what.startswith("another worker renews leases under this worker's id worker, first that of shardId-")


@pytest.mark.promise("a restart that waits is reported")
def test_a_restart_says_that_kinesis_lets_it_wait(program_of_each):
    world = World(shards=2)
    world.before.append(lambda fake: fake.register(STREAM, "app"))
    world.faults = FaultScript([(Refuse("ResourceInUseException"), When(nth=1))])
    world.put(*range(9))
    program_of_each(world, ack, until="now")
    (given,) = advice(world, "subscribe_wait")
    assert "for up to 5 s" in given.what
    assert "app" in given.what
    assert not given.is_warning


@pytest.mark.promise("two lease stores are reported")
def test_two_lease_stores_of_one_application_are_reported_by_their_takeovers(program_for_minutes):
    world = World(shards=1)
    another(world, leases="memory:", worker_id="other")
    program_for_minutes(world, ack, timeout=120)
    (given,) = advice(world, "taken_over")
    assert f"has taken the subscription of {SHARD} over {TAKEOVERS} times in" in given.what
    assert "keeps its leases in another store" in given.what


@pytest.mark.promise("a batch that takes minutes is in the status")
def test_a_batch_that_takes_minutes_is_in_the_status_while_it_does(program_of_each):
    world, held, kept = World(shards=2), [], []
    first, second = (next(key for n in range(99) if hash_key_of(key := f"{n}") >> 127 == shard) for shard in range(2))
    world.before.append(lambda fake: fake.put(STREAM, first, b"1"))

    async def put_second(fake):
        await trio.sleep(100)
        fake.put(STREAM, second, b"2")

    world.beside.append(put_second)

    def hold_the_first(consumer, batch):
        if not held:
            held.append(batch.shard_id)
            return False
        kept.extend(consumer.status().advice)
        consumer.drain()
        return True

    program_of_each(world, hold_the_first)
    (given,) = [one for one in kept if one.topic == "slow_batch"]
    assert given.what.startswith(f"{held[0]}: 1 records were delivered and are not acked, the first for ")


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
