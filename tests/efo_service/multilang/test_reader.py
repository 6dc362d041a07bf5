"""The life of a shard with a child process: what it is asked, and what becomes of each failure."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
import trio

import efo
from efo.events import AcksOverdue, ShardIsolated
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.testing import InMemoryStream
from efo_service.multilang.reader import ChildReader, ChildSettings
from tests.efo_service.multilang.fake_child import EndedError, opening

SHARD = "shardId-000000000000"


async def checkpointing(child):
    """Checkpoint in each message in which KCL's samples do."""
    while True:
        message = await child.read()
        if message["action"] in {"processRecords", "shardEnded", "shutdownRequested"}:
            assert await child.checkpoint() is None
        child.done(message)


async def careless(child):
    """Never checkpoint."""
    while True:
        child.done(await child.read())


class World:
    """Runs a consumer with child readers on a stream in memory."""

    def __init__(self, program, *data, shards=1, **settings):
        self.stream = InMemoryStream(batch_records=2, shards=shards)
        self.stream.put("key", *data)
        self.children = []
        self.program = program
        self.settings = ChildSettings(("program",), **settings)
        self.reader = None

    async def run(self, seconds=10.0, during=None, read_mode="fanout"):
        """Read for some seconds, then drain; return the actions of each child."""
        async with (
            self.stream.open() as kinesis,
            efo.open_consumer(
                kinesis,
                application="app",
                leases=self.stream.leases,
                settings=efo.ConsumerSettings(read_mode=read_mode),
                observer=self.stream.events.append,
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            self.reader = ChildReader(self.settings, consumer.drain, opening(self.program, self.children))
            nursery.start_soon(consumer.run, self.reader)
            if during is not None:
                await during(consumer)
            await trio.sleep(seconds)
            consumer.drain()
        return [
            [action for message in child.log if (action := message["action"]) != "checkpoint"]
            for child in self.children
        ]

    def data(self):
        """Return the data that all children got, in order."""
        return [
            base64.b64decode(record["data"])
            for child in self.children
            for message in child.log
            for record in message.get("records", ())
        ]


async def test_a_drain_asks_for_the_shutdown_and_then_takes_the_lease(autojump_clock):
    world = World(careless, b"1", b"2", b"3")
    (actions,) = await world.run()
    assert actions == ["initialize", "processRecords", "processRecords", "shutdownRequested", "leaseLost"]
    assert world.data() == [b"1", b"2", b"3"]
    assert world.stream.processed() == []
    assert world.children[0].log[0] == {
        "action": "initialize",
        "shardId": SHARD,
        "sequenceNumber": "TRIM_HORIZON",
        "subSequenceNumber": 0,
    }


async def test_a_checkpoint_is_answered_when_it_is_saved(autojump_clock):
    saved = []

    async def program(child):
        while True:
            message = await child.read()
            if message["action"] == "processRecords":
                started = trio.current_time()
                assert await child.checkpoint() is None
                saved.append((len(world.stream.processed()), trio.current_time() - started))
            child.done(message)

    world = World(program, b"1", b"2", b"3")
    await world.run()
    assert saved == [(2, 0), (3, 0)]


async def test_what_was_not_checkpointed_is_given_again(autojump_clock):
    async def program(child):
        while True:
            message = await child.read()
            if message["action"] == "processRecords" and len(world.children) == 1:
                first = message["records"][0]["sequenceNumber"]
                assert await child.checkpoint(first, 0) is None
            child.done(message)

    world = World(program, b"1", b"2")
    await world.run()
    await world.run()
    assert world.data() == [b"1", b"2", b"2"]
    assert int(world.children[1].log[0]["sequenceNumber"]) > 0


@pytest.mark.parametrize("read_mode", ["fanout", "polling", "auto"])
async def test_a_checkpoint_within_an_aggregate_leaves_the_rest_of_it(autojump_clock, read_mode):
    async def program(child):
        while True:
            message = await child.read()
            if message["action"] == "processRecords" and len(world.children) == 1:
                second = message["records"][1]
                assert await child.checkpoint(second["sequenceNumber"], second["subSequenceNumber"]) is None
            child.done(message)

    world = World(program, aggregate([AggregateEntry("k", b"%d" % number) for number in range(4)]))
    await world.run(read_mode=read_mode)
    await world.run(read_mode=read_mode)
    subs = [[record["subSequenceNumber"] for record in child.log[1]["records"]] for child in world.children]
    assert subs == [[0, 1, 2, 3], [2, 3]]
    assert world.data() == [b"0", b"1", b"2", b"3", b"2", b"3"]
    assert world.children[1].log[0]["subSequenceNumber"] == 1


async def test_a_checkpoint_may_be_of_an_earlier_message(autojump_clock):
    async def program(child):
        numbers = []
        while True:
            message = await child.read()
            if message["action"] == "processRecords":
                numbers += [record["sequenceNumber"] for record in message["records"]]
            if message["action"] == "processRecords" and len(numbers) == 6:
                assert await child.checkpoint(numbers[2]) is None
                assert await child.checkpoint(numbers[1]) == "IllegalArgumentException"
                assert await child.checkpoint("9" * 60) == "IllegalArgumentException"
            child.done(message)

    world = World(program, b"1", b"2", b"3", b"4", b"5", b"6")
    await world.run(5)
    assert world.stream.processed() == [b"1", b"2", b"3"]


async def test_the_end_of_a_shard_comes_before_its_children(autojump_clock):
    world = World(checkpointing, b"1", b"2")

    async def split(_consumer):
        await trio.sleep(5)
        world.stream.split(SHARD)
        world.stream.put("key", b"3")

    actions = await world.run(during=split)
    assert actions[0] == ["initialize", "processRecords", "shardEnded"]
    assert sorted(actions[1:]) == sorted(
        [
            ["initialize", "processRecords", "shutdownRequested", "leaseLost"],
            ["initialize", "shutdownRequested", "leaseLost"],
        ]
    )
    assert world.data() == [b"1", b"2", b"3"]


async def test_clients_of_kcl_1_get_a_shutdown(autojump_clock):
    world = World(checkpointing, b"1", protocol=1)

    async def program(child):
        while True:
            message = await child.read()
            if message.get("reason") == "TERMINATE":
                assert await child.checkpoint() is None
            if message.get("reason") == "ZOMBIE":
                assert await child.checkpoint() == "InvalidStateException"
            child.done(message)

    async def split(_consumer):
        await trio.sleep(5)
        world.stream.split(SHARD)

    world.program = program
    actions = await world.run(during=split)
    assert actions[0] == ["initialize", "processRecords", "shutdown"]
    assert actions[1] == ["initialize", "shutdownRequested", "shutdown"]
    assert world.reader.failure is None


async def test_a_child_without_a_checkpoint_at_the_end_of_its_shard_fails(autojump_clock):
    world = World(careless, b"1")

    async def split(_consumer):
        await trio.sleep(5)
        world.stream.split(SHARD)

    actions = await world.run(during=split)
    assert actions == [["initialize", "processRecords", "shardEnded"]]
    assert "did not checkpoint at the end" in str(world.reader.failure)
    assert world.stream.processed() == []


async def test_a_lost_lease_ends_what_runs_and_then_the_child(autojump_clock):
    errors = []

    async def program(child):
        while True:
            message = await child.read()
            if message["action"] == "processRecords":
                world.stream.lose_lease(SHARD)
                await trio.sleep(6)  # the next renewal finds it
                errors.append(await child.checkpoint())
            child.done(message)

    world = World(program, b"1")
    (actions,) = await world.run(8)
    assert actions == ["initialize", "processRecords", "leaseLost"]
    assert errors == ["ShutdownException"]
    assert world.reader.failure is None


async def test_a_checkpoint_that_finds_the_lease_lost_is_answered(autojump_clock):
    errors = []

    async def program(child):
        while True:
            message = await child.read()
            if message["action"] == "processRecords":
                world.stream.lose_lease(SHARD)
                errors.append(await child.checkpoint())
            child.done(message)

    world = World(program, b"1")
    (actions,) = await world.run(8)
    assert actions == ["initialize", "processRecords", "leaseLost"]
    assert errors == ["ShutdownException"]


async def test_a_child_that_hangs_after_its_lease_is_lost_is_ended(autojump_clock):
    async def program(child):
        child.done(await child.read())
        await child.read()
        world.stream.lose_lease(SHARD)
        await trio.sleep_forever()

    world = World(program, b"1")
    actions = await world.run(30)
    assert actions[0] == ["initialize", "processRecords"]
    assert world.reader.failure is None


async def dies_at_once(child):
    raise EndedError


async def dies_in_a_batch(child):
    child.done(await child.read())
    await child.read()


async def dies_when_idle(child):
    for _ in range(2):
        child.done(await child.read())
    await trio.sleep(1)


async def answers_another_action(child):
    child.done(await child.read())
    await child.read()
    child.write(action="status", responseFor="initialize")
    await trio.sleep_forever()


async def answers_without_an_action(child):
    await child.read()
    child.write(action="status")
    await trio.sleep_forever()


async def hangs(child):
    child.done(await child.read())
    await trio.sleep_forever()


FAILURES = [
    (dies_at_once, "closed its std"),
    (dies_in_a_batch, "closed its stdout"),
    (dies_when_idle, "closed its stdout"),
    (answers_another_action, "answered another action than processRecords"),
    (answers_without_an_action, "answered another action than initialize"),
    (hangs, "did not answer processRecords within timeoutInSeconds = 3"),
]


@pytest.mark.parametrize(("program", "message"), FAILURES)
async def test_a_failed_child_stops_the_worker_and_loses_nothing(autojump_clock, program, message):
    world = World(program, b"1", b"2", timeout=3)
    await world.run(20)
    assert message in str(world.reader.failure)
    assert len(world.children) == 1
    assert not world.reader.children
    assert world.stream.processed() == []
    world.program = checkpointing
    await world.run()
    assert world.data()[-2:] == [b"1", b"2"]
    assert world.stream.processed() == [b"1", b"2"]


async def test_the_other_children_finish_when_one_fails(autojump_clock):
    async def program(child):
        if child.shard_id == SHARD:
            child.done(await child.read())
            await trio.sleep(3)
            raise EndedError
        await checkpointing(child)

    world = World(program, b"1", shards=2)
    actions = await world.run()
    assert max(actions, key=len)[-2:] == ["shutdownRequested", "leaseLost"]
    assert world.reader.failure is not None


async def test_an_isolated_child_is_started_again_after_the_cool_down(autojump_clock):
    async def program(child):
        await (checkpointing(child) if len(world.children) > 1 else dies_in_a_batch(child))

    world = World(program, b"1", on_failure="isolate")
    await world.run(120)
    assert world.reader.failure is None
    assert world.data() == [b"1", b"1"]
    assert world.stream.processed() == [b"1"]
    (isolated,) = [event for event in world.stream.events if isinstance(event, ShardIsolated)]
    assert isolated.error_type == "child_process"


async def test_a_child_that_does_not_know_the_request_for_a_shutdown_changes_nothing(autojump_clock):
    async def program(child):
        while True:
            message = await child.read()
            if message["action"] == "shutdownRequested":
                raise EndedError
            if message["action"] == "processRecords":
                assert await child.checkpoint() is None
            child.done(message)

    world = World(program, b"1")
    await world.run()
    assert world.reader.failure is None
    assert world.stream.processed() == [b"1"]


async def test_messages_have_at_most_max_records(autojump_clock):
    world = World(checkpointing, *(b"%d" % number for number in range(4)), max_records=1)
    await world.run()
    sizes = [len(message["records"]) for message in world.children[0].log if "records" in message]
    assert sizes == [1, 1, 1, 1]


async def test_an_idle_shard_gets_empty_messages_on_request(autojump_clock):
    world = World(checkpointing, b"1", empty_after=2.0)
    await world.run(10.5)
    sizes = [len(message["records"]) for message in world.children[0].log if "records" in message]
    assert sizes[0] == 1
    assert set(sizes[1:]) == {0}
    assert 4 <= len(sizes[1:]) <= 5


async def test_a_checkpoint_between_two_messages_is_answered_with_the_next(autojump_clock):
    answers = []

    async def program(child):
        child.done(await child.read())
        child.write(action="checkpoint", sequenceNumber=None)
        with suppress(EndedError):
            while True:
                message = await child.read()
                answers.append(message["action"])
                if message["action"] != "checkpoint":
                    child.done(message)

    world = World(program, b"1")
    await world.run()
    assert answers == ["processRecords", "checkpoint", "shutdownRequested", "leaseLost"]
    assert world.stream.processed() == [b"1"]


async def test_an_unavailable_lease_store_is_throttling(autojump_clock):
    answers = []

    async def program(child):
        while True:
            message = await child.read()
            if message["action"] == "processRecords":
                world.stream.leases.fail = True
                answers.append(await child.checkpoint())
                world.stream.leases.fail = False
                answers.append(await child.checkpoint())
            child.done(message)

    class Failing(type(InMemoryStream().leases)):
        fail = False

        async def _write(self, key, change):
            if self.fail:
                raise efo.errors.LeaseStoreUnavailableError("down")
            return await super()._write(key, change)

    world = World(program, b"1")
    world.stream.leases = Failing()
    await world.run()
    assert answers == ["ThrottlingException", None]


async def test_acks_of_processors_that_checkpoint_once_a_minute_are_not_overdue(autojump_clock):
    world = World(careless, *(b"%d" % number for number in range(400)))
    await world.run(60)
    assert len(world.data()) == 400
    assert not [event for event in world.stream.events if isinstance(event, AcksOverdue)]
