"""Measures what idle shards cost: CPU and memory of one consumer with leases in SQLite, and how long its stop takes.

`python -m proofs.benchmarks.idle [--shards N ...] [--seconds S]`. A fake Kinesis in a process of its own serves the
shards over TLS and sends each an event without records every 5 s, as AWS does. A consumer in another process subscribes
to all of them. Its CPU time and memory are measured while nothing happens; then it drains.
Progress goes to stderr; the last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

import efo
from efo.events import EventReceived, ShardsCounted
from efo.testing import FakeKinesis, FakeSettings

STREAM = "orders"
SETTLE = 12.0
"""Seconds from the first event of the last shard until the measurement: the fail-over time, and some."""


# --- the fake ---------------------------------------------------------------------------------------------------------


async def serve(shards: int, idle_interval: float) -> None:
    """Serve a stream until stdin ends."""
    settings = FakeSettings(throttle=False, consumer_creating=0.0, stream_creating=0.0, idle_interval=idle_interval)
    async with FakeKinesis(settings=settings, clock=time.time) as fake:
        fake.create_stream(STREAM, shards)
        async with fake.serve(tls=True) as address:
            print(json.dumps({"url": address.url, "ca_file": str(address.ca_file)}), flush=True)
            await trio.lowlevel.wait_readable(sys.stdin)


@contextmanager
def fake_process(shards: int, idle_interval: float) -> Iterator[dict[str, str]]:
    """Run the fake in a process of its own; yield where it is."""
    command = [sys.executable, "-m", "proofs.benchmarks.idle", "--as-fake"]
    command += ["--shards", str(shards), "--idle-interval", str(idle_interval)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - efo itself
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()


# --- the consumer -----------------------------------------------------------------------------------------------------


class Watch:
    """An observer that knows when every shard has sent an event."""

    def __init__(self, shards: int) -> None:
        self.missing = shards
        self.all_live = trio.Event()
        self.counted = 0
        self.events = 0
        self._seen: set[str] = set()

    def __call__(self, event: efo.events.Event) -> None:
        """Count an event."""
        if isinstance(event, ShardsCounted):
            self.counted += 1
        elif isinstance(event, EventReceived):
            self.events += 1
            if event.shard_id not in self._seen:
                self._seen.add(event.shard_id)
                if len(self._seen) == self.missing:
                    self.all_live.set()


async def consume(shards: int, served: dict[str, str], leases: str, seconds: float) -> dict[str, object]:
    """Read all shards; return the figures."""
    settings = efo.ConsumerSettings(subscribes_per_second=2000.0)
    watch = Watch(shards)
    base = resident_kb()
    async with efo.open_consumer(
        STREAM,
        application="idle",
        leases=leases,
        worker_id="worker",
        settings=settings,
        region="us-east-1",
        endpoint_url=served["url"],
        ca_file=served["ca_file"],
        observer=watch,
    ) as consumer:
        opened = resident_kb()
        began, began_cpu = time.monotonic(), cpu_seconds()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, read)
            await watch.all_live.wait()
            figures: dict[str, object] = {
                "shards": shards,
                "start_s": round(time.monotonic() - began, 2),
                "start_cpu_s": round(cpu_seconds() - began_cpu, 2),
            }
            await trio.sleep(SETTLE)
            at, cpu, counted, events = time.monotonic(), cpu_seconds(), watch.counted, watch.events
            await trio.sleep(seconds)
            elapsed = time.monotonic() - at
            figures |= {
                "cpu_percent": round(100 * (cpu_seconds() - cpu) / elapsed, 2),
                "wakes_per_s": round((watch.counted - counted) / elapsed, 2),
                "events_per_s": round((watch.events - events) / elapsed, 1),
                "resident_mb": round(resident_kb() / 1000, 1),
                "kb_per_shard": round((resident_kb() - opened) / shards, 1),
                "imported_mb": round(base / 1000, 1),
            }
            at, cpu = time.monotonic(), cpu_seconds()
            consumer.drain()
        figures |= {"drain_s": round(time.monotonic() - at, 2), "drain_cpu_s": round(cpu_seconds() - cpu, 2)}
        at = time.monotonic()
    return figures | {"close_s": round(time.monotonic() - at, 2)}


async def read(shard: efo.ShardStream) -> None:
    """Ack everything."""
    async for batch in shard:
        shard.ack(batch)


def cpu_seconds() -> float:
    """Return the CPU time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident_kb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1000


def measure(shards: int, seconds: float, idle_interval: float, store: str) -> dict[str, object]:
    """Run one consumer in a process of its own; return its figures."""
    with tempfile.TemporaryDirectory() as directory, fake_process(shards, idle_interval) as served:
        leases = f"{directory}/leases.sqlite" if store == "sqlite" else store
        command = [sys.executable, "-m", "proofs.benchmarks.idle", "--as-consumer", json.dumps(served)]
        command += ["--shards", str(shards), "--seconds", str(seconds), "--store", leases]
        environment = os.environ | {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)  # noqa: S603 - efo itself
    figures: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    print(figures, file=sys.stderr, flush=True)
    return figures


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m proofs.benchmarks.idle", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 1000], help="numbers of shards (default: 1 1000)")
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of a measurement (default: 30)")
    parser.add_argument(
        "--idle-interval", type=float, default=5.0, help="seconds between a shard's events (default: 5)"
    )
    parser.add_argument("--store", default="sqlite", help="sqlite, or the URL of another lease store")
    parser.add_argument("--as-fake", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--as-consumer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_fake:
        trio.run(serve, options.shards[0], options.idle_interval)
        return
    if options.as_consumer:
        logging.disable()
        served = json.loads(options.as_consumer)
        print(json.dumps(trio.run(consume, options.shards[0], served, options.store, options.seconds)))
        return
    runs = [measure(shards, options.seconds, options.idle_interval, options.store) for shards in options.shards]
    print(json.dumps({"load_average": round(os.getloadavg()[0], 1), "runs": runs}))


if __name__ == "__main__":
    main()
