"""The Kafka sink: brokers and topics, with the client library's own broker and a scripted client."""

import socket
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from efo_service.exit_codes import Exit
from efo_service.operations.doctor import kafka
from efo_service.operations.doctor.kafka import KafkaTarget, judge_topic, kafka_checks
from efo_service.operations.doctor.running import run_checks
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.kafka.topics import KafkaTopic, records_topic

NAMES = ["kafka brokers", "kafka topic", "kafka checkpoint topic", "kafka transactional id"]


class Client:
    """Responds like AdminClient for topics with these cleanup policies. It can do nothing else."""

    def __init__(self, **policies):
        self._policies = {name.replace("_", "-"): policy for name, policy in policies.items()}

    def list_topics(self, *, timeout):
        return SimpleNamespace(brokers={1: None, 2: None})

    def describe_topics(self, topics):
        [name] = topics.topic_names
        future = Future()
        if name in self._policies:
            future.set_result(SimpleNamespace(partitions=[0, 1, 2]))
        else:
            future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {name: future}

    def describe_configs(self, resources):
        future = Future()
        future.set_result({"cleanup.policy": SimpleNamespace(value=self._policies[resources[0].name])})
        return {resources[0]: future}


@pytest.fixture
def found(monkeypatch):
    """Return a function that runs the checks with a client, and returns the outcomes by name."""

    async def run(client=None, topic="orders", seconds=30.0, **options):
        if client is not None:
            monkeypatch.setattr(kafka, "open_admin", lambda *_: client)
        target = KafkaTarget(KafkaOptions(**options), "efo", {"kafka topic": topic})
        return {finding.name: finding.outcome for finding in await run_checks(kafka_checks(target, seconds), 60)}

    return run


async def test_existing_topics_pass_and_no_transactional_id_is_used(found):
    outcomes = await found(Client(orders="delete", efo_checkpoints="compact"))
    assert list(outcomes) == NAMES
    assert [outcome.result for outcome in outcomes.values()] == ["passed", "passed", "passed", "not tested"]
    assert outcomes["kafka brokers"].detail == "2 brokers, reached by 127.0.0.1:9092"
    assert outcomes["kafka topic"].detail == "orders has 3 partitions, fewer than the 12 that efo would create"
    assert "efo/*" in outcomes["kafka transactional id"].detail


async def test_missing_topics_pass_if_efo_may_create_them_and_are_not_created(found):
    outcomes = await found(Client())  # which cannot create a topic
    assert outcomes["kafka topic"].detail == "orders does not exist: `efo run` creates it with 12 partitions"
    assert outcomes["kafka checkpoint topic"].result == "passed"


async def test_missing_topics_fail_if_efo_may_not_create_them(found):
    outcomes = await found(Client(efo_checkpoints="compact"), create_topics=False)
    assert outcomes["kafka topic"].code == Exit.CONFIGURATION
    assert outcomes["kafka topic"].remedy == "create it, or set [relay.kafka] create_topics = true"
    assert outcomes["kafka checkpoint topic"].result == "passed"


async def test_a_topic_with_another_cleanup_policy_fails(found):
    outcomes = await found(Client(orders="compact", efo_checkpoints="delete"))
    assert [outcomes[name].result for name in NAMES[1:3]] == ["failed", "failed"]
    assert outcomes["kafka checkpoint topic"].remedy.startswith("set it to compact")


async def test_at_least_once_needs_neither_checkpoints_nor_transactions(found):
    assert list(await found(Client(), delivery="at_least_once")) == NAMES[:2]


async def test_a_topic_of_each_shard_is_not_tested(found):
    outcome = (await found(Client(), topic="orders.{shard}"))["kafka topic"]
    assert (outcome.result, outcome.detail) == ("not tested", "each shard has a topic of its own, orders.{shard}")


async def test_the_brokers_of_a_cluster_are_counted(found):
    """With the broker that the client library has for tests."""
    cluster = AdminClient({"bootstrap.servers": "unused", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = cluster.list_topics(timeout=30).brokers.values()
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    # It cannot describe topics: that check waits in vain.
    outcomes = await found(bootstrap_servers=servers, delivery="at_least_once", seconds=3.0)
    assert outcomes["kafka brokers"].detail == f"3 brokers, reached by {servers}"


async def test_brokers_that_cannot_be_reached_are_one_failure(found):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        outcomes = await found(bootstrap_servers=servers, seconds=0.1)
    assert (outcomes["kafka brokers"].result, outcomes["kafka brokers"].code) == ("failed", Exit.UNAVAILABLE)
    assert servers in outcomes["kafka brokers"].detail
    assert "bootstrap_servers" in outcomes["kafka brokers"].remedy
    assert outcomes["kafka topic"].detail == "kafka brokers failed"


async def test_a_ca_file_that_is_none_is_a_wrong_configuration(found, tmp_path):
    empty = tmp_path / "ca.pem"
    empty.write_text("nothing")
    outcomes = await found(security_protocol="ssl", ca_file=empty, seconds=0.1)
    assert outcomes["kafka brokers"].code == Exit.CONFIGURATION
    assert "ca_file" in outcomes["kafka brokers"].remedy


@pytest.mark.parametrize(
    ("topic", "replication", "result"),
    [(KafkaTopic("t", 1, 1), 3, "passed"), (None, -1, "passed"), (None, 2, "passed"), (None, 3, "failed")],
)
def test_a_topic_to_create_needs_a_broker_for_each_replica(topic, replication, result):
    outcome = judge_topic(records_topic("t", 1, replication, create=True), topic, 2)
    assert outcome.result == result
    assert ("replication_factor" in outcome.remedy) == (result == "failed")
