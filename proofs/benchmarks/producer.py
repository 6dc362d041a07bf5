"""Measures the producer: user records per second and CPU second that it puts into a fake over TLS.

    python -m proofs.benchmarks.producer [--seconds 8] [--size 100] [--shards 64]

The fake is another process. Its last line is JSON: for aggregated and for plain records the rate by the clock and by
the producer's CPU time, which is what a core puts, the requests, and the p50 and p99 of the latencies.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import cycle

import trio

import efo
from efo.events import PutRecordsCalled
from efo.testing import FakeKinesis, FakeSettings

STREAM = "load"
TARGETS = {"aggregated": 100_000, "plain": 20_000}
"""User records per CPU second."""
KEYS = 10_000
SAMPLED = 100
"""Of so many records, the latency of one is looked at."""


async def serve(shards: int) -> None:
    settings = FakeSettings(throttle_writes=True, stream_creating=0.0)
    async with FakeKinesis(settings=settings, clock=time.time) as fake, fake.serve() as address:
        for kind in TARGETS:
            fake.create_stream(f"{STREAM}-{kind}", shards)
        print(json.dumps({"url": address.url, "ca_file": str(address.ca_file)}), flush=True)
        await trio.sleep_forever()


def credentials() -> None:
    """The fake checks no signature, but requests are signed as for AWS: that is a part of their cost."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "made-up", "AWS_SECRET_ACCESS_KEY": "made-up"}


async def put(url: str, ca_file: str, kind: str, seconds: float, size: int, linger: float) -> dict[str, float]:
    settings = efo.ProducerSettings(aggregate=kind == "aggregated", linger_seconds=linger)
    payload = b"x" * size
    keys = cycle([f"customer-{number}" for number in range(KEYS)])
    requests = again = 0

    def observe(event: object) -> None:
        nonlocal requests, again
        if isinstance(event, PutRecordsCalled):
            requests += 1
            again += event.again

    opened = efo.open_producer(
        f"{STREAM}-{kind}", endpoint_url=url, ca_file=ca_file, region="us-east-1", settings=settings, observer=observe
    )
    sampled = []
    async with opened as producer:
        await (await producer.put(payload, "warm"))  # what is loaded with the first request is no part of a rate
        began, cpu, count = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds:
            for key in keys:
                delivery = await producer.put(payload, key)
                count += 1
                if count % SAMPLED == 0:
                    sampled.append(delivery)
                    break
        await producer.flush()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - began
        latencies = sorted([(await delivery).latency for delivery in sampled])
    return {
        "records": count,
        "records_per_second": round(count / wall),
        "records_per_cpu_second": round(count / cpu),
        "requests": requests,
        "kinesis_records_again": again,
        "latency_p50_ms": round(1000 * latencies[len(latencies) // 2], 1),
        "latency_p99_ms": round(1000 * latencies[len(latencies) * 99 // 100], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each kind")
    parser.add_argument("--size", type=int, default=100, help="bytes of a user record")
    parser.add_argument(
        "--linger", type=float, default=0.1, help="seconds; on a machine that is busy, more shows the rest"
    )
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        trio.run(serve, options.shards)
    credentials()
    command = [sys.executable, "-m", __spec__.name, "--serve", "--shards", str(options.shards)]
    figures: dict[str, object] = {"size": options.size, "shards": options.shards}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - this module
        assert server.stdout is not None
        served = json.loads(server.stdout.readline())
        try:
            for kind, target in TARGETS.items():
                found = trio.run(
                    put, served["url"], served["ca_file"], kind, options.seconds, options.size, options.linger
                )
                figures[kind] = found | {"target": target, "reached": found["records_per_cpu_second"] >= target}
        finally:
            server.terminate()
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
