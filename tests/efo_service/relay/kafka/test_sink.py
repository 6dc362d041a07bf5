"""The Kafka sink with a real broker: exactly-once delivery, and mistakes of operators."""

from __future__ import annotations

import collections
import signal
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import replace
from functools import partial

import msgspec
import pytest
import trio
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from efo.errors import IsolateShardError
from efo.model import Batch, checkpoint_of
from efo_service.config.settings import Settings
from efo_service.exit_codes import Exit, code_of
from efo_service.factories.sinks import open_sink
from efo_service.relay.errors import RecordRefusedError, SinkError
from efo_service.relay.kafka.errors import (
    KafkaAbortedError,
    KafkaCheckpointError,
    KafkaFencedError,
    KafkaRefusedError,
    KafkaUnavailableError,
)
from efo_service.relay.kafka.options import CHECKPOINT_PARTITIONS, KafkaOptions
from efo_service.relay.kafka.producer import partitions
from efo_service.relay.kafka.sink import open_kafka
from efo_service.relay.relay import relay_shard
from proofs.e2e.kafka.broker import running_broker
from proofs.local_servers.kafka import read_topic, serve_kafka
from proofs.ports import free_port
from tests.efo_service.relay.kafka.crash import BATCH_RECORDS, batch
from tests.efo_service.relay.relaying import ListedShard, commit, relay_all, to
from tests.paths import ROOT

SHARD = "shardId-000000000000"
TIMEOUT = 120.0


@pytest.fixture
def broker(servers):
    return servers.url(serve_kafka)


@pytest.fixture
def name(tmp_path):
    """The name of a topic and an application that no other test uses."""
    return tmp_path.name


@pytest.fixture
def kafka(broker, name):
    def kafka(**settings):
        letters = settings.pop("letters", False)
        names = {"application": name, "stream": "orders", "topic": settings.pop("topic", name)}
        names["extract"] = settings.pop("extract", None)
        return open_kafka(
            KafkaOptions(bootstrap_servers=broker, **{"partitions": 1, **settings}), **names, for_dead_letters=letters
        )

    return kafka


@pytest.fixture
def admin(broker):
    return AdminClient({"bootstrap.servers": broker, "log_level": 0})


async def values(broker: str, topic: str, **options) -> list[bytes]:
    messages = await trio.to_thread.run_sync(lambda: read_topic(broker, topic, **options))
    return [message.value() for message in messages]


async def put(sink, *batches: Batch) -> None:
    async with sink.open("orders", SHARD) as shard:
        for one in batches:
            await commit(shard, one)


# --- exactly once --------------------------------------------------------------------------------------


async def test_a_worker_that_has_lost_its_shard_is_fenced_and_writes_nothing(kafka, broker, name, make_batch):
    async with kafka() as old, kafka() as new, old.open("orders", SHARD) as old_shard:
        await commit(old_shard, make_batch(3))
        async with new.open("orders", SHARD) as new_shard:
            assert new_shard.position == checkpoint_of(make_batch(3).records[-1])
            await commit(new_shard, make_batch(2, 3))
        with pytest.raises(KafkaFencedError, match="another worker has opened this shard"):
            await commit(old_shard, make_batch(2, 3))
    assert await values(broker, name) == [record.data for record in make_batch(5).records]


async def test_a_worker_is_fenced_in_the_middle_of_its_transaction(kafka, broker, name, make_batch, monkeypatch):
    """The broker has its records when another worker opens the shard. They never become visible."""
    reached, resume = threading.Event(), threading.Event()
    target = "efo_service.relay.kafka.producer.TransactionalWriter._commit"

    def wait(writer, producer, deadline):
        producer.flush()
        reached.set()
        assert resume.wait(TIMEOUT)
        producer.commit_transaction()

    async with kafka() as old, kafka() as new, old.open("orders", SHARD) as old_shard, trio.open_nursery() as nursery:
        with monkeypatch.context() as patch:
            patch.setattr(target, wait)
            fenced = trio.Event()

            async def commit_and_fail() -> None:
                with pytest.raises(KafkaFencedError):
                    await commit(old_shard, make_batch(3))
                fenced.set()

            nursery.start_soon(commit_and_fail)
            assert await trio.to_thread.run_sync(reached.wait, TIMEOUT)
        async with new.open("orders", SHARD) as new_shard:
            assert new_shard.position is None
            resume.set()
            await fenced.wait()
            await commit(new_shard, make_batch(3))
    assert await values(broker, name) == [record.data for record in make_batch(3).records]
    assert len(await values(broker, name, committed=False)) == 6


