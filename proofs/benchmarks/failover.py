"""How soon another worker has a worker's leases: after a graceful stop (SIGTERM), and after a crash (SIGKILL).

`make failover ARGS="[--store NAME] [--trials N] [--failover-seconds S]"`. Workers are
processes of their own that share one lease store; each trial adds one, waits until it holds half of the leases, and
ends it. A trial's time runs from the signal until the other worker holds *all* leases, by the clock that all processes
of a machine share. Servers are started on 127.0.0.1 and thrown away; those that are not installed are left out by name.
Progress goes to stderr, the last line of stdout is one JSON object.
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

from efo.leases.keeper import LeaseKeeper
from efo.leases.store import LeaseStore
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.leases.stores.postgres.store import PostgresLeaseStore
from efo.leases.stores.redis import RedisLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import TRIM_HORIZON, Lease
from proofs.local_servers.dynamodb import CREDENTIALS, serve_dynamodb_local, serve_ministack
from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.redis import serve_redis
from proofs.local_servers.running import NotInstalledError

LIMITS = {"graceful": "1 s", "crash": "the fail-over time and 1 s"}
PATIENCE = 300.0
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


# --- one worker: a process -----------------------------------------------------------------------------------------


async def work(store: LeaseStore, worker_id: str, failover_time: float) -> None:
    """Hold leases until SIGTERM, let go of those that others ask for, and print how many are held, and when."""
    changed = trio.Event()

    def notice():
        changed.set()  # the one that is waited for now

    keeper = LeaseKeeper(store, worker_id, failover_time=failover_time, on_change=notice)
    told = -1
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop, signals, nursery.cancel_scope)
            nursery.start_soon(keeper.run)
            while True:
                for held in list(keeper.held.values()):
                    if held.wanted.is_set():
                        nursery.start_soon(held.release)
                if len(keeper.held) != told:
                    told = len(keeper.held)
                    print(json.dumps({"at": time.monotonic(), "held": told}), flush=True)
                await changed.wait()
                changed = trio.Event()


async def stop(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


async def be_worker(name: str, url: str, worker_id: str, failover_time: float) -> None:
    async with STORES[name][1](url) as store:
        await work(store, worker_id, failover_time)


# --- the trials ----------------------------------------------------------------------------------------------------


class Worker:
    """A worker process, and what it last told."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.held = 0
        self.at = 0.0
        self._told = trio.Event()

    async def listen(self) -> None:
        rest = b""
        async for chunk in self.process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in map(json.loads, lines):
                self.held, self.at = line["held"], line["at"]
            self._told.set()
            self._told = trio.Event()

    async def holds(self, count: int) -> float:
        """Wait until it holds so many leases; return when it did."""
        with trio.fail_after(PATIENCE):
            while self.held != count:
                await self._told.wait()
        return self.at


@asynccontextmanager
async def hired(name: str, url: str, worker_id: str, failover_time: float) -> AsyncIterator[Worker]:
    arguments = ["--as-worker", worker_id, "--store", name, "--url", url, "--failover-seconds", str(failover_time)]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "proofs.benchmarks.failover", *arguments],
        env={**os.environ, **CREDENTIALS},
        stdout=subprocess.PIPE,
    )
    worker = Worker(process)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.listen)
        try:
            yield worker
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def measure(name: str, url: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the seconds of each trial."""
    os.environ.update(CREDENTIALS)
    async with STORES[name][1](url) as store:
        for number in range(options.leases):
            await store.create(Lease(f"shardId-{number:012}", TRIM_HORIZON))
    seconds: dict[str, list[float]] = {kind: [] for kind in SIGNALS}
    async with hired(name, url, "survivor", options.failover_seconds) as survivor:
        await survivor.holds(options.leases)
        for trial in range(options.trials):
            for kind, number in SIGNALS.items():
                async with hired(name, url, f"{kind}-{trial}", options.failover_seconds) as other:
                    await other.holds(options.leases // 2)
                    await survivor.holds(options.leases - options.leases // 2)
                    ended = time.monotonic()
                    other.process.send_signal(number)
                    seconds[kind].append(await survivor.holds(options.leases) - ended)
                tell(f"{name}: {kind} {trial + 1} of {options.trials}: {seconds[kind][-1]:.2f} s")
    return seconds


def summary(seconds: list[float]) -> dict[str, object]:
    return {
        "median": round(statistics.median(seconds), 2),
        "worst": round(max(seconds), 2),
        "seconds": [round(value, 2) for value in seconds],
    }


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proofs.benchmarks.failover",
        description=__doc__,
        epilog="Example: python -m proofs.benchmarks.failover --store redis --trials 3",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--store", action="append", choices=STORES, help="only this one; may be given several times")
    parser.add_argument("--trials", type=int, default=5, help="of each kind, default 5")
    parser.add_argument("--leases", type=int, default=10, help="default 10")
    parser.add_argument("--failover-seconds", type=float, default=10.0, help="default 10, as efo's")
    parser.add_argument("--as-worker", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_worker:
        trio.run(be_worker, options.store[0], options.url, options.as_worker, options.failover_seconds)
        return
    stores, skipped = {}, {}
    for name in options.store or STORES:
        try:
            with STORES[name][0]() as url:
                seconds = trio.run(measure, name, url, options)
        except NotInstalledError as error:
            skipped[name] = str(error)
            tell(f"{name}: left out: {error}")
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


if __name__ == "__main__":
    main()
