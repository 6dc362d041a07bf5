"""Creates a topic, and reads its committed records. Blocking, except `count`."""

from __future__ import annotations

from typing import Final

import trio
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from efo.errors import EfoError
from efo_service.demo.load import FoundRecord
from efo_service.relay.kafka.topics import ensure_topic, records_topic

_TIMEOUT_SECONDS: Final = 60.0
"""Of each call to the broker: enough for a slow and busy machine."""


def create_topic(servers: str, topic: str, partitions: int) -> None:
    """Create a topic, so that readers can start before the relay. Raises SinkError."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    ensure_topic(admin, records_topic(topic, partitions, 1, create=True), _TIMEOUT_SECONDS)


class TopicReader:
    """Reads a topic from its beginning, and keeps the records that it has read. It survives kills of the broker."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "log_level": 0,
                "group.id": "e2e",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._rows: list[FoundRecord] = []
        self._lock = trio.Lock()

    async def count(self) -> int:
        """Return how many records the topic holds so far."""
        async with self._lock:
            await trio.to_thread.run_sync(self._read)
        return len(self._rows)

    def rows(self) -> list[FoundRecord]:
        """Return the records. Those of a key are in one partition, so their offsets give their order."""
        self._read()
        return self._rows

    def _read(self) -> None:
        while messages := self._consumer.consume(10_000, 0.05):
            for message in messages:
                error = message.error()
                if error is None:
                    order = (0.0, message.partition() or 0, message.offset() or 0)
                    self._rows.append(FoundRecord(order, (message.key() or b"").decode(), message.value() or b""))
                elif not (error.retriable() or error.code() < 0):
                    raise EfoError(f"the topic cannot be read: {error}")

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
