"""The run: FakeKinesis, two relays, what they write to, a Spark pipeline, a load that reshards, and a killer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings
from efo_service.demo.children import Child, ended
from efo_service.demo.load import Load
from efo_service.demo.verify import Comparison, compare, parquet_rows
from proofs.e2e.kills import Killer, Victim, hold_back, until
from proofs.e2e.landed import Landed
from proofs.e2e.output import Output

STREAM: Final = "orders"
SHARDS: Final = 4
SPLIT_AT, MERGE_AT = 0.3, 0.6
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "e2e",
    "AWS_SECRET_ACCESS_KEY": "e2e",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class E2eOptions:
    """What the run does. `rate`: records per second while the load is not held back. `kills`: how many, by victim."""

    records: int
    rate: float
    kills: Mapping[str, int]
    seed: int
    directory: Path


@dataclass(frozen=True, slots=True)
class E2eResult:
    """What the run found: what the output and Parquet hold of what was sent."""

    output: Comparison
    parquet: Comparison
    summary: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether everything is in both places once, whole and in order."""
        places = (self.output, self.parquet)
        return not any(p.lost or p.duplicated or p.foreign or p.order_violations for p in places)


async def run(options: E2eOptions, output: Output, tell: Callable[[str], None]) -> E2eResult:
    """Run it. Raises EfoError when something does not go on."""
    started = time.monotonic()
    async with FakeKinesis(settings=FakeSettings(subscription_life=20.0), clock=time.time) as fake:
        fake.create_stream(STREAM, shards=SHARDS)
        async with fake.serve() as address:
            config = options.directory / "efo.toml"
            config.write_text(_config(address.url, str(address.ca_file), output))
            written, victims = await _carry_out(options, output, fake, config, tell)
    landed = compare(await trio.to_thread.run_sync(parquet_rows, _records(options)), options.records)
    summary = {
        "produced": options.records,
        "landed": landed.found,
        "lost": landed.lost,
        "duplicated": landed.duplicated,
        "order_violations": landed.order_violations,
        "kills": sum(victim.done for victim in victims),
        "seconds": round(time.monotonic() - started, 1),
        "kills_of": {victim.name: victim.done for victim in victims},
        f"in_the_{output.name}": written.found,
        "restarts": {victim.name: victim.restarts for victim in victims},
        "seed": options.seed,
    }
    return E2eResult(written, landed, summary)


async def _carry_out(
    options: E2eOptions, output: Output, fake: FakeKinesis, config: Path, tell: Callable[[str], None]
) -> tuple[Comparison, list[Victim]]:
    """Put the load while the killer is at it; wait for the rest, drain, and compare what the output has."""
    relays = [_relay(options, config, number) for number in (1, 2)]
    spark = Child("pipeline", ["pipeline", "--config", str(config), "--json"], options.directory, {})
    kills, count, landed = options.kills, output.count, Landed(_records(options))
    relaying = Victim("relay", relays, count, kills["relay"], linger=1.0, failures=output.relay_failures)
    serving = [Victim(server.name, [server], count, kills[server.name], linger=3.0) for server in output.servers]
    landing = Victim("spark", [spark], landed.count, kills["spark"], linger=3.0, failures=output.spark_failures)
    victims = [relaying, *serving, landing]
    load = Load(
        fake,
        STREAM,
        options.records,
        seconds=options.records / options.rate,
        split_at=SPLIT_AT,
        merge_at=MERGE_AT,
        may_go_on=hold_back(victims, options.records),
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
                await Killer(options.seed, tell).run(victims)
        tell("all kills are done, waiting for the rest")
        await until(relaying, options.records, tell)
        for relay in relays:
            await relay.stop(60)
        await until(landing, options.records, tell)
        await spark.stop(120)
        tell("comparing")
        return compare(await output.rows(), options.records), victims


def _relay(options: E2eOptions, config: Path, number: int) -> Child:
    worker = {"EFO_LEASES__WORKER_ID": f"worker-{number}"}
    return Child(f"run-{number}", ["run", "--config", str(config)], options.directory, _CREDENTIALS | worker)


def _records(options: E2eOptions) -> Path:
    return options.directory / "parquet" / "records"


def _config(url: str, ca_file: str, output: Output) -> str:
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

[service]
port = 0

[pipeline]
output = "parquet"
checkpoint = "checkpoint"
trigger_seconds = 1
quick_start = true
{output.pipeline}

{output.relay}
"""
