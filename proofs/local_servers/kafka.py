"""The Kafka broker that `make kafka-install` fetches, and a function that reads a topic like a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from proofs.e2e.kafka.broker import missing, running_broker
from proofs.local_servers.processes import directory
from proofs.local_servers.running import NotInstalledError


@contextmanager
def serve_kafka() -> Iterator[str]:
    """Run a broker on free ports; yield HOST:PORT. Raises NotInstalledError."""
    if reason := missing():
        raise NotInstalledError(reason)
    with directory() as path, running_broker(path) as broker:
        yield broker.address


def read_topic(servers: str, topic: str, *, committed: bool = True) -> list[Message]:
    """Return a topic's messages, ordered by partition and offset.

    `committed`: read with the isolation level read_committed, else read_uncommitted.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": "test",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        messages = []
        while partitions:
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    partitions.discard(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))
