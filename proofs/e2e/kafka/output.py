"""A topic of a Kafka broker as the output of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from efo_service.demo.demo import ChildFailedError, DemoProcess
from efo_service.demo.load import FoundRecord
from proofs.e2e.kafka.broker import CONNECTOR, Broker
from proofs.e2e.kafka.topic import TopicReader, create_topic
from proofs.e2e.run import STREAM

PARTITIONS: Final = 4


class KafkaOutput:
    """See `Output`. While the broker is down for long, relays and Spark end, as they should."""

    name = "topic"
    pipeline_config = f'source = "kafka"\njars = "{CONNECTOR}"'
    max_relay_restarts = 50
    max_spark_restarts = 50

    def __init__(self, directory: Path) -> None:
        self._broker = Broker(directory / "broker")
        self._broker.format()
        self._topic = TopicReader(self._broker.address, STREAM, PARTITIONS)
        self.servers = (BrokerChild(self._broker),)
        self.relay_config = f"""\
[relay]
sink = "kafka"

[relay.kafka]
bootstrap_servers = "{self._broker.address}"
partitions = {PARTITIONS}
connect_seconds = 60"""

    async def prepare(self) -> None:
        """Create the topic, so that readers can start before the relay."""
        await trio.to_thread.run_sync(create_topic, self._broker.address, STREAM, PARTITIONS)

    async def count(self) -> int:
        """Return how many records the topic holds so far."""
        return await self._topic.count()

    async def rows(self) -> list[FoundRecord]:
        """Return all records, and close the consumer."""
        rows = await trio.to_thread.run_sync(self._topic.rows)
        await trio.to_thread.run_sync(self._topic.close)
        return rows


class BrokerChild(DemoProcess):
    """The broker as a child that can be killed and restarted like efo's own processes."""

    def __init__(self, broker: Broker) -> None:
        super().__init__("broker", [], broker.directory, {})
        self._broker = broker

    async def start(self) -> None:
        """Start the broker, and wait until it responds."""
        await trio.to_thread.run_sync(self._broker.start)
        await trio.to_thread.run_sync(self._broker.wait)

    def check(self) -> None:
        """Raise ChildFailedError if the broker is not running."""
        if not self._broker.is_running:
            raise ChildFailedError(f"the broker has ended:\n{self._broker.tail()}")

    async def kill(self) -> None:
        """Kill the broker (SIGKILL)."""
        await trio.to_thread.run_sync(self._broker.kill)

    async def end(self) -> None:
        """Make sure that the broker does not run."""
        await self.kill()