async def test_an_aborted_transaction_is_invisible_and_the_shard_continues(kafka, broker, name, admin, make_batch):
    """The topic's limit is lowered after the sink has read it, so the broker rejects a record that the sink accepts."""
    big = Batch("s", SHARD, (msgspec.structs.replace(make_batch(1, 3).records[0], data=bytes(50_000)),), "", 0, 0)
    async with kafka(compression="none") as sink:
        async with sink.open("orders", SHARD) as shard:
            await commit(shard, make_batch(3))
            limit(admin, name, 20_000)
            with pytest.raises(KafkaAbortedError, match="commit records of shardId-000000000000"):
                await commit(shard, big)
        async with sink.open("orders", SHARD) as shard:
            assert shard.position == checkpoint_of(make_batch(3).records[-1])
        with pytest.raises(RecordRefusedError, match="the topic takes 20000"):
            await relay_all(to(sink), big)
        async with sink.open("orders", SHARD) as shard:
            await commit(shard, make_batch(2, 3))
    assert await values(broker, name) == [record.data for record in make_batch(5).records]


async def test_an_error_outside_kafka_leaves_no_open_transaction(kafka, broker, name, make_batch):
    """An open transaction would hide later records of other shards until it times out."""

    def extract(record):
        if record == make_batch(3).records[2]:
            time.sleep(0.1)  # runs in a thread; meanwhile the broker gets the earlier records
            raise ValueError("odd")

    async with kafka(extract=extract) as sink, kafka() as other, sink.open("orders", SHARD) as shard:
        with pytest.raises(SinkError, match="the trace extractor failed"):
            await commit(shard, make_batch(3))
        async with other.open("orders", "another") as neighbour:
            await commit(neighbour, make_batch(2))
        assert await values(broker, name) == [record.data for record in make_batch(2).records]
    assert len(await values(broker, name, committed=False)) == 4


def limit(admin: AdminClient, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT)


