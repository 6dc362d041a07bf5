"""The other side, in a process of its own: FakeKinesis over TLS under a steady load, with faults and reshards.

Prints JSON lines: first where it serves, then every half second what it did so far. Serves until stdin ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from math import inf
from typing import Final

import trio

from efo.testing import FakeKinesis
from efo.testing.faults.script import FaultScript
from efo_service.demo.load import DemoLoad

STREAM: Final = "orders"
SHARDS: Final = 4
_REPORT_SECONDS: Final = 0.5


class Resharding:
    """Splits a shard and merges two in turn, each time that `every` seconds have passed."""

    def __init__(self, every: float) -> None:
        self.load: DemoLoad
        self._every = every
        self._due = trio.current_time() + every

    async def __call__(self, _put: int) -> None:
        """Reshard if it is due. The load calls this between its chunks."""
        if trio.current_time() >= self._due:
            self._due += self._every
            if self.load.splits > self.load.merges:
                self.load.merge()
            else:
                self.load.split()


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until stdin ends. Faults end with the load, so that what is missing then is lost and not late."""
    faults = FaultScript.random(arguments.seed, rate=arguments.fault_rate, stop=arguments.seconds)
    async with FakeKinesis(clock=time.time, faults=faults) as fake:
        fake.create_stream(STREAM, shards=SHARDS)
        async with fake.serve() as address:
            _print(url=address.url, ca_file=str(address.ca_file))
            reshard = Resharding(arguments.reshard_seconds)
            records = int(arguments.rate * arguments.seconds)
            load = DemoLoad(
                fake, STREAM, records, seconds=arguments.seconds, split_at=inf, merge_at=inf, before_next_chunk=reshard
            )
            reshard.load = load
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                nursery.start_soon(_report, load, faults)
                await trio.lowlevel.wait_readable(sys.stdin)
                nursery.cancel_scope.cancel()


async def _report(load: DemoLoad, faults: FaultScript) -> None:
    while True:
        reshards = load.splits + load.merges
        _print(
            at=time.monotonic(), put=load.produced, records=load.records, reshards=reshards, faults=len(faults.fired)
        )
        await trio.sleep(_REPORT_SECONDS)


def _print(**members: object) -> None:
    sys.stdout.write(json.dumps(members) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser("python -m proofs.soak.server")
    for name in ("--seconds", "--rate", "--fault-rate", "--reshard-seconds"):
        parser.add_argument(name, type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    trio.run(serve, parser.parse_args())


if __name__ == "__main__":
    main()
