"""Compares efo with fixed clients, and the ratios with a kept baseline: `make bench-quick`, under three minutes.

A ratio within one run says more than a figure: what else the machine does weighs on both clients. In each round, every
client reads the same load for a second, through a process of its own; the figure is user records per CPU-second.

    naive       one TLS socket, DATA split by hand, one typed decode: no windows, leases or metrics
    botocore    boto3's client, a thread per shard

Exits with 1 if a ratio is lost: its median is more than 10 % below the spread (the quartiles) of the baseline. A loss
is measured twice before it is reported. The last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from proofs.benchmarks.fake import Server
from proofs.benchmarks.figures.baseline import Ratio, compare, lines_of, ratio_of, ratios_from
from proofs.benchmarks.figures.throughput import SHAPES
from proofs.benchmarks.machine import machine
from proofs.benchmarks.readers.running import BOTOCORE, EFO, NAIVE, Timing, measure

BASELINE = Path(__file__).with_name("baseline.json")
CLIENTS = {"efo": EFO, "naive": NAIVE, "botocore": BOTOCORE}
BASELINE_ROUNDS = 4
"""How many times as many rounds the baseline has: the ratios of one machine change by a tenth within minutes."""
EXAMPLE = """example:
  make bench-quick ARGS="--only 1kb --rounds 5"
"""

Rounds = dict[str, list[float]]
"""Records per CPU-second of each round, by client."""


def read(server: Server, rounds: Rounds, count: int, timing: Timing) -> None:
    """Add some rounds. Each has every client once, in alternating order."""
    for number in range(count):
        for client in list(CLIENTS)[:: 1 if number % 2 else -1]:
            (window,) = measure(CLIENTS[client], server.served, server.next_consumer(), timing)
            rounds[client].append(window.records_per_cpu_second)


def ratios_of(shape: str, rounds: Rounds) -> dict[str, Ratio]:
    return {f"{shape}/{client}": ratio_of(rounds["efo"], rounds[client]) for client in CLIENTS if client != "efo"}


def measure_shape(shape: str, baseline: dict[str, Ratio], count: int, timing: Timing) -> dict[str, Ratio]:
    """Return the ratios of a shape; measure twice as long if one is lost."""
    rounds: Rounds = {client: [] for client in CLIENTS}
    with Server(SHAPES[shape]) as server:
        read(server, rounds, count, timing)
        found = ratios_of(shape, rounds)
        if any(comparison.is_lost for comparison in compare(found, baseline)):
            report(f"{shape}: lost; once more")
            read(server, rounds, count, timing)
            found = ratios_of(shape, rounds)
    shown = ", ".join(f"{name} {ratio.median:.2f}" for name, ratio in found.items())
    rates = ", ".join(f"{client} {sorted(values)[len(values) // 2] / 1000:.0f}" for client, values in rounds.items())
    report(f"{shown}; k records/CPU-s: {rates}")
    return found


def report(text: str) -> None:
    print(f"bench-quick: {text}", file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench-quick",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=list(SHAPES), default=list(SHAPES), help="shapes (default: all)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each shape (default: 4)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a window (default: 1)")
    parser.add_argument(
        "--update", action="store_true", help=f"write the baseline, of {BASELINE_ROUNDS} times as many rounds"
    )
    return parser.parse_args()


def main() -> int:
    options = parse()
    began = time.monotonic()
    kept = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"ratios": {}}
    baseline = {} if options.update else ratios_from(kept)
    timing = Timing(options.seconds, windows=1, warm_up=0.7)
    now: dict[str, Ratio] = {}
    for shape in options.only:
        now |= measure_shape(shape, baseline, options.rounds * (BASELINE_ROUNDS if options.update else 1), timing)
    ratios = {name: {key: round(value, 3) for key, value in asdict(ratio).items()} for name, ratio in now.items()}
    found = {"ratios": ratios, "machine": machine(seconds=options.seconds)}
    if options.update:
        BASELINE.write_text(json.dumps(found | {"ratios": kept["ratios"] | ratios}, indent=1) + "\n")
    comparisons = [comparison for comparison in compare(now, baseline) if comparison.now is not None]
    print("\n".join(lines_of(comparisons)))
    lost = [comparison.name for comparison in comparisons if comparison.is_lost]
    print(json.dumps(found | {"lost": lost, "took_seconds": round(time.monotonic() - began)}))
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