@pytest.mark.parametrize(
    ("step", "when", "committed"),
    [("produce", "after", 2), ("commit_transaction", "before", 2), ("commit_transaction", "after", 3)],
)
async def test_a_sigkill_during_a_commit_loses_and_repeats_no_record(kafka, broker, name, step, when, committed):
    child = [sys.executable, "-m", "tests.efo_service.relay.kafka.crash", broker, name, "3", step, when]
    done = await trio.run_process(child, check=False, capture_stderr=True, cwd=ROOT, stdin=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    written = await values(broker, name, committed=False)
    assert len(written) > 2 * BATCH_RECORDS, "the broker has records of the open transaction"
    async with kafka() as sink, sink.open("orders", "shard") as shard:
        assert shard.position == checkpoint_of(batch(committed - 1).records[-1])
        for number in range(committed, 5):
            await commit(shard, batch(number))
    assert await values(broker, name) == [b"%d" % number for number in range(5 * BATCH_RECORDS)]


async def test_positions_are_found_after_partitions_are_added_to_the_checkpoint_topic(kafka, admin, name, make_batch):
    own = {"checkpoint_topic": f"{name}-positions"}
    async with kafka(**own) as sink:
        await put(sink, make_batch(3))
    for future in admin.create_partitions([NewPartitions(own["checkpoint_topic"], CHECKPOINT_PARTITIONS + 3)]).values():
        future.result(TIMEOUT)
    async with kafka(**own) as sink:
        for start in (3, 6):
            async with sink.open("orders", SHARD) as shard:
                assert shard.position == checkpoint_of(make_batch(start).records[-1])
                await commit(shard, make_batch(3, start))


# --- topics and partitions -----------------------------------------------------------------------------


async def test_keys_get_the_partitions_of_javas_producer(kafka, broker, name, make_batch):
    async with kafka(partitions=5) as sink:
        await put(sink, make_batch(70))
    messages = await trio.to_thread.run_sync(read_topic, broker, name)
    assert len(messages) == 70
    keys = [b"key-%d" % number for number in range(7)]
    assert {(m.key(), m.partition()) for m in messages} == set(zip(keys, partitions(keys, 5).tolist(), strict=True))
    assert [m.value() for m in messages if m.key() == keys[0]] == [
        record.data for record in make_batch(70).records if record.partition_key == "key-0"
    ]


@pytest.mark.parametrize("partition_by", ["key", "shard"])
async def test_records_without_a_key_stay_in_order_in_the_partition_of_their_shard(
    kafka, broker, name, make_batch, partition_by
):
    plain = make_batch(40)
    mixed = tuple(
        msgspec.structs.replace(record, partition_key=None) if number % 2 else record
        for number, record in enumerate(plain.records)
    )
    async with kafka(partitions=5, partition_by=partition_by) as sink:
        await put(sink, replace(plain, records=mixed))
    messages = await trio.to_thread.run_sync(read_topic, broker, name)
    keyless = [message for message in messages if message.key() is None]
    assert {message.partition() for message in keyless} == {zlib.crc32(SHARD.encode()) % 5}
    assert [message.value() for message in keyless] == [record.data for record in mixed if record.partition_key is None]
    assert len(messages) == 40


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
async def test_shards_that_are_opened_later_use_added_partitions(kafka, broker, admin, name, make_batch, delivery):
    async with kafka(partitions=2, delivery=delivery) as sink:
        await put(sink, make_batch(7))
        for future in admin.create_partitions([NewPartitions(name, 9)]).values():
            future.result(TIMEOUT)
        while len(admin.list_topics(name, TIMEOUT).topics[name].partitions) < 9:
            await trio.lowlevel.checkpoint()
        await put(sink, make_batch(7, 7))
    found = collections.Counter(
        (m.key(), m.partition()) for m in await trio.to_thread.run_sync(read_topic, broker, name)
    )
    keys = [b"key-%d" % number for number in range(7)]
    assert found == collections.Counter(
        (key, at) for n in (2, 9) for key, at in zip(keys, partitions(keys, n), strict=True)
    )


async def test_each_shard_can_have_a_separate_topic_or_partition(kafka, broker, name, make_batch):
    async with kafka(topic=f"{name}.{{stream}}.{{shard}}") as sink:
        await put(sink, make_batch(4))
    assert len(await values(broker, f"{name}.orders.{SHARD}")) == 4
    async with kafka(topic=f"{name}.by-shard", partitions=5, partition_by="shard") as sink:
        await put(sink, make_batch(4, 4))
    messages = await trio.to_thread.run_sync(read_topic, broker, f"{name}.by-shard")
    assert len({message.partition() for message in messages}) == 1
    assert [message.key() for message in messages] == [b"key-4", b"key-5", b"key-6", b"key-0"]


async def test_a_record_that_is_too_large_becomes_a_dead_letter_with_its_reason(broker, name, admin, make_batch):
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "20000"})])[name].result(TIMEOUT)
    relay = {"sink": "kafka", "dead_letters": f"{name}.dead", "kafka": {"bootstrap_servers": broker}}
    settings = Settings(kinesis={"stream": "orders"}, consumer={"application": name}, relay=relay | {"topic": name})
    records = list(make_batch(5).records)
    records[2] = msgspec.structs.replace(records[2], data=bytes(50_000))
    for _ in range(2):  # reopening repeats no record
        async with open_sink(settings) as destination:
            if (shard := await relay_all(destination)).seeks == []:
                await relay_all(destination, Batch("s", SHARD, tuple(records), "", 0, 0))
                shard = await relay_all(destination)
            assert shard.seeks == [checkpoint_of(records[-1])]
    assert await values(broker, name) == [record.data for record in records if record is not records[2]]
    (dead_letter,) = await trio.to_thread.run_sync(read_topic, broker, f"{name}.dead")
    assert dead_letter.value() == bytes(50_000)
    assert "the topic takes 20000" in dict(dead_letter.headers())["kinesis.tag.efo.refusal"].decode()


TOPICS = [""]
ROUTED = {b"value-1": "eu", b"value-4": "us"}


def by_value(record):
    """The transform of the test below."""
    region = ROUTED.get(record.data)
    if record.data == b"value-3":
        return None
    return record if region is None else (record, f"{TOPICS[0]}.{region}")


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
async def test_a_transform_drops_and_routes_records_by_what_they_contain(broker, name, delivery, make_batch):
    TOPICS[0] = name
    relay = {
        "sink": "kafka",
        "topic": name,
        "transform": f"{__name__}:by_value",
        "kafka": {"bootstrap_servers": broker, "delivery": delivery, "routes": [f"{name}.eu", f"{name}.us"]},
    }
    settings = Settings(kinesis={"stream": "orders"}, consumer={"application": name}, relay=relay)
    async with open_sink(settings) as destination:
        shard = await relay_all(destination, make_batch(6))
        assert shard.acked == [(0, None)]
        if delivery == "exactly_once":  # the position is that of the last record, in whichever topic
            assert (await relay_all(destination)).seeks == [checkpoint_of(make_batch(6).records[-1])]
    assert await values(broker, name) == [b"value-0", b"value-2", b"value-5"]
    for region in ("eu", "us"):
        (message,) = await trio.to_thread.run_sync(read_topic, broker, f"{name}.{region}")
        assert ROUTED[message.value()] == region
        assert "kinesis.tag.efo.topic" not in dict(message.headers())


# --- mistakes of operators -----------------------------------------------------------------------------


