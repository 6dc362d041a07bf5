"""Measures the CPU time of a batch through each door: `make bench-doors`. The last line of stdout is one JSON object.

In each round, every door reads the same load for a second, through a process of its own. A door is compared with the
trio door in the same form within the round, so that other load of the machine weighs on both; the figure is the median
of the rounds. Targets, per batch of 500 records of 1 kB: asyncio at most 1.10 times trio's CPU time, synchronous code
1.20 times. What a door adds is a constant for each batch, so it weighs more on small ones; they are shown beside.
Exit status 1: a target was missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median

from proofs.benchmarks.fake import Server
from proofs.benchmarks.machine import machine
from proofs.benchmarks.readers.door_reader import DOORS
from proofs.benchmarks.readers.running import Timing, measure

READER = "proofs.benchmarks.readers.door_reader"
SHAPES = {
    "1kb": ["--record-bytes", "1000", "--records-per-event", "500"],
    "small": ["--record-bytes", "200", "--records-per-event", "100"],
}
JUDGED = "1kb"
TARGETS = {"asyncio": 1.10, "sync": 1.20}


def measure_shape(options: list[str], rounds: int, timing: Timing) -> dict[str, list[float]]:
    """Return the CPU microseconds per batch of each round, by door."""
    costs: dict[str, list[float]] = {door: [] for door in DOORS}
    with Server(options) as server:
        for number in range(rounds):
            for door in list(DOORS)[:: 1 if number % 2 else -1]:
                (window,) = measure(READER, server.served, server.next_consumer(), timing, options=[door])
                costs[door].append(window.cpu_seconds / window.events * 1e6)
    return costs


def ratios_of(costs: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each door's ratio to the trio door in the same form."""
    return {
        door: round(
            median(cost / trio for cost, trio in zip(own, costs[f"trio {door.split()[1]}"], strict=True)),
            3,
        )
        for door, own in costs.items()
        if not door.startswith("trio")
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench-doors", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(SHAPES), default=list(SHAPES), help="shapes (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each shape (default: 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a window (default: 1)")
    options = parser.parse_args()
    timing = Timing(options.seconds, 1, 0.5)
    figures, missed = {}, []
    for shape in options.only:
        costs = measure_shape(SHAPES[shape], options.rounds, timing)
        ratios = ratios_of(costs)
        figures[shape] = {
            "cpu_us_per_batch": {door: round(median(found)) for door, found in costs.items()},
            "ratio_to_trio": ratios,
        }
        print(f"bench-doors: {shape}: {figures[shape]}", file=sys.stderr, flush=True)
        if shape == JUDGED:
            missed = [door for door, ratio in ratios.items() if ratio > TARGETS[door.split()[0]]]
    print(json.dumps({"shapes": figures, "targets": TARGETS, "missed": missed, "machine": machine()}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
