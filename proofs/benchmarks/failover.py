"""Measures the fail-over of leases to another worker, after a graceful stop (SIGTERM) and after a crash (SIGKILL).

`make failover ARGS="[--store NAME] [--trials N] [--failover-seconds S]"`. Workers are separate processes
that share one lease store. Each trial starts a second worker, waits until it holds half of the leases, and ends it.
The measured time is from the signal until the first worker holds *all* leases, by the machine's monotonic clock.
Servers run on 127.0.0.1 for the benchmark only. DynamoDB Local and MiniStack are downloaded if they are missing. A
store whose server is not installed is listed as skipped, and the exit status is then 69.
Progress goes to stderr; the last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import trio

from efo.leases.coordinator import LeaseCoordinator
from efo.leases.store import LeaseStore
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.leases.stores.postgres.store import PostgresLeaseStore
from efo.leases.stores.redis.store import RedisLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Checkpoint, Lease
from proofs.local_servers import installing
from proofs.local_servers.dynamodb import CREDENTIALS, serve_dynamodb_local, serve_ministack
from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.redis import serve_redis
from proofs.local_servers.running import NotInstalledError

LIMITS = {"graceful": "1 s", "crash": "the fail-over time and 1 s"}
TIMEOUT_SECONDS = 300.0
SIGNALS = {"graceful": signal.SIGTERM, "crash": signal.SIGKILL}


@contextmanager
def serve_file():
    with tempfile.TemporaryDirectory() as directory:
        yield str(Path(directory) / "leases.sqlite")


def dynamodb(url: str) -> DynamoDbLeaseStore:
    return DynamoDbLeaseStore("failover", region="us-east-1", endpoint_url=url, timeout=10.0)


STORES: dict[str, tuple[Callable[[], AbstractContextManager[str]], Callable[[str], AbstractAsyncContextManager]]] = {
    "sqlite": (serve_file, lambda path: SqliteLeaseStore(Path(path), "failover", "orders")),
    "postgres": (serve_postgres, lambda url: PostgresLeaseStore(url, "failover", "orders")),
    "redis": (serve_redis, lambda url: RedisLeaseStore(url, "failover", "orders")),
    "dynamodb-local": (serve_dynamodb_local, dynamodb),
    "ministack": (serve_ministack, dynamodb),
}


# --- the worker process --------------------------------------------------------------------------------------------


async def work(store: LeaseStore, worker_id: str, failover_seconds: float) -> None:
    """Hold leases until SIGTERM, and release those that other workers request. Print each change of the number held."""
    changed = trio.Event()

    def on_change():
        changed.set()  # the loop below replaces the event: this sets the current one

    coordinator = LeaseCoordinator(store, worker_id, failover_seconds=failover_seconds, on_change=on_change)
    reported = -1
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop, signals, nursery.cancel_scope)
            nursery.start_soon(coordinator.run)
            while True:
                for held in list(coordinator.held.values()):
                    if held.handoff_requested.is_set():
                        nursery.start_soon(held.release)
                if len(coordinator.held) != reported:
                    reported = len(coordinator.held)
                    print(json.dumps({"at": time.monotonic(), "held": reported}), flush=True)
                await changed.wait()
                changed = trio.Event()


async def stop(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


async def run_worker(name: str, url: str, worker_id: str, failover_seconds: float) -> None:
    async with STORES[name][1](url) as store:
        await work(store, worker_id, failover_seconds)


# --- the trials ----------------------------------------------------------------------------------------------------


class Worker:
    """A worker process, and its last report: how many leases it held, and when."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.held = 0
        self.at = 0.0
        self._reported = trio.Event()

    async def read_reports(self) -> None:
        rest = b""
        assert self.process.stdout is not None
        async for chunk in self.process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in map(json.loads, lines):
                self.held, self.at = line["held"], line["at"]
            self._reported.set()
            self._reported = trio.Event()

    async def wait_until_holds(self, count: int) -> float:
        """Wait until the worker holds `count` leases; return the time at which it did."""
        with trio.fail_after(TIMEOUT_SECONDS):
            while self.held != count:
                await self._reported.wait()
        return self.at


@asynccontextmanager
async def worker_process(name: str, url: str, worker_id: str, failover_seconds: float) -> AsyncIterator[Worker]:
    arguments = ["--as-worker", worker_id, "--store", name, "--url", url, "--failover-seconds", str(failover_seconds)]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "proofs.benchmarks.failover", *arguments],
        env={**os.environ, **CREDENTIALS},
        stdout=subprocess.PIPE,
    )
    worker = Worker(process)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.read_reports)
        try:
            yield worker
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def measure(name: str, url: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Run all trials; return the seconds of each, by kind."""
    os.environ.update(CREDENTIALS)
    async with STORES[name][1](url) as store:
        for number in range(options.leases):
            await store.create(Lease(f"shardId-{number:012}", Checkpoint.TRIM_HORIZON))
    seconds: dict[str, list[float]] = {kind: [] for kind in SIGNALS}
    async with worker_process(name, url, "survivor", options.failover_seconds) as survivor:
        await survivor.wait_until_holds(options.leases)
        for trial in range(options.trials):
            for kind, number in SIGNALS.items():
                async with worker_process(name, url, f"{kind}-{trial}", options.failover_seconds) as other:
                    await other.wait_until_holds(options.leases // 2)
                    await survivor.wait_until_holds(options.leases - options.leases // 2)
                    ended = time.monotonic()
                    other.process.send_signal(number)
                    seconds[kind].append(await survivor.wait_until_holds(options.leases) - ended)
                report(f"{name}: {kind} {trial + 1} of {options.trials}: {seconds[kind][-1]:.2f} s")
    return seconds


def summary(seconds: list[float]) -> dict[str, object]:
    return {
        "median": round(statistics.median(seconds), 2),
        "worst": round(max(seconds), 2),
        "seconds": [round(value, 2) for value in seconds],
    }


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proofs.benchmarks.failover",
        description=__doc__,
        epilog="Example: python -m proofs.benchmarks.failover --store redis --trials 3",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--store", action="append", choices=STORES, help="measure only this store; can be repeated")
    parser.add_argument("--trials", type=int, default=5, help="trials of each kind (default: 5)")
    parser.add_argument("--leases", type=int, default=10, help="number of leases (default: 10)")
    parser.add_argument("--failover-seconds", type=float, default=10.0, help="fail-over time (default: 10, as in efo)")
    parser.add_argument("--as-worker", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_worker:
        trio.run(run_worker, options.store[0], options.url, options.as_worker, options.failover_seconds)
        return
    installing.download(options.store or STORES)
    stores, skipped = {}, {}
    for name in options.store or STORES:
        try:
            with STORES[name][0]() as url:
                seconds = trio.run(measure, name, url, options)
        except NotInstalledError as error:
            skipped[name] = str(error)
            report(f"{name}: skipped: {error}")
            continue
        stores[name] = {kind: summary(values) for kind, values in seconds.items()}
    result = {
        "failover_seconds": options.failover_seconds,
        "leases": options.leases,
        "trials": options.trials,
        "limits": LIMITS,
        "stores": stores,
        "skipped": skipped,
    }
    print(json.dumps(result))
    if skipped:
        sys.exit(os.EX_UNAVAILABLE)


if __name__ == "__main__":
    main()
