"""A real Kafka broker (Apache Kafka, KRaft, one node) on loopback ports of its own.

Its jars are put into .tools/kafka/ by `make kafka-install`. Blocking: for tests and tools that have nothing else to do.
"""

from __future__ import annotations

import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from efo.errors import EfoError
from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.paths import TOOLS

BROKER: Final = TOOLS / "kafka" / "broker"
CONNECTOR: Final = TOOLS / "kafka" / "connector"
AVRO_MODULE: Final = next(CONNECTOR.glob("spark-avro*.jar"), None)
"""Spark's module for Avro, which is fetched with the connector."""
START_SECONDS: Final = 120.0
"""A broker starts in 5 s here; so long on a machine that is slow and busy."""
_INSTALL: Final = "`make kafka-install` gets it (Maven and Java 17)"
# Quick to start, and small: the second compiler pays off after minutes.
_JAVA: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


More = Callable[[dict[str, str]], dict[str, str]]


class BrokerError(EfoError):
    """The broker did not start, or ended. The message shows the end of its log."""

    error_type = "broker"


def missing(*, connector: bool = False) -> str | None:
    """Return what is missing to run a broker (and Spark's connector); None if nothing is."""
    try:
        find_java()
    except JavaMissingError as error:
        return str(error)
    if not any(BROKER.glob("kafka_*.jar")):
        return f"no Kafka broker in {BROKER}: {_INSTALL}"
    if connector and not any(CONNECTOR.glob("spark-sql-kafka*.jar")):
        return f"no Kafka connector of Spark in {CONNECTOR}: {_INSTALL}"
    return None


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class Broker:
    """A broker whose data is in `directory`; it may be killed and started again, on the same port.

    `more`: makes Kafka's server properties that are to be added to ours, or replace them, from ours.
    """

    def __init__(self, directory: Path, more: More | None = None) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.directory = directory
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = self._ours(free_port())
        self._settings |= more(self._settings) if more else {}

    def _ours(self, controller: int) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": str(self.directory / "data"),
            "num.partitions": "4",
            # One node: what is replicated three times by default would never be ready.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "auto.create.topics.enable": "false",
            # Made-up records are years old, and retention counts from their timestamps.
            "log.retention.ms": "-1",
            "group.initial.rebalance.delay.ms": "0",
            # A broker that was killed is only taken back when its former life has timed out: 9 s by default. One that a
            # busy machine keeps from its heartbeats for so long is given no topics.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "200",
        }

    def format(self) -> None:
        """Prepare the directory, once."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(  # noqa: S603 - our own Java and jars
            self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(properties)),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerError(f"Kafka could not format {self.directory}:\n{done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start it, without waiting until it answers: see `wait`."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the same
                self._java("kafka.Kafka", str(self.directory / "server.properties")), stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Wait until it answers. Raises BrokerError."""
        deadline = time.monotonic() + START_SECONDS
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        while True:
            try:
                admin.list_topics(timeout=1)
            except KafkaException:
                if not self.is_running or time.monotonic() > deadline:
                    raise BrokerError(f"the broker does not answer:\n{self.tail()}") from None
            else:
                return

    @property
    def is_running(self) -> bool:
        """Whether it has been started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it as a crash does (SIGKILL)."""
        if self._process is not None and self.is_running:
            self._process.kill()
            self._process.wait()

    def _java(self, main: str, *arguments: str) -> list[str]:
        logging = Path(__file__).with_name("log4j2.properties")
        options = (*_JAVA, f"-Dlog4j2.configurationFile={logging}")
        return [str(find_java().path), *options, "-cp", f"{BROKER}/*", main, *arguments]

    def tail(self) -> str:
        """Return the end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


@contextmanager
def running_broker(directory: Path, more: More | None = None) -> Iterator[Broker]:
    """Run a broker, and leave none behind."""
    broker = Broker(directory, more)
    broker.format()
    try:
        broker.start()
        broker.wait()
        yield broker
    finally:
        broker.kill()
