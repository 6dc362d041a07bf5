"""`make scale`: fleets of real consumers in virtual time, on a stream, a lease table and an account with AWS's limits.

Each fleet starts together, loses a third of its workers at once, and then has twice the shards at once. Leases, shard
sync, assignment, pacing and HTTP/2 are efo's own; Kinesis is `efo.testing.FakeKinesis`, and DynamoDB is
`proofs.scale.table`.
Prints, last, one JSON object. Exit status: 0 if each fleet has read all shards in each phase, else 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import trio
import trio.testing

from proofs.scale.fleet import Fleet, Size
from proofs.scale.kcl import dollars_per_month, of_kcl
from proofs.scale.scan import cpu_of_scan

DEFAULT = ("10x2", "100x5", "1000x20", "10000x200", "10000x200@30")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        "make scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sizes",
        nargs="*",
        type=_size,
        metavar="SHARDSxWORKERS[@FAILOVER]",
        help=f"the fleets, with the fail-over time in seconds if it is not 10; default: {' '.join(DEFAULT)}",
    )
    options = parser.parse_args(arguments)
    fleets = [run_fleet(size) for size in options.sizes or map(_size, DEFAULT)]
    print(json.dumps({"fleets": fleets}))
    return int(any(_unread(fleet) for fleet in fleets))


def _size(text: str) -> Size:
    numbers, _, failover = text.partition("@")
    shards, _, workers = numbers.partition("x")
    try:
        size = Size(int(shards), int(workers), float(failover or 10))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected SHARDSxWORKERS, for example 1000x20@30") from None
    if size.workers <= 1 or size.shards < size.workers or size.failover_seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected two workers or more, and a shard for each")
    return size


def run_fleet(size: Size) -> dict[str, Any]:
    """Run one fleet; return its figures."""
    began = time.process_time()
    phases = _Phases()
    trio.run(Fleet(size).run, phases, clock=trio.testing.MockClock(autojump_threshold=0))
    steady = phases["steady"]
    steady["dollars_per_month"] = dollars_per_month(steady["writes_per_s"], steady["read_units_per_s"])
    scan = cpu_of_scan(size.shards, size.workers)
    kcl = of_kcl(size.shards, size.workers, size.failover_seconds)
    print(f"  CPU time of a lease scan, ms: {scan}\n  KCL, by calculation: {kcl}", flush=True)
    cpu = round(time.process_time() - began, 1)
    return {**asdict(size), "phases": dict(phases), "scan": scan, "kcl": kcl, "cpu_s": cpu}


class _Phases(dict[str, Any]):
    """Prints the figures of a phase as soon as it is over."""

    def __setitem__(self, name: str, figures: Any) -> None:
        super().__setitem__(name, figures)
        print(f"  {name}: {figures}", flush=True)


def _unread(fleet: dict[str, Any]) -> int:
    return sum(phase.get("unread", 0) for phase in fleet["phases"].values())


if __name__ == "__main__":
    sys.exit(main())
