"""The end-to-end run: FakeKinesis, two relays, their output, a Spark pipeline, a load that reshards, and a killer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings
from efo_service.demo.demo import DemoProcess, ended
from efo_service.demo.load import Comparison, DemoLoad, compare
from efo_service.spark.session import C1_ONLY
from proofs.e2e.config import efo_config
from proofs.e2e.kills import Killer, Target, pace_load, wait_for_records
from proofs.e2e.landed import ParquetFiles
from proofs.e2e.output import Destination, Output
from proofs.local_servers.object_stores import ENVIRONMENT

STREAM: Final = "orders"
SHARDS: Final = 4
SPLIT_AT, MERGE_AT = 0.3, 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class E2eOptions:
    """Options of the run. `rate`: records per second, unless the load waits for kills. `kills`: how many, by target."""

    records: int
    rate: float
    kills: Mapping[str, int]
    seed: int
    directory: Path


@dataclass(frozen=True, slots=True)
class E2eResult:
    """The result of the run: the records in the output and where Spark wrote them, compared with the records sent."""

    output: Comparison
    landed: Comparison
    summary: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether both places hold every record once, unchanged and in order."""
        return self.output.is_exact and self.landed.is_exact


async def run(
    options: E2eOptions, output: Output, report: Callable[[str], None], destination: Destination | None = None
) -> E2eResult:
    """Do the run. Raises EfoError if a process fails or makes no progress.

    `destination`: where Spark writes; None for Parquet files.
    """
    started = time.monotonic()
    destination = destination or ParquetFiles(options.directory)
    async with FakeKinesis(settings=FakeSettings(subscription_life=20.0), clock=time.time) as fake:
        fake.create_stream(STREAM, shards=SHARDS)
        async with fake.serve() as address:
            config = options.directory / "efo.toml"
            tables = (_pipeline(output, destination), output.relay_config)
            config.write_text(efo_config(STREAM, address.url, str(address.ca_file), *tables))
            written, targets = await _load_and_kill(options, output, destination, fake, config, report)
    landed = compare(await destination.rows(), options.records)
    summary = {
        "produced": options.records,
        **landed.counts,
        "kills": sum(target.kills_done for target in targets),
        "seconds": round(time.monotonic() - started, 1),
        "kills_of": {target.name: target.kills_done for target in targets},
        f"in_the_{output.name}": written.found,
        "restarts": {target.name: target.restarts for target in targets},
        "seed": options.seed,
    }
    return E2eResult(written, landed, summary)


async def _load_and_kill(
    options: E2eOptions,
    output: Output,
    destination: Destination,
    fake: FakeKinesis,
    config: Path,
    report: Callable[[str], None],
) -> tuple[Comparison, list[Target]]:
    """Produce records and kill processes, then wait for the rest, drain, and compare the output with the load."""
    relays = [_relay(options, config, number) for number in (1, 2)]
    pipeline = ["pipeline", "--config", str(config), "--json"]
    spark = DemoProcess(
        "pipeline", pipeline, options.directory, {"JDK_JAVA_OPTIONS": C1_ONLY, **destination.environment}
    )
    kills, count = options.kills, output.count
    relay_target = Target("relay", relays, count, kills["relay"], max_delay=1.0, max_restarts=output.max_relay_restarts)
    server_targets = [
        Target(server.name, [server], count, kills[server.name], max_delay=3.0) for server in output.servers
    ]
    spark_target = Target(
        "spark", [spark], destination.count, kills["spark"], max_delay=3.0, max_restarts=output.max_spark_restarts
    )
    targets = [relay_target, *server_targets, spark_target]
    load = DemoLoad(
        fake,
        STREAM,
        options.records,
        seconds=options.records / options.rate,
        split_at=SPLIT_AT,
        merge_at=MERGE_AT,
        before_next_chunk=pace_load(targets, options.records),
    )
    async with ended(*output.servers, *relays, spark):
        for server in output.servers:
            await server.start()
        await output.prepare()
        for child in (*relays, spark):
            await child.start()
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await Killer(options.seed, report).run(targets)
        report("all kills are done, waiting for the remaining records")
        await wait_for_records(relay_target, options.records, report)
        for relay in relays:
            await relay.stop(60)
        await wait_for_records(spark_target, options.records, report)
        await spark.stop(120)
        report("comparing")
        return compare(await output.rows(), options.records), targets


def _relay(options: E2eOptions, config: Path, number: int) -> DemoProcess:
    worker = {"EFO_LEASES__WORKER_ID": f"worker-{number}"}
    return DemoProcess(f"run-{number}", ["run", "--config", str(config)], options.directory, ENVIRONMENT | worker)


def _pipeline(output: Output, destination: Destination) -> str:
    return f"""\
[pipeline]
trigger_seconds = 1
{destination.pipeline_config}
{output.pipeline_config}
"""
