"""The demo: FakeKinesis over TLS, the service and the Spark pipeline as separate processes, and a comparison."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings
from efo_service.demo.load import Comparison, DemoLoad, compare, log_rows, log_size, parquet_rows
from efo_service.drain import SIGNALS
from efo_service.errors import UsageError
from efo_service.spark.java import find_java
from efo_service.workers.process import efo_command

STREAM: Final = "orders"
POLL_SECONDS: Final = 0.25
"""Time between two polls of the progress."""
STALL_SECONDS: Final = 240.0
"""The demo fails without progress for this long. The start of Spark takes longest: minutes on a busy machine."""
SPLIT_AT, CRASH_AT, MERGE_AT = 0.3, 0.5, 0.65
"""The share of the load after which the stream is resharded and, with `crash`, the service is killed."""
# Short subscriptions, so that the demo has several of them in a few seconds. Those of AWS last five minutes.
_FAKE: Final = FakeSettings(subscription_life=8.0)
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the demo. `seconds`: duration of the load. `directory`: where all files are written."""

    records: int = 200_000
    shards: int = 4
    spark: bool = True
    crash: bool = False
    seconds: float = 8.0
    directory: Path

    def __post_init__(self) -> None:
        if self.records < 1 or self.shards < 2:  # noqa: PLR2004 - a merge needs two
            raise UsageError("the demo needs at least 1 record and 2 shards: it merges two shards")


@dataclass(slots=True)
class DemoProgress:
    """The progress of the demo. `live`: number of live subscriptions."""

    phase: str = "starting"
    produced: int = 0
    relayed: int = 0
    landed: int = 0
    live: int = 0
    splits: int = 0
    merges: int = 0
    crashes: int = 0


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of the demo. `summary`: content of its JSON line."""

    log: Comparison
    parquet: Comparison | None
    summary: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether everything arrived once and in order, in the log and in Parquet."""
        places = [place for place in (self.log, self.parquet) if place is not None]
        return all(place.is_exact for place in places)


async def run_demo(options: DemoOptions, show: Callable[[DemoProgress], None]) -> DemoResult:
    """Run the demo. `show` is called with the progress.

    All processes that it starts are ended in any case. Raises EfoError, and KeyboardInterrupt on SIGTERM or Ctrl-C.
    """
    if options.spark:
        find_java()
    result: DemoResult | None = None
    with trio.open_signal_receiver(*SIGNALS) as signals, collapse_groups():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_on_signal, signals, nursery.cancel_scope)
            result = await _run(options, show)
            nursery.cancel_scope.cancel()
    if result is None:
        raise KeyboardInterrupt
    return result


async def _cancel_on_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _signal in signals:
        scope.cancel()


async def _run(options: DemoOptions, show: Callable[[DemoProgress], None]) -> DemoResult:
    started = time.monotonic()
    demo = _Demo(options, show)
    async with FakeKinesis(settings=_FAKE, clock=time.time) as fake:
        fake.create_stream(STREAM, shards=options.shards)
        async with fake.serve() as address:
            if address.ca_file is None:
                raise RuntimeError("the demo's fake must be served with TLS")
            options.directory.mkdir(parents=True, exist_ok=True)
            config = options.directory / "efo.toml"
            config.write_text(_config(address.url, address.ca_file))
            await demo.run(fake, config)
    summary = await trio.to_thread.run_sync(demo.verify, abandon_on_cancel=True)
    summary.summary["seconds"] = round(time.monotonic() - started, 1)
    return summary


def _config(url: str, ca_file: Path) -> str:
    """Return the service's configuration: the defaults, except for locations in the directory of the demo."""
    return f"""\
[kinesis]
stream = "{STREAM}"
region = "us-east-1"
endpoint_url = "{url}"
ca_file = "{ca_file}"
proxy_url = ""

[consumer]
application = "demo"

[leases]
path = "leases.sqlite"
worker_id = "demo-worker"

[relay]
directory = "log"

[service]
port = 0

[pipeline]
output = "parquet"
checkpoint = "checkpoint"
trigger_seconds = 1
spark_options = {{ "spark.driver.defaultJavaOptions" = "-XX:TieredStopAtLevel=1" }}
"""