async def refusal_of(opening) -> KafkaRefusedError:
    with pytest.raises(KafkaRefusedError) as caught:
        async with opening:
            pass
    assert code_of(caught.value) == Exit.CONFIGURATION
    return caught.value


async def test_a_missing_topic_that_may_not_be_created_is_refused(kafka, name):
    positions = await refusal_of(kafka(create_topics=False, checkpoint_topic=f"{name}-positions"))
    assert f"Kafka has no topic '{name}-positions'" in str(positions)
    async with kafka(topic=f"{name}-other"):
        pass  # now the checkpoint topic exists
    error = await refusal_of(kafka(create_topics=False))
    assert f"Kafka has no topic '{name}': create it, or set [relay.kafka] create_topics = true" in str(error)


@pytest.mark.parametrize(
    ("policy", "settings", "expected"),
    [
        ("delete", "checkpoint_topic", "positions of idle shards would expire"),
        ("compact", "topic", "would keep only one record of each partition key"),
    ],
)
async def test_a_topic_with_an_unsuitable_cleanup_policy_is_refused(kafka, admin, name, policy, settings, expected):
    made = f"{name}-made"
    admin.create_topics([NewTopic(made, 1, 1, config={"cleanup.policy": policy})])[made].result(TIMEOUT)
    assert expected in str(await refusal_of(kafka(**{settings: made})))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"version":1,"stream":"other","shard":"x","sequence":"1","sub_sequence":0}', "it belongs to other/x, at 1"),
        (b'{"version":2}', "it has version 2, but this efo supports 1"),
        (b"\xff", "it is invalid"),
        (b"[]", "it is invalid"),
    ],
)
async def test_an_invalid_position_is_an_error(kafka, broker, name, value, expected):
    async with kafka() as sink:
        foreign = Producer({"bootstrap.servers": broker, "log_level": 0})
        foreign.produce("efo-checkpoints", value, f"{name}/orders/{SHARD}", 0)
        foreign.flush()
        with pytest.raises(KafkaCheckpointError, match="nothing was read or written") as caught:
            await put(sink)
    assert expected in str(caught.value)


async def test_a_tombstone_makes_a_shard_start_anew(kafka, broker, name, make_batch):
    own = {"checkpoint_topic": f"{name}-positions"}
    async with kafka(**own) as sink:
        await put(sink, make_batch(3))
        operator = Producer({"bootstrap.servers": broker, "log_level": 0})
        operator.produce(own["checkpoint_topic"], None, f"{name}/orders/{SHARD}")
        operator.flush()
        async with sink.open("orders", SHARD) as shard:
            assert shard.position is None


async def test_unreachable_brokers_are_reported_after_connect_seconds():
    servers = f"127.0.0.1:{free_port()}"
    settings = KafkaOptions(bootstrap_servers=servers, connect_seconds=0.5)
    with pytest.raises(KafkaUnavailableError, match=rf"reach the brokers {servers} within 0.5 s") as caught:
        async with open_kafka(settings, application="a", stream="s", topic="t"):
            pass
    assert code_of(caught.value) == Exit.UNAVAILABLE


async def test_commits_wait_for_a_restarting_broker_and_isolate_the_shard_after_retry_seconds(
    broker, name, tmp_path, make_batch
):
    """Uses the service's sink, and a separate broker."""
    with running_broker(tmp_path / "broker") as own_broker:

        def settings(**kafka) -> Settings:
            relay = {"sink": "kafka", "kafka": {"bootstrap_servers": own_broker.address, "partitions": 1, **kafka}}
            return Settings(kinesis={"stream": "orders"}, relay=relay)

        class Shard(ListedShard):
            def ack_through(self, batch, index=None) -> None:
                if not self.acked:
                    own_broker.kill()
                    killed.set()
                super().ack_through(batch, index)

        killed, shard = trio.Event(), Shard([make_batch(3), make_batch(2, 3, 1)])
        async with open_sink(settings()) as destination:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(relay_shard, shard, destination, commit_records=1))
                await killed.wait()
                await trio.to_thread.run_sync(own_broker.start)
                with trio.fail_after(TIMEOUT):
                    await trio.to_thread.run_sync(own_broker.wait)
            # The connections are from before the restart.
            assert (await relay_all(destination, shard_id="another")).seeks == []
        assert shard.acked == [(0, None), (1, None)]
        assert await values(own_broker.address, "orders") == [record.data for record in make_batch(5).records]
        short = settings(transaction_seconds=1, retry_seconds=0.1, connect_seconds=5)
        async with open_sink(short) as destination:
            own_broker.kill()
            with pytest.raises(IsolateShardError, match="its sink has failed"):
                await relay_all(destination)
