"""Measures the CPU time of a batch through each surface: `make bench-surfaces`. The last line is JSON.

In each round, every surface reads the same load for a second, through a process of its own. A surface is compared with
the trio surface in the same form within the round, so that other load of the machine weighs on both; the figure is the
median of the rounds. Targets, per batch of 500 records of 1 kB: asyncio at most 1.10 times trio's CPU time, synchronous
code 1.20 times. What a surface adds is a constant for each batch, so it weighs more on small ones; they are shown
beside. Exit status 1: a target was missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median

from proofs.benchmarks.fake import Server
from proofs.benchmarks.machine import machine
from proofs.benchmarks.readers.running import Timing, measure
from proofs.benchmarks.readers.surface_reader import SURFACES

READER = "proofs.benchmarks.readers.surface_reader"
SHAPES = {
    "1kb": ["--record-bytes", "1000", "--records-per-event", "500"],
    "small": ["--record-bytes", "200", "--records-per-event", "100"],
}
JUDGED = "1kb"
TARGETS = {"asyncio": 1.10, "sync": 1.20}


def measure_shape(options: list[str], rounds: int, timing: Timing) -> dict[str, list[float]]:
    """Return the CPU microseconds per batch of each round, by surface."""
    costs: dict[str, list[float]] = {surface: [] for surface in SURFACES}
    with Server(options) as server:
        for number in range(rounds):
            for surface in list(SURFACES)[:: 1 if number % 2 else -1]:
                (window,) = measure(READER, server.served, server.next_consumer(), timing, options=[surface])
                costs[surface].append(window.cpu_seconds / window.events * 1e6)
    return costs


def ratios_of(costs: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each surface's ratio to the trio surface in the same form."""
    return {
        surface: round(
            median(cost / trio for cost, trio in zip(own, costs[f"trio {surface.split()[1]}"], strict=True)),
            3,
        )
        for surface, own in costs.items()
        if not surface.startswith("trio")
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench-surfaces", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
            "cpu_us_per_batch": {surface: round(median(found)) for surface, found in costs.items()},
            "ratio_to_trio": ratios,
        }
        print(f"bench-surfaces: {shape}: {figures[shape]}", file=sys.stderr, flush=True)
        if shape == JUDGED:
            missed = [surface for surface, ratio in ratios.items() if ratio > TARGETS[surface.split()[0]]]
    print(json.dumps({"shapes": figures, "targets": TARGETS, "missed": missed, "machine": machine()}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