class _Demo:
    def __init__(self, options: DemoOptions, show: Callable[[DemoProgress], None]) -> None:
        self._options = options
        self._directory = options.directory
        self._show = show
        self._progress = DemoProgress()
        self._subscriptions = 0
        self._is_killing = False

    async def run(self, fake: FakeKinesis, config: Path) -> None:
        """Put the load, wait until all records are relayed and landed, and drain both processes."""
        service = DemoProcess("run", ["run", "--config", str(config)], self._directory, _CREDENTIALS)
        pipeline = DemoProcess("pipeline", ["pipeline", "--config", str(config), "--json"], self._directory, {})
        options = self._options
        load = DemoLoad(fake, STREAM, options.records, seconds=options.seconds, split_at=SPLIT_AT, merge_at=MERGE_AT)
        async with ended(service, pipeline):
            await service.start()
            if self._options.spark:
                await pipeline.start()
            await self._wait("subscribing", lambda: self._live(fake) == self._options.shards, fake, load, service)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                if self._options.crash:
                    nursery.start_soon(self._crash, service, load)
                await self._wait("relaying", lambda: self._progress.relayed >= load.records, fake, load, service)
            await service.stop(30)
            if self._options.spark:
                await self._wait("landing", lambda: self._progress.landed >= load.records, fake, load, pipeline)
                await pipeline.stop(60)
        self._subscriptions = sum(fake.subscriptions(STREAM, shard).made for shard in fake.records(STREAM))

    def verify(self) -> DemoResult:
        """Read all records back, and compare them with those that were put."""
        self._progress.phase = "comparing"
        self._show(self._progress)
        rows, latency = log_rows(self._directory / "log", STREAM)
        log = compare(rows, self._options.records)
        parquet = None
        if self._options.spark:
            parquet = compare(parquet_rows(self._directory / "parquet" / "records"), self._options.records)
        last = parquet or log
        summary = {
            "produced": self._options.records,
            "relayed": log.found,
            "landed": parquet.found if parquet else None,
            "lost": last.lost,
            "duplicated": last.duplicated,
            "order_violations": log.order_violations + (parquet.order_violations if parquet else 0),
            "splits": self._progress.splits,
            "merges": self._progress.merges,
            "crashes": self._progress.crashes,
            "unexpected": last.unexpected,
            "subscriptions": self._subscriptions,
            "latency_ms": {"p50": latency.p50, "p99": latency.p99},
        }
        return DemoResult(log, parquet, summary)

    async def _crash(self, service: DemoProcess, load: DemoLoad) -> None:
        """Kill the service in the middle of the load, and restart it."""
        await load.reached(CRASH_AT)
        self._is_killing = True
        await service.kill()
        self._progress.crashes += 1
        await service.start()
        self._is_killing = False

    async def _wait(
        self, phase: str, done: Callable[[], bool], fake: FakeKinesis, load: DemoLoad, child: DemoProcess
    ) -> None:
        """Poll until `done` returns true. Raises EfoError if the child ends, or without progress for STALL_SECONDS."""
        progress = self._progress
        progress.phase = phase
        moved_at, before = trio.current_time(), (-1, -1, -1, -1)
        while True:
            progress.produced, progress.splits, progress.merges = load.produced, load.splits, load.merges
            progress.live = self._live(fake)
            progress.relayed = await trio.to_thread.run_sync(log_size, self._directory / "log", STREAM)
            progress.landed = await trio.to_thread.run_sync(_landed, self._directory / "pipeline.log")
            self._show(progress)
            if done():
                return
            now = (progress.produced, progress.relayed, progress.landed, progress.live)
            if now != before:
                moved_at, before = trio.current_time(), now
            if trio.current_time() - moved_at > STALL_SECONDS:
                raise EfoError(f"{phase}: no progress for {STALL_SECONDS:g} s: see the logs in {self._directory}")
            if not self._is_killing:
                child.check()
            await trio.sleep(POLL_SECONDS)

    def _live(self, fake: FakeKinesis) -> int:
        return sum(fake.subscriptions(STREAM, shard).live for shard in fake.open_shards(STREAM))


def _landed(log: Path) -> int:
    """Return how many rows the pipeline has landed, from the progress lines in its log."""
    landed = 0
    if log.exists():
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("{") and line.endswith("}") and '"rows_total"' in line:
                report = json.loads(line)
                if report.get("query") == "records":
                    landed = int(report["rows_total"])
    return landed


_LOG_LINES: Final = 15
_NOT_INHERITED: Final = ("EFO_", "AWS_", "OTEL_")
"""Prefixes of environment variables that could direct a child to a real stream, sink or collector."""


class ChildFailedError(EfoError):
    """A child process of the demo failed. The message shows the end of its log."""

    error_type = "child_failed"


class DemoProcess:
    """One command of efo, in its own process group. Its output goes to `log`.

    `environment` is added to the caller's environment, without the variables that configure efo, AWS or telemetry.
    """

    def __init__(self, name: str, arguments: list[str], directory: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._arguments = efo_command(*arguments)
        self._directory = directory
        self._environment = {
            # In upper case, since the names of settings are case-insensitive.
            **{name: value for name, value in os.environ.items() if not name.upper().startswith(_NOT_INHERITED)},
            **environment,
        }
        self._process: trio.Process | None = None

    async def start(self) -> None:
        """Start the command, or restart it after a kill."""
        with self.log.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                self._arguments,
                cwd=self._directory,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise ChildFailedError if the process is not running."""
        if self._running.poll() is not None:
            raise ChildFailedError(f"efo {self.name} ended with {self._running.returncode}:\n{self._tail()}")

    async def kill(self) -> None:
        """Kill the process group (SIGKILL), as a crash would, and wait until the process has ended."""
        os.killpg(self._running.pid, signal.SIGKILL)
        await self._running.wait()

    async def stop(self, seconds: float) -> None:
        """Send SIGTERM, and wait for the drain. Raises ChildFailedError if it fails or takes longer than `seconds`."""
        self.check()
        self._running.send_signal(signal.SIGTERM)
        with trio.move_on_after(seconds):
            await self._running.wait()
        if self._running.returncode != 0:
            code = self._running.returncode
            problem = f"still runs {seconds:g} s after SIGTERM" if code is None else f"drained with exit code {code}"
            raise ChildFailedError(f"efo {self.name} {problem}:\n{self._tail()}")

    async def end(self) -> None:
        """Kill the process if it is running."""
        if self._process is not None and self._process.poll() is None:
            await self.kill()

    @property
    def _running(self) -> trio.Process:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


@asynccontextmanager
async def ended(*children: DemoProcess) -> AsyncIterator[None]:
    """End all children when the context is left, even after an error."""
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            for child in children:
                await child.end()
