"""A program that reads a stream, as an application would write it; `startup.py` measures it from outside.

`python startup_consumer.py STREAM LEASES` reads until it is killed. It prints a line of JSON for the first record of
each shard: the machine's monotonic clock, and the CPU time of this process so far, both in seconds. Credentials,
endpoint and certificate authority come from the environment.
"""

from __future__ import annotations

import sys
import time

import trio

import efo

seen: set[str] = set()


async def handle(batch: efo.Batch) -> None:
    if batch.shard_id not in seen:
        seen.add(batch.shard_id)
        print(f'{{"at": {time.monotonic()}, "cpu": {time.process_time()}}}', flush=True)


if __name__ == "__main__":
    trio.run(lambda: efo.consume(sys.argv[1], handle, application="startup", leases=sys.argv[2]))
