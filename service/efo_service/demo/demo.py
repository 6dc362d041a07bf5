"""The demo: FakeKinesis over TLS, the service and Spark's pipeline as processes of their own, and a comparison."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings
from efo_service.demo.children import Child, ended
from efo_service.demo.load import Load
from efo_service.demo.verify import Comparison, compare, log_rows, log_size, parquet_rows
from efo_service.drain import SIGNALS
from efo_service.errors import UsageError
from efo_service.spark.java import find_java

STREAM: Final = "orders"
LOOK_SECONDS: Final = 0.25
"""How often the demo looks at what has arrived."""
STALLED_SECONDS: Final = 240.0
"""Without any progress for so long, the demo fails: Spark's start is the longest wait, minutes on a busy machine."""
SPLIT_AT, CRASH_AT, MERGE_AT = 0.3, 0.5, 0.65
"""At which share of the load the stream is resharded and, with `crash`, the service killed."""
# Short subscriptions, so that the demo's few seconds show many: AWS's live five minutes.
_FAKE: Final = FakeSettings(subscription_life=8.0)
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the demo does. `seconds`: how long the load takes; `directory`: where everything is kept."""

    records: int = 200_000
    shards: int = 4
    spark: bool = True
    crash: bool = False
    seconds: float = 8.0
    directory: Path

    def __post_init__(self) -> None:
        if self.records < 1 or self.shards < 2:  # noqa: PLR2004 - a merge needs two
            raise UsageError("the demo needs at least 1 record and 2 shards (to merge two)")


@dataclass(slots=True)
class DemoProgress:
    """Where the demo is. `live`: subscriptions that are open now."""

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
    """What the demo found. `summary` is what its JSON line says."""

    log: Comparison
    parquet: Comparison | None
    summary: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether everything arrived once and in order, in the log and in Parquet."""
        places = [place for place in (self.log, self.parquet) if place is not None]
        return not any(p.lost or p.duplicated or p.foreign or p.order_violations for p in places)


async def run_demo(options: DemoOptions, show: Callable[[DemoProgress], None]) -> DemoResult:
    """Run the demo; `show` is called as it goes on. Raises EfoError, and KeyboardInterrupt on SIGTERM or Ctrl-C.

    Whatever ends it, it leaves no process behind that it has started.
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
                raise RuntimeError("the demo's fake is served with TLS")
            options.directory.mkdir(parents=True, exist_ok=True)
            config = options.directory / "efo.toml"
            config.write_text(_config(address.url, address.ca_file))
            await demo.run(fake, config)
    summary = await trio.to_thread.run_sync(demo.verify, abandon_on_cancel=True)
    summary.summary["seconds"] = round(time.monotonic() - started, 1)
    return summary


def _config(url: str, ca_file: Path) -> str:
    """Return the service's configuration: defaults, but for where things are, in the processes' directory."""
    return f"""\
[kinesis]
stream = "{STREAM}"
region = "us-east-1"
endpoint_url = "{url}"
ca_file = "{ca_file}"

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
quick_start = true
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
        """Put the load, and wait until all of it is relayed and landed; then drain both processes."""
        service = Child("run", ["run", "--config", str(config)], self._directory, _CREDENTIALS)
        pipeline = Child("pipeline", ["pipeline", "--config", str(config), "--json"], self._directory, {})
        options = self._options
        load = Load(fake, STREAM, options.records, seconds=options.seconds, split_at=SPLIT_AT, merge_at=MERGE_AT)
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
        """Read everything back and compare."""
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
            "foreign": last.foreign,
            "subscriptions": self._subscriptions,
            "latency_ms": {"p50": latency.p50, "p99": latency.p99},
        }
        return DemoResult(log, parquet, summary)

    async def _crash(self, service: Child, load: Load) -> None:
        """Kill the service in the middle of the load, as nothing but a crash does, and start it again."""
        await load.reached(CRASH_AT)
        self._is_killing = True
        await service.kill()
        self._progress.crashes += 1
        await service.start()
        self._is_killing = False

    async def _wait(self, phase: str, done: Callable[[], bool], fake: FakeKinesis, load: Load, child: Child) -> None:
        """Look until it is done. Raises EfoError if the child ends, or nothing moves for too long."""
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
            if trio.current_time() - moved_at > STALLED_SECONDS:
                raise EfoError(f"{phase}: no progress for {STALLED_SECONDS:g} s; see the logs in {self._directory}")
            if not self._is_killing:
                child.check()
            await trio.sleep(LOOK_SECONDS)

    def _live(self, fake: FakeKinesis) -> int:
        return sum(fake.subscriptions(STREAM, shard).live for shard in fake.open_shards(STREAM))


def _landed(log: Path) -> int:
    """Return how many rows the pipeline has landed, by its own progress lines."""
    landed = 0
    if log.exists():
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("{") and line.endswith("}") and '"rows_total"' in line:
                report = json.loads(line)
                if report.get("query") == "records":
                    landed = int(report["rows_total"])
    return landed
