"""Compares what polling costs with what fan-out costs: CPU time of the reading thread per record.

    python -m proofs.benchmarks.polling [--rounds N] [--megabytes N]

Both read the same records of one fake, over TLS, with `efo.consume`, leases in memory and acks. The fake runs in a
thread of its own, whose CPU time does not count. Each round reads everything by fan-out and by polling, in alternating
order; the figure is the median of the rounds. Exits with 1 if polling costs more than 1.2 times as much. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from functools import partial

import trio

import efo
from efo.testing import FakeKinesisThread, FakeSettings

LIMIT = 1.2
"""The most that polling may cost, in terms of fan-out."""
SHARDS = 4
SHAPES = {"1kb": 1000, "200b": 200}
MODES: tuple[efo.ReadMode, ...] = ("fanout", "polling")
SETTINGS = FakeSettings(throttle=False, consumer_creating=0.0, max_concurrent_streams=128)


async def read(fake: FakeKinesisThread, stream: str, count: int, mode: efo.ReadMode) -> float:
    """Read `count` records; return the CPU time of this thread in seconds."""
    left, size = count, 0
    with trio.fail_after(300), trio.CancelScope() as reading:

        async def handle(batch: efo.Batch) -> None:
            nonlocal left, size
            size += sum([len(record.data) for record in batch])
            left -= len(batch)
            if left <= 0:
                reading.cancel()

        began = time.thread_time()
        await efo.consume(
            stream,
            handle,
            application="bench",
            leases="memory:",
            settings=efo.ConsumerSettings(read_mode=mode),
            region="us-east-1",
            endpoint_url=fake.url,
            ca_file=str(fake.ca_file),
        )
    return time.thread_time() - began


def measure(shape: str, size: int, megabytes: int, rounds: int) -> dict[str, object]:
    """Return the figures of one shape."""
    count = megabytes * 1_000_000 // size
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    with FakeKinesisThread(settings=SETTINGS) as fake:
        fake.create_stream(shape, SHARDS)
        fake.put_many(shape, [(f"key-{number % 1000}", os.urandom(size)) for number in range(count)])
        for number in range(rounds + 1):
            for mode in MODES[:: 1 if number % 2 else -1]:
                taken = trio.run(partial(read, fake, shape, count, mode))
                if number:  # the first round imports and warms up
                    seconds[mode].append(taken)
            time.sleep(5.1)  # within 5 s of the last one, the service refuses a subscription
    micros = {mode: round(statistics.median(taken) / count * 1e6, 2) for mode, taken in seconds.items()}
    ratio = statistics.median(polled / pushed for pushed, polled in zip(*seconds.values(), strict=True))
    return {"shape": shape, "records": count, "micros_per_record": micros, "polling_to_fanout": round(ratio, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the CPU time of polling and of fan-out.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that are measured (default: 5)")
    parser.add_argument("--megabytes", type=int, default=20, help="data to read in each (default: 20)")
    options = parser.parse_args()
    for name, value in {"AWS_ACCESS_KEY_ID": "AKIDBENCH", "AWS_SECRET_ACCESS_KEY": "made-up"}.items():
        os.environ.setdefault(name, value)
    results = []
    for shape, size in SHAPES.items():
        result = measure(shape, size, options.megabytes, options.rounds)
        results.append(result)
        print(f"{shape}: {result['micros_per_record']} us, ratio {result['polling_to_fanout']}", file=sys.stderr)
    print(json.dumps({"limit": LIMIT, "results": results}))
    return 0 if all(float(str(result["polling_to_fanout"])) <= LIMIT for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
