"""A fake Kinesis into which records are put at a constant rate, each with the time of its put as data.

    python -m proofs.benchmarks.readers.put_server SHARDS RATE CONSUMER

It prints the same line of JSON as the load server. Keys are random, so nearly every record is an event of its own.
"""

from __future__ import annotations

import json
import sys
import time
from random import Random

import trio

from efo.testing import FakeKinesis, FakeSettings

STREAM = "load"
TICK = 0.001


async def serve(shards: int, rate: float, name: str) -> None:
    settings = FakeSettings(throttle=False, consumer_creating=0.0, stream_creating=0.0)
    async with FakeKinesis(settings=settings, clock=time.time) as fake, fake.serve() as address:
        fake.create_stream(STREAM, shards)
        consumer = fake.register(STREAM, name)
        stream = {"shards": list(fake.open_shards(STREAM)), "consumers": {name: consumer.arn}}
        served = {"url": address.url, "ca_file": str(address.ca_file), "streams": {STREAM: stream}}
        print(json.dumps(served), flush=True)
        await put(fake, rate)


async def put(fake: FakeKinesis, rate: float) -> None:
    random = Random(0)
    began, count = trio.current_time(), 0
    while True:
        await trio.sleep(TICK)
        due = int((trio.current_time() - began) * rate)
        for _ in range(due - count):
            fake.put(STREAM, f"key-{random.getrandbits(64)}", f"{time.time():.6f}".encode())
        count = due


if __name__ == "__main__":
    trio.run(serve, int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
