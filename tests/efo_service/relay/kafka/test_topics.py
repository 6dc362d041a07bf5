"""Clusters that start: some brokers are there, and know of some topics, before the others. Without a broker."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from efo_service.relay.kafka import topics as kafka_topics
from efo_service.relay.kafka.checkpoints import Checkpoints
from efo_service.relay.kafka.errors import KafkaRefusedError, KafkaUnavailableError
from efo_service.relay.kafka.topics import Topic, ensure_topic, records_topic

WANTED = records_topic("orders", 4, 3, create=True)
TOO_FEW = KafkaError.INVALID_REPLICATION_FACTOR
UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART


class Cluster:
    """Answers as AdminClient does. Each kind of call meets its errors, one after the other, and then is answered."""

    def __init__(self, **errors) -> None:
        self.errors = {kind: list(codes) for kind, codes in errors.items()}
        self.has_topic = False

    def _answer(self, kind, value):
        future = Future()
        if self.errors.get(kind):
            future.set_exception(KafkaException(KafkaError(self.errors[kind].pop(0), kind)))
        else:
            future.set_result(value)
        return future

    def describe_topics(self, _topics):
        missing = [] if self.has_topic else [UNKNOWN]
        self.errors["describe"] = missing
        return {"orders": self._answer("describe", SimpleNamespace(partitions=[0, 1, 2, 3]))}

    def create_topics(self, _topics):
        future = self._answer("create", None)
        self.has_topic |= future.exception() is None
        return {"orders": future}

    def describe_configs(self, resources):
        return {resources[0]: self._answer("config", {"max.message.bytes": SimpleNamespace(value="7")})}


@pytest.fixture(autouse=True)
def at_once(monkeypatch) -> None:
    monkeypatch.setattr(kafka_topics, "_LOOK_SECONDS", 0.0)


def test_brokers_that_come_later_are_waited_for() -> None:
    cluster = Cluster(create=[TOO_FEW] * 3)
    assert ensure_topic(cluster, WANTED, 1.0) == Topic("orders", 4, 7)
    assert cluster.errors["create"] == []


def test_brokers_that_never_come_are_told(monkeypatch) -> None:
    monkeypatch.setattr(kafka_topics, "_APPEARS", -1.0)
    with pytest.raises(KafkaRefusedError, match="cannot create the topic 'orders'"):
        ensure_topic(Cluster(create=[TOO_FEW]), WANTED, 1.0)


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again() -> None:
    assert ensure_topic(Cluster(config=[UNKNOWN] * 3), WANTED, 1.0).largest == 7


def test_one_that_never_will_is_told(monkeypatch) -> None:
    monkeypatch.setattr(kafka_topics, "_APPEARS", -1.0)
    with pytest.raises(KafkaUnavailableError, match="does not know its settings"):
        ensure_topic(Cluster(config=[UNKNOWN]), WANTED, 1.0)


@pytest.mark.parametrize(
    ("error", "partitions"), [(KafkaError(UNKNOWN, "who?"), 0), (None, 0), (None, 3)], ids=["unknown", "none", "some"]
)
def test_a_broker_that_knows_half_of_the_positions_is_not_believed(error, partitions) -> None:
    """A position that is not found would let the shard begin at its lease, and repeat records."""
    found = SimpleNamespace(error=error, partitions=dict.fromkeys(range(partitions)))
    admin = SimpleNamespace(list_topics=lambda _name, _seconds: SimpleNamespace(topics={"positions": found}))
    checkpoints = Checkpoints({"bootstrap.servers": "127.0.0.1:1"}, admin, Topic("positions", 4, 7), 1.0)
    with pytest.raises(KafkaUnavailableError, match="'positions'"):
        checkpoints.read(b"key")
    checkpoints.close()
