"""What a developer is shown of a mistake, in each form: one sentence, at the call, a short traceback."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import asynccontextmanager

import pytest
import trio

import efo
import efo.aio
import efo.sync
from efo.errors import ConnectError, ConsumerLimitError, LeaseStoreCorruptError
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.faults.kinds import Refuse
from efo.testing.faults.script import ALWAYS, FaultScript, When
from tests.efo.adapters.programs import STREAM, World, use_virtual_time


def done(_consumer, _batch):
    return True


@pytest.fixture(autouse=True)
def _virtual(monkeypatch):
    use_virtual_time(monkeypatch)


@pytest.mark.promise("names that AWS refuses")
def test_an_application_that_aws_refuses_as_a_consumer_is_refused_at_the_call(program):
    for name in ("my app", "a/b", "ü", "x" * 129):
        world = World(shards=1)
        with pytest.raises(
            efo.errors.ConfigurationError, match=r"application=.* expected 1 to 128 letters .*consumer_name"
        ):
            program(world, done, application=name)
        assert world.seen == []  # nothing was begun


@pytest.mark.promise("names that AWS refuses")
def test_an_application_may_have_any_name_if_its_consumer_has_another_or_none(program):
    for options in ({"consumer_name": "billing"}, {"read_mode": "polling"}):
        program(World(shards=1), done, application="my app", until="now", settings=efo.ConsumerSettings(**options))


def test_a_consumer_name_that_aws_refuses_is_refused():
    with pytest.raises(efo.errors.ConfigurationError, match="consumer_name='my app': expected 1 to 128 letters"):
        efo.ConsumerSettings(consumer_name="my app")


@pytest.mark.parametrize("name", ["ab", "x" * 256, "my app"])
async def test_an_application_that_is_no_table_is_refused_before_a_consumer_is_registered(name):
    settings = efo.ConsumerSettings(consumer_name="billing")
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        kinesis = fake.kinesis(STREAM)
        with pytest.raises(efo.errors.ConfigurationError, match=r"application=.* lease table .*dynamodb:TABLE"):
            async with efo.open_consumer(kinesis, application=name, leases="dynamodb:", settings=settings):
                pass
        described = await kinesis.control_plane.describe_stream()
        assert await kinesis.control_plane.list_consumers(described.arn) == []


@pytest.mark.promise("use after close")
def test_a_consumer_that_is_closed_refuses_to_run(program):
    seen = []

    def end(consumer, _batch):
        seen.append(consumer)
        return True

    world = World(shards=1)
    world.put(0)
    program(world, end, until="now")
    consumer = getattr(seen[0], "many", seen[0])
    with pytest.raises(efo.errors.EfoError, match="closed"):
        run_again(consumer)


def run_again(consumer):
    async def on_trio():
        await consumer.run(nothing)

    async def on_asyncio():
        await consumer.run(efo.aio.Handler(nothing))

    if isinstance(consumer, efo.Consumer | efo.MultiStreamConsumer):
        trio.run(on_trio)
    elif isinstance(consumer, efo.aio.Consumer | efo.aio.MultiStreamConsumer):
        asyncio.run(on_asyncio())
    else:
        consumer.run(efo.sync.Handler(lambda _batch: None))


async def nothing(_shard):
    """Do nothing."""


async def test_a_shard_that_is_kept_after_its_reader_says_so(autojump_clock):
    kept = []

    async def read(shard):
        kept.append(shard)
        async for batch in shard:
            shard.ack(batch)

    async with FakeKinesis() as fake:
        fake.create_stream(STREAM)
        opening = efo.open_consumer(fake.kinesis(STREAM), application="app", leases="memory:", until="now")
        async with opening as consumer:
            await consumer.run(read)
            with pytest.raises(efo.errors.ConfigurationError, match="its reader has ended"):
                await kept[0].__anext__()
        with pytest.raises(efo.errors.ConfigurationError, match="closed"):
            consumer.pause("shardId-000000000000")


@pytest.mark.promise("one sentence")
def test_an_operational_error_has_its_sentence_and_no_frames_of_efo_below_the_call(program):
    world = World(shards=2)
    world.faults = FaultScript(
        [(Refuse("AccessDeniedException", "no kinesis:ListShards"), When(operation="ListShards", times=ALWAYS))]
    )
    with pytest.raises(efo.errors.AccessDeniedError, match="ListShards") as raised:
        program(world, done)
    below = [frame for frame in traceback.extract_tb(raised.tb) if is_below(frame.filename)]
    assert below == []
    assert raised.value.__cause__ is None
    assert "at the same time" not in "".join(traceback.format_exception(raised.value))


def is_below(file):
    return any(f"/efo/{part}/" in file for part in ("kinesis", "leases", "protocol"))


@pytest.mark.promise("one sentence")
def test_an_application_keeps_the_frames_of_its_own_code(program_with_policy):
    world = World(shards=1)
    world.put(0)

    def fail(_consumer, _batch):
        raise LeaseStoreCorruptError("the application's own use of an error of efo")

    with pytest.raises(LeaseStoreCorruptError) as raised:
        program_with_policy(world, fail)
    assert "fail" in [frame.name for frame in traceback.extract_tb(raised.tb)]


async def test_a_stream_that_may_have_no_more_consumers_speaks_to_a_library_user(autojump_clock):
    refused = Refuse("LimitExceededException", "20 consumers")
    script = FaultScript([(refused, When(operation="RegisterStreamConsumer", times=ALWAYS))])
    async with FakeKinesis(faults=script, settings=FakeSettings()) as fake:
        fake.create_stream(STREAM)
        with pytest.raises(ConsumerLimitError, match="read_mode 'polling' or 'auto'") as raised:
            await efo.consume(fake.kinesis(STREAM), nothing, application="app", leases="memory:")
    assert "[" not in str(raised.value)  # no table of TOML


@pytest.mark.parametrize("region", ["Frankfurt", "eu-central-1a", "EU-CENTRAL-1", "eu_central_1"])
@pytest.mark.parametrize("surface", ["trio", "asyncio", "sync"])
def test_what_is_no_region_is_refused_at_the_call(surface, region):
    with pytest.raises(efo.errors.ConfigurationError, match="no region of AWS: write its code"):
        call(surface, region=region)


def test_an_endpoint_that_is_not_there_is_one_sentence(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "CANARY")
    with pytest.raises(ConnectError, match=r"cannot connect to 127.0.0.1:1") as raised:
        call("sync", region="eu-central-1", endpoint_url="http://127.0.0.1:1")
    lines = "".join(traceback.format_exception(raised.value)).splitlines()
    assert len(lines) < 60  # those of this test, of the event loop and of the call
    assert not [line for line in lines if "The above exception" in line or "During handling" in line]


def call(surface, **where):
    options = {"application": "app", "leases": "memory:", **where}
    if surface == "trio":

        async def main():
            await efo.consume(STREAM, nothing, **options)

        trio.run(main)
    elif surface == "asyncio":
        asyncio.run(efo.aio.consume(STREAM, nothing, **options))
    else:
        efo.sync.consume(STREAM, lambda _batch: None, **options)


@asynccontextmanager
async def no_stream():
    yield


def test_a_client_that_is_opened_and_not_entered_says_what_to_write():
    async def main():
        await efo.consume(no_stream(), nothing, application="app")

    with pytest.raises(efo.errors.ConfigurationError, match=r"write `async with efo.open_kinesis"):
        trio.run(main)
