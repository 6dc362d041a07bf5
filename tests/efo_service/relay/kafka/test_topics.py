"""A starting cluster, in which some brokers start later and do not know all topics yet. Without a broker."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from efo_service.relay.kafka import topics as kafka_topics
from efo_service.relay.kafka.checkpoints import Checkpoints
from efo_service.relay.kafka.errors import KafkaRefusedError, KafkaUnavailableError
from efo_service.relay.kafka.topics import KafkaTopic, ensure_topic, records_topic

WANTED = records_topic("orders", 4, 3, create=True)
TOO_FEW = KafkaError.INVALID_REPLICATION_FACTOR
UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART


class Cluster:
    """Responds like AdminClient. Each kind of call first returns its errors, one after the other, then succeeds."""

    def __init__(self, **errors) -> None:
        self.errors = {kind: list(codes) for kind, codes in errors.items()}
        self.has_topic = False

    def _respond(self, kind, value):
        future = Future()
        if self.errors.get(kind):
            future.set_exception(KafkaException(KafkaError(self.errors[kind].pop(0), kind)))
        else:
            future.set_result(value)
        return future

    def describe_topics(self, _topics):
        missing = [] if self.has_topic else [UNKNOWN]
        self.errors["describe"] = missing
        return {"orders": self._respond("describe", SimpleNamespace(partitions=[0, 1, 2, 3]))}

    def create_topics(self, _topics):
        future = self._respond("create", None)
        self.has_topic |= future.exception() is None
        return {"orders": future}

    def describe_configs(self, resources):
        return {resources[0]: self._respond("config", {"max.message.bytes": SimpleNamespace(value="7")})}


@pytest.fixture(autouse=True)
def poll_without_delay(monkeypatch) -> None:
    monkeypatch.setattr(kafka_topics, "_POLL_SECONDS", 0.0)


def test_creation_waits_until_enough_brokers_have_started() -> None:
    cluster = Cluster(create=[TOO_FEW] * 3)
    assert ensure_topic(cluster, WANTED, 1.0) == KafkaTopic("orders", 4, 7)
    assert cluster.errors["create"] == []


def test_too_few_brokers_are_reported_after_the_timeout(monkeypatch) -> None:
    monkeypatch.setattr(kafka_topics, "_PROPAGATION_SECONDS", -1.0)
    with pytest.raises(KafkaRefusedError, match="cannot create the topic 'orders'"):
        ensure_topic(Cluster(create=[TOO_FEW]), WANTED, 1.0)


def test_settings_are_read_again_until_the_broker_knows_the_topic() -> None:
    assert ensure_topic(Cluster(config=[UNKNOWN] * 3), WANTED, 1.0).max_message_bytes == 7


def test_a_broker_that_never_knows_the_topic_is_reported(monkeypatch) -> None:
    monkeypatch.setattr(kafka_topics, "_PROPAGATION_SECONDS", -1.0)
    with pytest.raises(KafkaUnavailableError, match="does not know its settings"):
        ensure_topic(Cluster(config=[UNKNOWN]), WANTED, 1.0)


@pytest.mark.parametrize(
    ("error", "partitions"),
    [(KafkaError(UNKNOWN, "unknown topic"), 0), (None, 0), (None, 3)],
    ids=["unknown topic", "no partitions", "too few partitions"],
)
def test_incomplete_metadata_of_the_checkpoint_topic_are_an_error(error, partitions) -> None:
    """If a position were not found, the shard would start at its lease's checkpoint and repeat records."""
    found = SimpleNamespace(error=error, partitions=dict.fromkeys(range(partitions)))
    admin = SimpleNamespace(list_topics=lambda _name, _seconds: SimpleNamespace(topics={"positions": found}))
    checkpoints = Checkpoints({"bootstrap.servers": "127.0.0.1:1"}, admin, KafkaTopic("positions", 4, 7), 1.0)
    with pytest.raises(KafkaUnavailableError, match="'positions'"):
        checkpoints.read(b"key")
    checkpoints.close()
