"""A real Kafka broker (Apache Kafka, KRaft, one node) on loopback ports.

`make kafka-install` fetches its jars into .tools/kafka/. All calls block: for tests and tools without other tasks.
"""

from __future__ import annotations

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
from proofs.ports import free_port

BROKER: Final = TOOLS / "kafka" / "broker"
CONNECTOR: Final = TOOLS / "kafka" / "connector"
AVRO_MODULE: Final = next(CONNECTOR.glob("spark-avro*.jar"), None)
"""The jar of Spark's Avro module, which is fetched with the connector; None if it is missing."""
START_SECONDS: Final = 120.0
"""A broker usually starts in 5 s; a slow and busy machine needs more."""
_INSTALL: Final = "run `make kafka-install` (needs Maven and Java 17)"
# Starts fast and stays small. Java's second compiler (C2) would pay off only after minutes.
_JAVA: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


Override = Callable[[dict[str, str]], dict[str, str]]


class BrokerError(EfoError):
    """The broker did not start, or has ended. The message includes the end of its log."""

    error_type = "broker"


def missing(*, connector: bool = False) -> str | None:
    """Return what is missing to run a broker (with `connector`: and to read it from Spark); None if nothing is."""
    try:
        find_java()
    except JavaMissingError as error:
        return str(error)
    if not any(BROKER.glob("kafka_*.jar")):
        return f"no Kafka broker in {BROKER}: {_INSTALL}"
    if connector and not any(CONNECTOR.glob("spark-sql-kafka*.jar")):
        return f"no Spark connector for Kafka in {CONNECTOR}: {_INSTALL}"
    return None


class Broker:
    """A broker with its data in `directory`. It can be killed and restarted on the same port.

    `override`: takes the default server properties and returns those to add or to replace.
    """

    def __init__(self, directory: Path, override: Override | None = None) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.directory = directory
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = self._default_properties(free_port())
        self._properties |= override(self._properties) if override else {}

    def _default_properties(self, controller: int) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": str(self.directory / "data"),
            "num.partitions": "4",
            # With one node, topics with the default of three replicas would never become available.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "auto.create.topics.enable": "false",
            # Test records have timestamps of years ago, from which retention counts.
            "log.retention.ms": "-1",
            "group.initial.rebalance.delay.ms": "0",
            # A killed broker can register again only after its old session has timed out: 9 s by default. But a busy
            # broker that sends no heartbeats for that time gets no topics, so the timeout must not be too short.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "200",
        }

    def format(self) -> None:
        """Format the data directory. Call it once. Raises BrokerError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties.items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        named = f"--cluster-id={cluster}"  # one argument: the id may begin with a hyphen
        done = subprocess.run(  # noqa: S603 - the Java and the jars are known
            self._java("kafka.tools.StorageTool", "format", "--standalone", named, "-c", str(properties)),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerError(f"Kafka cannot format {self.directory}:\n{done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start the broker. `wait` waits until it responds."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the same
                self._java("kafka.Kafka", str(self.directory / "server.properties")), stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Wait until the broker responds. Raises BrokerError."""
        deadline = time.monotonic() + START_SECONDS
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        while True:
            try:
                admin.list_topics(timeout=1)
            except KafkaException:
                if not self.is_running or time.monotonic() > deadline:
                    raise BrokerError(f"the broker does not respond:\n{self.tail()}") from None
            else:
                return

    @property
    def is_running(self) -> bool:
        """Whether the broker was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the broker (SIGKILL), like a crash."""
        if self._process is not None and self.is_running:
            self._process.kill()
            self._process.wait()

    def _java(self, main: str, *arguments: str) -> list[str]:
        logging = Path(__file__).with_name("log4j2.properties")
        options = (*_JAVA, f"-Dlog4j2.configurationFile={logging}")
        return [str(find_java().path), *options, "-cp", f"{BROKER}/*", main, *arguments]

    def tail(self) -> str:
        """Return the end of the broker's log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


@contextmanager
def running_broker(directory: Path, override: Override | None = None) -> Iterator[Broker]:
    """Run a broker; kill it at the end."""
    broker = Broker(directory, override)
    broker.format()
    try:
        broker.start()
        broker.wait()
        yield broker
    finally:
        broker.kill()
