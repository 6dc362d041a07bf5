"""A soak: the server and the service as processes, sampled until the load ends; then their drain and the comparison."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo_service.demo.demo import DemoProcess, ended
from efo_service.demo.load import Comparison, compare, log_rows, log_size
from proofs.soak.samples import Sample, lag_of, read_sample
from proofs.soak.server import STREAM

_STALLED_SECONDS: Final = 90.0
"""After the load, without a new record in the log for so long, what is missing counts as lost: twice R8's 35 s."""
_PROGRESS_SECONDS: Final = 15.0
_CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakOptions:
    """Options of a soak. `rate`: records per second. `fault_rate`: faults per second and shard."""

    seconds: float
    rate: float
    fault_rate: float
    seed: int
    directory: Path

    @property
    def reshard_seconds(self) -> float:
        """Time between two reshards: some thirty in a run, at least 20 s apart."""
        return max(20.0, self.seconds / 30)

    @property
    def sample_seconds(self) -> float:
        """Time between two samples: some 1,200 in a run, at least half a second apart."""
        return max(0.5, self.seconds / 1200)


@dataclass(slots=True)
class Soak:
    """What a soak has measured. `served`: the last report of the server."""

    samples: list[Sample] = field(default_factory=list)
    puts: list[tuple[float, int]] = field(default_factory=list)
    served: dict[str, Any] = field(default_factory=dict)
    comparison: Comparison | None = None


class Service(DemoProcess):
    """`efo run` with a counter of tasks and blocks."""

    def __init__(self, config: Path, directory: Path) -> None:
        super().__init__("run", [], directory, _CREDENTIALS)
        self.counts = directory / "counts"
        self._arguments = [sys.executable, "-P", "-m", "proofs.soak.service", str(self.counts), "run"]
        self._arguments += ["--config", str(config)]

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._running.pid


async def run(options: SoakOptions, report: Callable[[str], None]) -> Soak:
    """Do the soak. Raises EfoError if the server or the service ends early."""
    soak = Soak()
    config = options.directory / "efo.toml"
    async with _server(options) as (server, reports):
        served = json.loads(await anext(reports))
        config.write_text(_config(served["url"], served["ca_file"]))
        service = Service(config, options.directory)
        async with ended(service):
            await service.start()
            with collapse_groups():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_follow, reports, soak, server)
                    await _sample(options, soak, service, report)
                    await _wait_for_the_rest(options, soak, service, report)
                    nursery.cancel_scope.cancel()
            await service.stop(60)
    report("comparing")
    rows, _ = await trio.to_thread.run_sync(log_rows, options.directory / "log", STREAM)
    soak.comparison = await trio.to_thread.run_sync(compare, rows, soak.puts[-1][1])
    return soak


@asynccontextmanager
async def _server(options: SoakOptions) -> AsyncIterator[tuple[trio.Process, AsyncIterator[bytes]]]:
    command = [sys.executable, "-m", "proofs.soak.server", "--seconds", str(options.seconds), "--seed"]
    command += [str(options.seed), "--rate", str(options.rate), "--fault-rate", str(options.fault_rate)]
    command += ["--reshard-seconds", str(options.reshard_seconds)]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if process.stdout is None:
        raise AssertionError("the process was not opened with a pipe")
    try:
        yield process, _lines(process.stdout)
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[bytes]:
    rest = b""
    async for data in stream:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line


async def _follow(reports: AsyncIterator[bytes], soak: Soak, server: trio.Process) -> None:
    async for line in reports:
        soak.served = json.loads(line)
        soak.puts.append((soak.served["at"], soak.served["put"]))
    raise EfoError(f"the server ended with {await server.wait()}: its error is above")


async def _sample(options: SoakOptions, soak: Soak, service: Service, report: Callable[[str], None]) -> None:
    """Sample until the load has ended."""
    started = shown = time.monotonic()
    while (now := time.monotonic()) < started + options.seconds:
        await trio.sleep(options.sample_seconds)
        service.check()
        if not soak.puts or not service.counts.exists():
            continue
        in_log = await trio.to_thread.run_sync(log_size, options.directory / "log", STREAM)
        now = time.monotonic()
        sample = read_sample(service.pid, service.counts, at=now - started, lag=lag_of(soak.puts, in_log, now))
        soak.samples.append(sample)
        if now >= shown + _PROGRESS_SECONDS:
            shown = now
            done = f"{soak.served['put']} put, {soak.served['reshards']} reshards, {soak.served['faults']} faults"
            used = (
                f"{sample.rss:.1f} MB, {sample.blocks} blocks, {sample.tasks} tasks, {sample.descriptors} descriptors"
            )
            report(f"{done}; {used}, {sample.threads} threads, lag {sample.lag:.1f} s")


async def _wait_for_the_rest(options: SoakOptions, soak: Soak, service: Service, report: Callable[[str], None]) -> None:
    """Wait until the load is put and the log counts all of it, or does not grow any more."""
    report("the load has ended, waiting for the remaining records")
    newest, since = -1, time.monotonic()
    while time.monotonic() < since + _STALLED_SECONDS:
        service.check()
        in_log = await trio.to_thread.run_sync(log_size, options.directory / "log", STREAM)
        if soak.puts[-1][1] >= soak.served["records"] and in_log >= soak.puts[-1][1]:
            return
        if in_log > newest:
            newest, since = in_log, time.monotonic()
        await trio.sleep(0.5)


def _config(url: str, ca_file: str) -> str:
    """Return the configuration of the service: the defaults, except for addresses and paths."""
    return f"""\
[kinesis]
stream = "{STREAM}"
region = "us-east-1"
endpoint_url = "{url}"
ca_file = "{ca_file}"

[consumer]
application = "soak"
shard_sync_seconds = 10

[leases]
path = "leases.sqlite"
worker_id = "worker-1"

[relay]
directory = "log"
maintenance_seconds = 10

[service]
port = 0
"""
