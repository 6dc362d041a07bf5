"""Another stream as a sink: what arrives there, in which order, what it refuses, and what is repeated."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import trio

import efo
from efo.errors import ConfigurationError
from efo.testing import FakeKinesis, FakeKinesisThread, FakeSettings, When
from efo.testing.faults.kinds import Refuse
from efo_service.config.settings import Settings
from efo_service.factories.sinks import open_sink
from efo_service.relay.destination import SinkRetries
from efo_service.relay.errors import RecordRefusedError, SinkClosedError, SinkUnavailableError
from efo_service.relay.kinesis_sink import kinesis_sink, open_kinesis_sink
from efo_service.relay.plugins import SinkContext
from tests.efo_service.relay.relaying import relay_all, to

CONTEXT = SinkContext("orders", "app", "orders-copy", "worker")


@pytest.fixture
async def fake(autojump_clock):
    async with FakeKinesis(settings=FakeSettings(throttle_writes=True)) as fake:
        fake.create_stream("copy", 2)
        yield fake


def opened(fake, **settings):
    return kinesis_sink(fake.kinesis("copy"), {}, efo.ProducerSettings(**{"ordered": True, **settings}))


def stored(fake, key=None):
    records = [record for records in fake.records("copy").values() for record in records]
    return [record.data for record in records if key is None or record.partition_key == key]


async def test_records_arrive_with_their_keys_in_the_order_of_each_key(fake, make_batch):
    async with opened(fake) as sink:
        shard = await relay_all(to(sink), make_batch(70), make_batch(30, 70, 1))
    assert shard.acked == [(1, None)]
    assert shard.seeks == []  # the lease's checkpoint counts
    assert sorted(stored(fake)) == sorted(b"value-%d" % n for n in range(100))
    assert stored(fake, "key-3") == [b"value-%d" % n for n in range(3, 100, 7)]


async def test_a_commit_of_which_some_records_are_not_stored_is_repeated_whole(fake, make_batch):
    fake.faults.add(Refuse("ProvisionedThroughputExceededException"), When(operation="PutRecords", times=30))
    retries = SinkRetries(seconds=300)
    async with opened(fake, delivery_timeout_seconds=2.0) as sink:
        shard = await relay_all(to(sink, retries=retries), make_batch(10))
    assert shard.acked == [(0, None)]
    assert set(stored(fake)) == {b"value-%d" % n for n in range(10)}


async def test_without_retries_the_failure_says_how_many_records_are_missing(fake, make_batch):
    fake.faults.add(Refuse("ProvisionedThroughputExceededException"), When(operation="PutRecords", times=10_000))
    async with opened(fake, delivery_timeout_seconds=2.0) as sink:
        with pytest.raises(SinkUnavailableError, match="10 of 10 records were not stored in the stream copy"):
            await relay_all(to(sink), make_batch(10))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"partition_key": None}, "it has no partition key"),
        ({"partition_key": "k" * 257}, "its partition key has 257 characters"),
        ({"data": bytes(1024 * 1024)}, "but the stream takes 1048576"),
    ],
)
async def test_what_the_stream_can_never_take_is_refused(fake, make_batch, change, reason):
    batch = make_batch(3)
    first, second, third = batch.records
    batch = replace(batch, records=(first, msgspec.structs.replace(second, **change), third))
    async with opened(fake) as sink:
        with pytest.raises(RecordRefusedError, match=reason):
            await relay_all(to(sink), batch)
    assert stored(fake) == [b"value-0"]


async def test_a_stream_that_distributes_records_itself_takes_those_without_a_key(fake, make_records):
    fake.create_stream("copy-auto", distribution="AUTO")
    (record,) = make_records(1)
    opening = kinesis_sink(fake.kinesis("copy-auto"), {}, efo.ProducerSettings())
    async with opening as sink, sink.open("orders", "shardId-0") as shard:
        assert shard.refusal(msgspec.structs.replace(record, partition_key=None)) is None


async def test_a_sink_that_is_closed_takes_nothing(fake, make_records):
    async with opened(fake) as sink:
        async with sink.open("orders", "shardId-0") as shard:
            part = shard.prepare(make_records(1))
        with pytest.raises(SinkClosedError):
            await shard.commit([part])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"stram": "copy"}, r"\[relay.options\] stram: the sink kinesis has no such option"),
        ({"stream": 5}, r"\[relay.options\] stream: expected a text"),
        ({"ordered": "yes"}, r"\[relay.options\] ordered: expected true or false"),
        ({"stream": "orders"}, "would put the records of the stream orders into itself"),
    ],
)
def test_wrong_options_are_refused_at_the_call(options, expected):
    with pytest.raises(ConfigurationError, match=expected):
        open_kinesis_sink(options, CONTEXT)


def test_the_same_name_in_another_region_is_another_stream():
    for options in (
        {"stream": "orders", "region": "eu-west-1"},
        {"stream": "arn:aws:kinesis:eu-west-1:000000000000:stream/orders"},
    ):
        open_kinesis_sink(options, CONTEXT)


def test_the_service_relays_into_a_stream_that_its_options_name(make_batch, monkeypatch):
    settings = Settings(kinesis={"stream": "orders"}, relay={"sink": "kinesis", "options": {"stream": "copy"}})

    async def relay():
        async with open_sink(settings) as destination:
            return await relay_all(destination, make_batch(5))

    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0)) as thread:
        thread.create_stream("copy", 1)
        for name, value in thread.environment.items():
            monkeypatch.setenv(name, value)
        assert trio.run(relay).acked == [(0, None)]
        ((_, records),) = thread.records("copy").items()
    assert [record.data for record in records] == [b"value-%d" % n for n in range(5)]
