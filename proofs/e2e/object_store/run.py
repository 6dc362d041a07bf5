"""One run: FakeKinesis, two relays, a real object store behind a proxy with faults, a load that reshards, and kills."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import trio

from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings
from efo_service.demo.demo import DemoProcess, ended
from efo_service.demo.load import Comparison, DemoLoad, compare
from efo_service.log.inspection import verify_topic
from proofs.e2e.config import efo_config
from proofs.e2e.kills import Killer, Target, pace_load, wait_for_records
from proofs.e2e.object_store.output import ObjectLogOutput
from proofs.e2e.object_store.proxy import Faults, proxy
from proofs.local_servers.object_stores import ENVIRONMENT, SERVERS, Running, running

STREAM: Final = "orders"
SHARDS: Final = 3
SPLIT_AT, MERGE_AT = 0.3, 0.6
OUTAGES: Final = 2
OUTAGE_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run. `rate`: most records per second. `leases`: [leases] store."""

    records: int
    rate: float
    kills: int
    seed: int
    leases: str
    directory: Path


async def run(name: str, options: Options, report: Callable[[str], None]) -> dict[str, Any]:
    """Run a server by its name; return the counts. Raises EfoError, NotInstalledError."""
    with SERVERS[name]() as text, mock.patch.dict("os.environ", ENVIRONMENT):
        return await _run(running(text), options, report)


async def _run(server: Running, options: Options, report: Callable[[str], None]) -> dict[str, Any]:
    started = time.monotonic()
    faults = Faults(random.Random(options.seed))  # noqa: S311 - must be repeatable; not a secret
    output = ObjectLogOutput(server, STREAM)
    async with FakeKinesis(settings=FakeSettings(subscription_life=20.0), clock=time.time) as fake:
        fake.create_stream(STREAM, shards=SHARDS)
        async with fake.serve() as address:
            with proxy(server.url, faults) as url:
                config = options.directory / "efo.toml"
                tables = (output.config(url),)
                config.write_text(efo_config(STREAM, address.url, str(address.ca_file), *tables, leases=options.leases))
                relays = [_relay(options, config, number) for number in (1, 2)]
                target = Target("relay", [*relays], output.count, options.kills, max_delay=1.5)
                load = DemoLoad(
                    fake,
                    STREAM,
                    options.records,
                    seconds=options.records / options.rate,
                    split_at=SPLIT_AT,
                    merge_at=MERGE_AT,
                    before_next_chunk=pace_load([target], options.records),
                )
                async with ended(*relays):
                    for relay in relays:
                        await relay.start()
                    with collapse_groups():
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(load.run)
                            nursery.start_soon(_outages, target, faults, report)
                            await Killer(options.seed, report).run([target])
                    report("all kills are done, waiting for the remaining records")
                    await wait_for_records(target, options.records, report)
                    for relay in relays:
                        await relay.started()
                        await relay.stop(60)
    report("comparing")
    found, problems = await _compare(output, options.records)
    for problem in problems:
        report(problem)
    return {
        "produced": options.records,
        **found.counts,
        "kills": target.kills_done,
        "unexpected": found.unexpected,
        "problems": len(problems),
        "faults": {name: count for name, count in sorted(faults.counts.items()) if name != "ok"},
        "requests": faults.counts.total(),
        "seconds": round(time.monotonic() - started, 1),
    }


async def _outages(target: Target, faults: Faults, report: Callable[[str], None]) -> None:
    """Make the store unreachable for a while, after shares of the kills."""
    total = target.kills_left
    for number in range(1, OUTAGES + 1):
        while target.kills_done < number * total / (OUTAGES + 1):  # noqa: ASYNC110 - polls kill counts
            await trio.sleep(0.1)
        report(f"the store is unreachable for {OUTAGE_SECONDS:g} s")
        faults.down_until = time.monotonic() + OUTAGE_SECONDS


async def _compare(output: ObjectLogOutput, records: int) -> tuple[Comparison, list[str]]:
    """Read everything as a reader does, and verify every byte."""
    rows = await output.rows()
    verified = await trio.to_thread.run_sync(verify_topic, output.log, STREAM)
    problems = [*verified.problems]
    if verified.records != len(rows):
        problems.append(f"{verified.records} records were verified, but {len(rows)} were read")
    return compare(rows, records), problems


class _Relay(DemoProcess):
    """A relay whose start can be waited for: SIGTERM ends a process that does not handle signals yet."""

    _before = 0

    async def start(self) -> None:
        self._before = self.log.stat().st_size if self.log.exists() else 0
        await super().start()

    async def started(self) -> None:
        """Wait until the service has started."""
        while b'"event": "started"' not in self.log.read_bytes()[self._before :]:
            self.check()
            await trio.sleep(0.1)


def _relay(options: Options, config: Path, number: int) -> _Relay:
    worker = {"EFO_LEASES__WORKER_ID": f"worker-{number}"}
    return _Relay(f"run-{number}", ["run", "--config", str(config)], options.directory, ENVIRONMENT | worker)


def passed(summary: dict[str, Any]) -> bool:
    """Return whether every record is in the log once, unchanged and in order."""
    return not any(summary[name] for name in ("lost", "duplicated", "order_violations", "unexpected", "problems"))
