"""The run: FakeKinesis, two relays, a Spark pipeline, a load that reshards, and a killer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from e2e.log.kills import Killer, Victim, ended, hold_back, until
from e2e.log.landed import Landed
from efo.tasks import one_error
from efo.testing import FakeKinesis, FakeSettings
from service.demo.children import Child
from service.demo.load import Load
from service.demo.verify import Comparison, compare, log_rows, log_size, parquet_rows

STREAM: Final = "orders"
SHARDS: Final = 4
SPLIT_AT, MERGE_AT = 0.3, 0.6
SPARK_FAILURES: Final = 20
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "e2e",
    "AWS_SECRET_ACCESS_KEY": "e2e",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class E2eOptions:
    """What the run does. `rate`: records per second while the load is not held back."""

    records: int
    rate: float
    relay_kills: int
    spark_kills: int
    seed: int
    directory: Path


@dataclass(frozen=True, slots=True)
class E2eResult:
    """What the run found: what the log and Parquet hold of what was sent."""

    log: Comparison
    parquet: Comparison
    summary: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether everything is in both places once, whole and in order."""
        places = (self.log, self.parquet)
        return not any(p.lost or p.duplicated or p.foreign or p.order_violations for p in places)


async def run(options: E2eOptions, tell: Callable[[str], None]) -> E2eResult:
    """Run it. Raises EfoError when something does not go on."""
    started = time.monotonic()
    run = _Run(options, tell)
    async with FakeKinesis(settings=FakeSettings(subscription_life=20.0), clock=time.time) as fake:
        fake.create_stream(STREAM, shards=SHARDS)
        async with fake.serve() as address:
            options.directory.mkdir(parents=True, exist_ok=True)
            config = options.directory / "efo.toml"
            config.write_text(_config(address.url, str(address.ca_file)))
            kills = await run.run(fake, config)
    tell("comparing")
    log, parquet = await trio.to_thread.run_sync(run.compare)
    summary = {
        "produced": options.records,
        "landed": parquet.found,
        "lost": parquet.lost,
        "duplicated": parquet.duplicated,
        "order_violations": parquet.order_violations,
        "kills": sum(kills.values()),
        "seconds": round(time.monotonic() - started, 1),
        "kills_of": kills,
        "in_the_log": log.found,
        "spark_failures": run.failures,
        "seed": options.seed,
    }
    return E2eResult(log, parquet, summary)


def _config(url: str, ca_file: str) -> str:
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
directory = "log"
upkeep_seconds = 3

[service]
port = 0

[pipeline]
output = "parquet"
checkpoint = "checkpoint"
trigger_seconds = 1
quick_start = true
"""


class _Run:
    def __init__(self, options: E2eOptions, tell: Callable[[str], None]) -> None:
        self._options = options
        self._directory = options.directory
        self._tell = tell
        self._landed = Landed(options.directory / "parquet" / "records")
        self.failures = 0

    async def run(self, fake: FakeKinesis, config: Path) -> dict[str, int]:
        """Put the load while the killer is at it; then wait for the rest and drain. Return the kills by victim."""
        options = self._options
        relays = [self._relay(config, number) for number in (1, 2)]
        spark = Child("pipeline", ["pipeline", "--config", str(config), "--json"], self._directory, {})
        victims = [
            Victim("relay", relays, self._relayed, options.relay_kills, linger=1.0),
            Victim("spark", [spark], self._landed.count, options.spark_kills, linger=3.0, failures=SPARK_FAILURES),
        ]
        hold = hold_back(victims, options.records)
        seconds = options.records / options.rate
        load = Load(
            fake, STREAM, options.records, seconds=seconds, split_at=SPLIT_AT, merge_at=MERGE_AT, may_go_on=hold
        )
        async with ended(*relays, spark):
            for child in (*relays, spark):
                await child.start()
            with one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(load.run)
                    await Killer(options.seed, self._tell).run(victims)
            self._tell("all kills are done, waiting for the rest")
            await until(victims[0], options.records, self._tell)
            for relay in relays:
                await relay.stop(60)
            await until(victims[1], options.records, self._tell)
            await spark.stop(120)
        self.failures = SPARK_FAILURES - victims[1].failures
        return {victim.name: victim.done for victim in victims}

    def compare(self) -> tuple[Comparison, Comparison]:
        """Read everything back."""
        rows, _ = log_rows(self._directory / "log", STREAM)
        produced = self._options.records
        return compare(rows, produced), compare(parquet_rows(self._directory / "parquet" / "records"), produced)

    def _relay(self, config: Path, number: int) -> Child:
        worker = {"EFO_LEASES__WORKER_ID": f"worker-{number}"}
        return Child(f"run-{number}", ["run", "--config", str(config)], self._directory, _CREDENTIALS | worker)

    async def _relayed(self) -> int:
        return await trio.to_thread.run_sync(log_size, self._directory / "log", STREAM)
