"""The run: FakeKinesis, two relays, a Kafka broker, a Spark pipeline, a load that reshards, and a killer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from e2e.kafka.broker import CONNECTOR, Broker
from e2e.kafka.topic import TopicReader, create_topic
from e2e.log.kills import Killer, Victim, ended, hold_back, until
from e2e.log.landed import Landed
from efo.tasks import one_error
from efo.testing import FakeKinesis, FakeSettings
from service.demo.children import Child, ChildFailedError
from service.demo.load import Load
from service.demo.verify import Comparison, compare, parquet_rows

STREAM: Final = "orders"
SHARDS: Final = 4
PARTITIONS: Final = 4
SPLIT_AT, MERGE_AT = 0.3, 0.6
FAILURES: Final = 50
"""How often a relay or Spark may end by itself and is started again, as an orchestrator does: while the broker is
down for long, that is what they should do."""
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "e2e",
    "AWS_SECRET_ACCESS_KEY": "e2e",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class E2eOptions:
    """What the run does. `rate`: records per second while the load is not held back; `kills`: by victim."""

    records: int
    rate: float
    kills: dict[str, int]
    seed: int
    directory: Path


@dataclass(frozen=True, slots=True)
class E2eResult:
    """What the run found: what the topic and Parquet hold of what was sent."""

    topic: Comparison
    parquet: Comparison
    summary: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether everything is in both places once, whole and in order."""
        places = (self.topic, self.parquet)
        return not any(p.lost or p.duplicated or p.foreign or p.order_violations for p in places)


class BrokerChild(Child):
    """The broker, as a victim that is killed and started again like efo's own processes."""

    def __init__(self, broker: Broker) -> None:
        super().__init__("broker", [], broker.directory, {})
        self._broker = broker

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        await trio.to_thread.run_sync(self._broker.start)
        await trio.to_thread.run_sync(self._broker.wait)

    def check(self) -> None:
        """Raise ChildFailedError if it is not running."""
        if not self._broker.is_running:
            raise ChildFailedError(f"the broker has ended:\n{self._broker.tail()}")

    async def kill(self) -> None:
        """Kill it (SIGKILL)."""
        await trio.to_thread.run_sync(self._broker.kill)

    async def end(self) -> None:
        """Make sure that it is gone."""
        await self.kill()


async def run(options: E2eOptions, tell: Callable[[str], None]) -> E2eResult:
    """Run it. Raises EfoError when something does not go on."""
    started = time.monotonic()
    options.directory.mkdir(parents=True, exist_ok=True)
    broker = Broker(options.directory / "broker")
    run = _Run(options, broker, tell)
    await trio.to_thread.run_sync(broker.format)
    async with FakeKinesis(settings=FakeSettings(subscription_life=20.0), clock=time.time) as fake:
        fake.create_stream(STREAM, shards=SHARDS)
        async with fake.serve() as address:
            config = options.directory / "efo.toml"
            config.write_text(_config(address.url, str(address.ca_file), broker.address))
            topic, kills = await run.run(fake, config)
    tell("comparing")
    rows = await trio.to_thread.run_sync(parquet_rows, options.directory / "parquet" / "records")
    parquet = compare(rows, options.records)
    summary = {
        "produced": options.records,
        "landed": parquet.found,
        "lost": parquet.lost,
        "duplicated": parquet.duplicated,
        "order_violations": parquet.order_violations,
        "kills": sum(kills.values()),
        "seconds": round(time.monotonic() - started, 1),
        "kills_of": kills,
        "in_the_topic": topic.found,
        "restarts": run.restarts,
        "seed": options.seed,
    }
    return E2eResult(topic, parquet, summary)


def _config(url: str, ca_file: str, servers: str) -> str:
    """Return the configuration of all processes: defaults, but for where things are and what should happen often."""
    return f"""\
[kinesis]
stream = "{STREAM}"
region = "us-east-1"
endpoint_url = "{url}"
ca_file = "{ca_file}"

[consumer]
application = "e2e"
checkpoint_seconds = 1

[leases]
path = "leases.sqlite"
failover_seconds = 3

[relay]
sink = "kafka"

[relay.kafka]
bootstrap_servers = "{servers}"
partitions = {PARTITIONS}
checkpoint_partitions = 2
connect_seconds = 60

[service]
port = 0

[pipeline]
source = "kafka"
jars = "{CONNECTOR}"
output = "parquet"
checkpoint = "checkpoint"
trigger_seconds = 1
quick_start = true
"""


class _Run:
    def __init__(self, options: E2eOptions, broker: Broker, tell: Callable[[str], None]) -> None:
        self._options = options
        self._broker = broker
        self._tell = tell
        self._landed = Landed(options.directory / "parquet" / "records")
        self._topic = TopicReader(broker.address, STREAM, PARTITIONS)
        self.restarts: dict[str, int] = {}

    async def run(self, fake: FakeKinesis, config: Path) -> tuple[Comparison, dict[str, int]]:
        """Put the load while the killer is at it; wait for the rest, drain, and compare what the topic has."""
        options = self._options
        broker = BrokerChild(self._broker)
        relays = [self._relay(config, number) for number in (1, 2)]
        spark = Child("pipeline", ["pipeline", "--config", str(config), "--json"], options.directory, {})
        kills = options.kills
        relaying = Victim("relay", relays, self._topic.count, kills["relay"], linger=1.0, failures=FAILURES)
        landing = Victim("spark", [spark], self._landed.count, kills["spark"], linger=3.0, failures=FAILURES)
        victims = [relaying, Victim("broker", [broker], self._topic.count, kills["broker"], linger=3.0), landing]
        load = Load(
            fake,
            STREAM,
            options.records,
            seconds=options.records / options.rate,
            split_at=SPLIT_AT,
            merge_at=MERGE_AT,
            may_go_on=hold_back(victims, options.records),
        )
        async with ended(broker, *relays, spark):
            await broker.start()
            await trio.to_thread.run_sync(create_topic, self._broker.address, STREAM, PARTITIONS)
            for child in (*relays, spark):
                await child.start()
            with one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(load.run)
                    await Killer(options.seed, self._tell).run(victims)
            self._tell("all kills are done, waiting for the rest")
            await until(relaying, options.records, self._tell)
            for relay in relays:
                await relay.stop(60)
            await until(landing, options.records, self._tell)
            await spark.stop(120)
            topic = compare(await trio.to_thread.run_sync(self._topic.rows), options.records)
            await trio.to_thread.run_sync(self._topic.close)
        self.restarts = {victim.name: FAILURES - victim.failures for victim in (relaying, landing)}
        return topic, {victim.name: victim.done for victim in victims}

    def _relay(self, config: Path, number: int) -> Child:
        worker = {"EFO_LEASES__WORKER_ID": f"worker-{number}"}
        return Child(f"run-{number}", ["run", "--config", str(config)], self._options.directory, _CREDENTIALS | worker)
